# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check the locks of a release file, and its versions against what they pin. Pure.

Those of packages are :mod:`.packages`' matter.
"""

from __future__ import annotations

import re
from typing import Any, Iterator, Mapping, MutableMapping, NamedTuple

from . import components, lock_conflicts, lock_lines
from .lock_lines import Places
from .packages import LOCKS_OF_ONE, Pin, canonical, pins

LOCKS: tuple[components.Keys, ...] = (
    ("locks", "tools"), ("locks", "base"), ("locks", "conda"), ("pytorch", "lock"), ("pytorch", "cuda_lock"),
    ("mpi", "lock"), ("base", "venv", "lock"),
)
"""Keys of the texts that pip reads as locks."""

OF_CONDA: components.Keys = ("base", "lock")
"""The key of a text that conda packages are listed in."""

TAGGED: tuple[tuple[components.Keys, components.Keys], ...] = (
    (("pytorch", "version"), ("pytorch", "source", "tag")),
    (("pytorch", "version"), ("pytorch", "mpi_backend", "tag")),
    (("nccl", "version"), ("nccl", "tag")),
    (("nccl", "plugin", "version"), ("nccl", "plugin", "tag")),
)
"""Versions, and the tags of git that have to be theirs."""

_FILE = re.compile(r"[A-Za-z0-9./][\w.+/-]*\.(?:txt|lock|yml)\Z")
_TAG = re.compile(r"v?([0-9]+(?:\.[0-9]+)+)(?:[-+.]\w+)*\Z")
_NCCL = re.compile(r"nvidia-nccl-cu([0-9]+)\Z")
_PYTHON = re.compile(r"python\s*=*\s*(3\.[0-9]+)(?:[.*=\s]|\Z)")


class Text(NamedTuple):
    """A lock, or the name of a file with it, where a release file has it."""

    path: str
    """of its key, with dots"""
    holder: MutableMapping[str, Any]
    key: str

    @property
    def value(self) -> str:
        """Return what stands there."""
        return str(self.holder[self.key])

    def put(self, value: str) -> None:
        """Have something else stand there."""
        self.holder[self.key] = value


def texts(content: object) -> Iterator[Text]:
    """Yield every lock of a release file's data, as written; what has the wrong type is passed over."""
    if not isinstance(content, MutableMapping):
        return
    for keys in (*LOCKS, OF_CONDA):
        holder = components.value_at(content, keys[:-1])
        if isinstance(holder, MutableMapping) and isinstance(holder.get(keys[-1]), str):
            yield Text(".".join(keys), holder, keys[-1])
    packages = content.get("packages")
    for number, entry in enumerate(packages if isinstance(packages, list) else ()):
        for key in LOCKS_OF_ONE:
            if isinstance(entry, MutableMapping) and isinstance(entry.get(key), str):
                yield Text("packages[%d].%s" % (number, key), entry, key)
    bundles = content.get("bundles")
    for number, entry in enumerate(bundles if isinstance(bundles, list) else ()):
        if isinstance(entry, MutableMapping) and isinstance(entry.get("lock"), str):
            yield Text("bundles[%d].lock" % number, entry, "lock")


def is_file_name(value: str) -> bool:
    """Tell the name of a file with a lock from a lock, in which blanks, equals signs or several lines are."""
    return bool(_FILE.match(value))


def problems(definition: object, source: str = "", places: Places = lock_lines.NOWHERE) -> list[str]:
    """Find what is wrong with the locks, and versions that are not what is locked or tagged, as one sentence each.

    Types and unknown keys are the schema's matter; what has the wrong type is passed over here.

    Args:
        definition: a release file's data, as written.
        source: the file that the sentences name.
        places: of the locks.
    """
    if not isinstance(definition, MutableMapping):
        return []
    where = " in %s" % source if source else ""
    found = malformed(definition, source, places)
    sound = {lock.path: lock.value for lock in texts(definition)
             if lock.path != ".".join(OF_CONDA) and not any(_faults(lock.value))}
    locked = {path: pins(text) for path, text in sound.items()}
    return [*found, *("'%s'%s %s." % (path, where, trouble) for path, trouble in (
        *_contradictions(definition, locked, places), *lock_conflicts.conflicts(sound, places)))]


def malformed(definition: MutableMapping[str, Any], source: str = "", places: Places = lock_lines.NOWHERE) -> list[str]:
    """Find the lines of locks that pip would refuse, as one sentence each; see :func:`problems`."""
    where = " in %s" % source if source else ""
    return ["'%s'%s%s: %s." % (lock.path, where, places.of(lock.path, lock.value, line), fault)
            for lock in texts(definition) if lock.path != ".".join(OF_CONDA)
            for line, fault in _faults(lock.value)]


