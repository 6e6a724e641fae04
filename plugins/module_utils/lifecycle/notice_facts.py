# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Collect what users of the previous default have to know about a release. Pure.

The same releases in the same state give the same facts, whenever they are gathered.
"""

from __future__ import annotations

import os
import re
from typing import Any, Mapping, NamedTuple, Sequence

from ..core.lenient_json import mapping, text
from ..core.redaction import (
    MASK,
    is_secret_name,
    without_credentials,
)
from ..core.versions import UP, direction
from ..modulefiles.layout import SYNTAXES
from ..modulefiles.site_system import AUTO, release_syntaxes
from ..release.installed_records import Places
from ..release.states import ReleaseState
from . import notice_diff, thaw_log
from .notice_diff import Side

FORMAT = 1

Problems = Sequence[Mapping[str, str]]


class Release(NamedTuple):
    """One of the two releases that an announcement is about."""

    state: ReleaseState
    resolved: Mapping[str, Any]
    installed: Mapping[str, Any] | None
    """None where its files are gone."""
    problems: Problems | None
    """What is known to be wrong with it; None where its release file was not at hand."""


def notice_facts(incoming: Release, outgoing: Release | None = None, until: str = "") -> dict[str, Any]:
    """Tell what is to be announced, as plain data; an empty ``until`` is what the record of the retirement says.

    ``outgoing`` is null for the first release, which has ``contents``; ``compared`` tells whether the differences are
    known; ``known_problems`` are null where they are not known.
    """
    found: dict[str, Any] = {
        "format": FORMAT, "release": _release(incoming), "outgoing": None, "compared": False, "components": [],
        "flags": [], "packages": [], "files": [], "compatibility": [], "settings": [], "actions": [], "contents": [],
        "known_problems": None if incoming.problems is None else [dict(entry) for entry in incoming.problems],
        "solved_problems": _solved_problems(incoming, outgoing),
    }
    if outgoing is None:
        found["contents"] = _contents(incoming)
        return _without_secrets(found)
    retired = mapping(outgoing.state.retired)
    found["outgoing"] = dict(_release(outgoing), until=until or text(retired.get("until")))
    if outgoing.installed is None or incoming.installed is None:
        return _without_secrets(found)
    before, after = _side(outgoing), _side(incoming)
    interfaces = [mapping(side.installed.get("libraries")) for side in (before, after)]
    found.update(
        compared=True, components=notice_diff.diff_components(before, after),
        flags=notice_diff.diff_flags(before, after), packages=notice_diff.diff_packages(before, after),
        files=notice_diff.diff_files(before, after), settings=notice_diff.diff_settings(before, after),
        compatibility=interface_changes(interfaces[0], interfaces[1]))
    found["actions"] = user_actions(
        found["compatibility"], mapping(after.installed.get("base")),
        {"before": found["outgoing"]["module"], "after": found["release"]["module"]})
    return _without_secrets(found)


def _side(release: Release) -> Side:
    places = Places.of(release.state.prefix, release.resolved)
    return Side(places, mapping(release.installed), mapping(release.resolved.get("module")))


def _release(release: Release) -> dict[str, Any]:
    state = release.state
    module = "%s/%s" % (state.name, state.version) if state.name else state.release
    syntaxes = release_syntaxes(state.root, state.release, AUTO)
    return {
        "name": state.release, "title": text(mapping(release.resolved.get("definition")).get("title")),
        "site": text(release.resolved.get("site")), "module": module, "module_name": state.name or state.release,
        "modulefiles": os.path.join(state.root, "modulefiles"), "standing": _visibility(state),
        "corrections": thaw_log.Records(state.root, state.release).corrections(), "thawed": state.thawed is not None,
        **({} if syntaxes == SYNTAXES else {"syntaxes": list(syntaxes)}),
    }


def _visibility(state: ReleaseState) -> str:
    """Tell how users see a release; ``staged`` where it was never published."""
    if state.is_default:
        return "default"
    for name in ("visible", "hidden", "gone"):
        if any(getattr(state, name).values()):
            return name
    return "gone" if mapping(state.retired).get("state") in ("removing", "removed") else "staged"


def _solved_problems(incoming: Release, outgoing: Release | None) -> list[dict[str, str]]:
    """Return the known problems that only the outgoing release has."""
    if outgoing is None or outgoing.problems is None or incoming.problems is None:
        return []
    left = {entry["problem"] for entry in incoming.problems}
    return [dict(entry) for entry in outgoing.problems if entry["problem"] not in left]


def _contents(release: Release) -> list[dict[str, str]]:
    """Return the parts of a first release, with their versions."""
    installed = mapping(release.installed)
    python = {"key": "python", "name": "Python", "version": text(mapping(installed.get("base")).get("python"))}
    components = _side(release).components
    parts = [python, *(notice_diff.part_summary(key, part) for key, part in components.items())]
    return [part for part in parts if part["version"]]


def _without_secrets(found: dict[str, Any]) -> dict[str, Any]:
    for row in [*found["flags"], *found["settings"]]:
        for key in ("before", "after"):
            row[key] = MASK if row[key] and is_secret_name(row["name"]) else without_credentials(row[key])
    for entry in [*(found["known_problems"] or []), *found["solved_problems"], found["outgoing"] or {}]:
        entry.update(
            {key: without_credentials(value) for key, value in entry.items() if isinstance(value, str)})
    return found


def previous_default(
    release: ReleaseState, releases: Sequence[ReleaseState], publications: Sequence[Mapping[str, Any]],
) -> ReleaseState | None:
    """Return the release whose users a notice about ``release`` is for; None where there was no default before.

    It is the same before ``release`` becomes the default, while it is, and when it no longer is. ``releases`` are all
    of the root, removed ones too, as they were frozen, ``publications`` the journal, oldest first.
    """
    same_module = {state.version: state for state in releases if state.name == release.name}
    before = [
        same_module[entry["previous"]] for entry in publications
        if entry.get("release") == release.release and entry.get("action") == "default"
        and entry.get("version") == release.version and entry.get("previous") in same_module]
    now = next((state for state in same_module.values() if state.is_default), None)
    known = before[-1] if before else None
    if now is None or now.release == release.release:
        return known
    order = [state.release for state in releases]
    followed = release.defaulted_at and order.index(now.release) > order.index(release.release)
    return known if followed else now


TITLES = {
    "python": "Python", "torch": "PyTorch", "cuda": "CUDA", "numpy": "NumPy", "mpi": "MPI", "nccl": "NCCL",
    "libmpi": "MPI library", "libnccl": "NCCL library", "libcudart": "CUDA runtime library",
    "libcudnn": "cuDNN library", "libstdc++": "C++ library", "GLIBCXX": "GLIBCXX (libstdc++)", "GLIBC": "glibc",
}
"""The interfaces, in the order of the notice."""

_PARTS = {"torch": 2, "cuda": 2, "nccl": 2, "numpy": 1}
"""How many parts of a version belong to the interface, where not all of them do."""

_COMPILED = ("python", "torch", "cuda", "numpy", "libcudart", "libcudnn")
_LINKED = ("libmpi", "mpi")


def interface_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the interfaces that differ and are known in both ``libraries`` of :mod:`installed`."""
    known = [key for key in TITLES if key in before and key in after]
    known += sorted(key for key in after if key in before and key not in TITLES)
    rows = [
        {"key": key, "name": TITLES.get(key, key), "before": _interface(key, before[key]),
         "after": _interface(key, after[key])}
        for key in known]
    return [row for row in rows if row["before"] != row["after"]]


