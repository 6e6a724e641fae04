# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Parse the names of wheels and source archives, and rank them for an interpreter as pip does. Pure.

The rules are those of the packaging specifications "Binary distribution format" (PEP 427) and "Platform compatibility
tags" (PEP 425, and PEP 600 for manylinux).
"""

from __future__ import annotations

import re
from typing import Iterator, NamedTuple

from ..definition.packages import canonical

SOURCE_SUFFIXES = (".tar.gz", ".zip", ".tar.bz2", ".tar.xz", ".tgz", ".tar")

_WHEEL = re.compile(
    r"(?P<name>[^-]+)-(?P<version>[^-]+)(?:-(?P<build>\d[^-]*))?-(?P<python>[^-]+)-(?P<abi>[^-]+)-(?P<platform>[^-]+)"
    r"\.whl\Z")
_OLD_MANYLINUX = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
"""The names that some minor versions of glibc had before PEP 600."""

_OLDEST_GLIBC = {"x86_64": 5, "i686": 5}
"""The oldest minor version of glibc that wheels exist for; 17 on every other machine."""


class Interpreter(NamedTuple):
    """What decides which wheels fit."""

    version: str
    """``3.11.2``"""
    implementation: str
    """``cpython``"""
    abi_tag: str
    """``cp311``, or ``cp313t`` for one without the global lock"""
    platform: str
    """``linux_x86_64``"""
    glibc: str
    """``2.36``; empty where wheels for manylinux do not fit"""


class Name(NamedTuple):
    """What the name of a file says."""

    project: str
    """canonical"""
    version: str
    tags: tuple[tuple[str, str, str], ...]
    """interpreter, ABI and platform, of a wheel; none of a source archive"""
    build: tuple[int, str]
    """build number of a wheel"""

    @property
    def is_wheel(self) -> bool:
        """Tell whether it is a wheel."""
        return bool(self.tags)


def parse(filename: str, project: str) -> Name | None:
    """Tell what a file's name says; None for no file of this project. Archives need the project to be read."""
    match = _WHEEL.match(filename)
    if match is not None:
        if canonical(match.group("name")) != canonical(project):
            return None
        tags = tuple(
            (python, abi, platform)
            for python in match.group("python").split(".")
            for abi in match.group("abi").split(".")
            for platform in match.group("platform").split("."))
        build = re.match(r"(\d+)(.*)", match.group("build") or "")
        number = (int(build.group(1)), build.group(2)) if build else (0, "")
        return Name(canonical(project), match.group("version"), tags, number)
    for suffix in SOURCE_SUFFIXES:
        if not filename.endswith(suffix):
            continue
        stem = filename[: -len(suffix)]
        for place in (index for index, letter in enumerate(stem) if letter == "-"):
            if canonical(stem[:place]) == canonical(project):
                return Name(canonical(project), stem[place + 1:], (), (0, ""))
    return None


def same_version(asked: str, found: str) -> bool:
    """Tell whether ``==asked`` admits a version: a local part counts only where it is asked for (PEP 440)."""
    if "+" not in asked:
        found = found.partition("+")[0]
    return _plain(asked) == _plain(found)


def _plain(version: str) -> str:
    """Return a version in which different spellings are the same."""
    text = version.lower().lstrip("v").replace("_", ".")
    public, plus, local = text.partition("+")
    public = re.sub(r"[-.]?(alpha|beta|preview|pre|rc|a|b|c)[-.]?", lambda m: _letters(m.group(1)), public)
    public = re.sub(r"[-.]?(post|rev|r)[-.]?(\d+)", r".post\2", public)
    numbers = re.match(r"\d+(?:\.\d+)*", public)
    if numbers:
        release = re.sub(r"(\.0+)+\Z", "", numbers.group(0))
        public = release + public[numbers.end():]
    return public + plus + local.replace("-", ".")


def _letters(word: str) -> str:
    return {"alpha": "a", "beta": "b", "c": "rc", "pre": "rc", "preview": "rc"}.get(word, word)


def platforms(interpreter: Interpreter) -> Iterator[str]:
    """Return the platforms of wheels that fit, the most special first."""
    machine = interpreter.platform.partition("_")[2]
    major, _dot, minor = interpreter.glibc.partition(".")
    if major == "2" and minor.isdigit():
        for number in range(int(minor), _OLDEST_GLIBC.get(machine, 17) - 1, -1):
            yield "manylinux_2_%d_%s" % (number, machine)
            if number in _OLD_MANYLINUX:
                yield "%s_%s" % (_OLD_MANYLINUX[number], machine)
    yield interpreter.platform


def fitting_tags(interpreter: Interpreter) -> list[tuple[str, str, str]]:
    """Return the tags of wheels that fit, in the order in which pip prefers them."""
    minor = int(interpreter.version.split(".")[1])
    places = list(platforms(interpreter))
    own = "cp3%d" % minor
    stable = not interpreter.abi_tag.endswith("t")
    found = [(own, interpreter.abi_tag, place) for place in places]
    if stable:
        found += [(own, "abi3", place) for place in places]
    found += [(own, "none", place) for place in places]
    if stable:
        found += [("cp3%d" % older, "abi3", place) for older in range(minor - 1, 1, -1) for place in places]
    plain = ["py3%d" % minor, "py3", *("py3%d" % older for older in range(minor - 1, -1, -1))]
    found += [(python, "none", place) for python in plain for place in places]
    found.append((own, "none", "any"))
    found += [(python, "none", "any") for python in plain]
    return found


class Chooser:
    """Chooses as pip does among the files of a version."""

    def __init__(self, interpreter: Interpreter) -> None:
        self.places = {tag: place for place, tag in enumerate(fitting_tags(interpreter))}

    def rank(self, name: Name, form: str) -> tuple[int, int, int, str] | None:
        """Return what orders candidates, the best least; None for no fit. ``any``: archives only without wheels."""
        if not name.is_wheel:
            return (1, 0, 0, "") if form != "wheel" else None
        fitting = [self.places[tag] for tag in name.tags if tag in self.places]
        if form == "source" or not fitting:
            return None
        return (0, min(fitting), -name.build[0], name.build[1])