def _faults(lock: str) -> Iterator[tuple[int, str]]:
    """Yield each line of a lock that pip would refuse, from 1, with what is the matter."""
    requirements = list(lock_lines.logical(lock))
    cut = lock_lines.cut_off(lock)
    for (number, text), (_next, following) in zip(requirements, [*requirements[1:], (0, "")]):
        if text.startswith("--hash") and number != requirements[0][0]:
            continue
        if cut and not following:
            yield number, (
                "the lock ends in the middle of '%s'; have what was cut off back from version control, "
                "or from bin/lock" % cut)
            continue
        try:
            pins(text)
        except ValueError as error:
            if following.startswith("--hash") and "--hash" not in text:
                yield number, "'%s' is cut off from its hashes; end its line with a backslash" % text.split()[0][:80]
            else:
                yield number, str(error)


def _contradictions(
    definition: Mapping[str, Any], locked: Mapping[str, list[Pin]], places: Places
) -> Iterator[tuple[str, str]]:
    version = components.value_at(definition, ("pytorch", "version"))
    if "pytorch.lock" in locked and locked["pytorch.lock"] and isinstance(version, str):
        torch = [pin.version for pin in locked["pytorch.lock"] if canonical(pin.name) == "torch"]
        if not torch:
            yield "pytorch.lock", "does not have torch; add its requirement with its hashes"
        elif version not in {one.partition("+")[0] for one in torch}:
            text = str(components.value_at(definition, ("pytorch", "lock")))
            line = lock_lines.line_of(text, "torch", torch[0])
            # In the release file itself, the place is that of the version.
            where = places.of("pytorch.lock", text, line) if "pytorch.lock" in places.files else ""
            yield "pytorch.version", "is %s, and pytorch.lock has torch==%s%s; correct one of the two" % (
                version, torch[0], where)
    for keys, tag_keys in TAGGED:
        given, tag = (components.value_at(definition, path) for path in (keys, tag_keys))
        tagged = _TAG.match(tag) if isinstance(tag, str) else None
        if isinstance(given, str) and tagged and tagged.group(1) != _numbers(given):
            yield ".".join(tag_keys), "is %s, and %s is %s; correct one of the two" % (tag, ".".join(keys), given)
    yield from _of_wheel(definition, locked)
    yield from _of_conda(definition.get("base"))


def _of_wheel(definition: Mapping[str, Any], locked: Mapping[str, list[Pin]]) -> Iterator[tuple[str, str]]:
    """Compare the NCCL that a release takes from its wheel with the one that is locked."""
    nccl, cuda = (components.value_at(definition, (key,)) for key in ("nccl", "cuda"))
    if not isinstance(nccl, Mapping) or nccl.get("wheel") is not True or "pytorch.lock" not in locked:
        return
    found = [(path, _NCCL.match(canonical(pin.name)), pin.version) for path, lock in locked.items() for pin in lock]
    wheels = [(path, match.group(1), version) for path, match, version in found if match]
    if not wheels:
        yield "nccl.wheel", (
            "asks for the NCCL of PyTorch's wheel, and no lock has nvidia-nccl-cu<N>; add it with its hashes to "
            "pytorch.cuda_lock, or remove wheel")
        return
    path, toolkit, version = wheels[0]
    if version != nccl.get("version"):
        yield "nccl.version", "is %s, and %s has nvidia-nccl-cu%s==%s; correct one of the two" % (
            nccl.get("version"), path, toolkit, version)
    asked = cuda.get("version") if isinstance(cuda, Mapping) else None
    if isinstance(asked, str) and asked.partition(".")[0] != toolkit:
        yield "cuda.version", (
            "is %s, and the NCCL of %s is for CUDA %s; the plugin has to be compiled with a toolkit of that version" % (
                asked, path, toolkit))


def _numbers(version: str) -> str:
    match = _TAG.match(version)
    return match.group(1) if match else version


def _of_conda(base: object) -> Iterator[tuple[str, str]]:
    if not isinstance(base, Mapping) or not isinstance(base.get("specs"), list):
        return
    for spec in base["specs"]:
        asked = _PYTHON.match(spec) if isinstance(spec, str) else None
        if asked and isinstance(base.get("python"), str) and asked.group(1) != base["python"]:
            yield "base.python", "is %s, and base.specs has '%s'; correct one of the two" % (base["python"], spec)