def _interface(key: str, value: object) -> str:
    said = text(value)
    if key == "mpi":
        # Which MPI it is, and its first number: MPICH 4.
        return re.sub(r"(\d+)\..*", r"\1", said)
    public, plus, local = said.partition("+")
    return ".".join(public.split(".")[:_PARTS[key]]) + plus + local if key in _PARTS else said


def user_actions(rows: list[dict[str, str]], base: Mapping[str, Any], modules: Mapping[str, str]) -> list[str]:
    """Tell what users have to do, one sentence or two each, in the order of importance."""
    found = {row["key"]: row for row in rows}
    sentences = []
    compiled = [found[key] for key in _COMPILED if key in found and not (key == "libcudart" and "cuda" in found)]
    if compiled:
        sentences.append("Compile C++ and CUDA extensions of your own again, for %s." % _listed(
            ["%s %s" % (row["name"], row["after"]) for row in compiled]))
    linked = next((found[key] for key in _LINKED if key in found), None)
    if linked:
        sentences.append("Link MPI programs of your own again: the %s is %s now, no longer %s." % (
            linked["name"], linked["after"], linked["before"]))
    kind = text(mapping(base).get("kind"))
    if "python" in found or kind == "conda":
        sentences.append(
            "Make your virtual environments anew on top of %s: those made with %s do not find its packages." % (
                modules["after"], modules["before"]))
    elif kind == "python_overlay":
        sentences.append(
            "To move a virtual environment to the new release, load %s and run `extend-venv-activate` on it."
            % modules["after"])
    sentences.append(
        "Install again what you have installed with `pip install --user`, for which every release has its own place.")
    symbols = found.get("GLIBCXX")
    if symbols and direction(symbols["before"], symbols["after"]) == UP:
        sentences.append(
            "Where your programs bring a libstdc++ of their own, from a compiler's module or a conda environment, it "
            "has to know GLIBCXX_%s." % symbols["after"])
    return sentences


def _listed(names: list[str]) -> str:
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)
