# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The facts of an announcement: what users of the outgoing default have to know about a release. Pure.

The same releases in the same state give the same facts, whenever they are gathered: there is no time of their own in
them.
"""

from __future__ import annotations

import os
from typing import Any, Mapping, NamedTuple, Sequence

from ..core.lenient_json import mapping, text
from ..core.redaction import (
    MASK,
    is_secret_name,
    without_credentials,
)
from ..release.installed_records import Places
from ..release.states import ReleaseState
from . import notice_compatibility
from . import notice_diff as notice_differences
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


def facts(incoming: Release, outgoing: Release | None = None, until: str = "") -> dict[str, Any]:
    """What is to be announced.

    Args:
        incoming: the release.
        outgoing: the default before it; None for the first one.
        until: until when the outgoing one stays, in words; empty for what the record of its retirement says.

    Returns:
        plain data: ``format``, ``release``, ``outgoing`` (null for the first release), ``compared`` (whether the
        differences are known), ``components``, ``flags``, ``packages``, ``compatibility``, ``settings``, ``actions``,
        ``known_problems`` (null where they are not known), ``solved_problems`` and ``contents`` (of a first release).
    """
    found: dict[str, Any] = {
        "format": FORMAT, "release": _release(incoming), "outgoing": None, "compared": False, "components": [],
        "flags": [], "packages": [], "compatibility": [], "settings": [], "actions": [], "contents": [],
        "known_problems": None if incoming.problems is None else [dict(entry) for entry in incoming.problems],
        "solved_problems": _solved(incoming, outgoing),
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
        compared=True,
        components=notice_differences.components(before, after),
        flags=notice_differences.flags(before, after),
        packages=notice_differences.packages(before, after),
        settings=notice_differences.settings(before, after),
        compatibility=notice_compatibility.changes(interfaces[0], interfaces[1]),
    )
    found["actions"] = notice_compatibility.actions(
        found["compatibility"], mapping(after.installed.get("base")),
        {"before": found["outgoing"]["module"], "after": found["release"]["module"]},
    )
    return _without_secrets(found)


def _side(release: Release) -> Side:
    places = Places.of(release.state.prefix, release.resolved)
    return Side(places, mapping(release.installed), mapping(release.resolved.get("module")))


def _release(release: Release) -> dict[str, str]:
    state = release.state
    module = "%s/%s" % (state.name, state.version) if state.name else state.release
    return {
        "name": state.release, "title": text(mapping(release.resolved.get("definition")).get("title")),
        "site": text(release.resolved.get("site")), "module": module, "module_name": state.name or state.release,
        "modulefiles": os.path.join(state.root, "modulefiles"), "standing": _standing(state),
    }


def _standing(state: ReleaseState) -> str:
    """What users see of a release: ``default``, ``visible``, ``hidden``, ``gone``, or nothing yet (``staged``)."""
    if state.is_default:
        return "default"
    for name in ("visible", "hidden", "gone"):
        if any(getattr(state, name).values()):
            return name
    return "gone" if mapping(state.retired).get("state") in ("removing", "removed") else "staged"


def _solved(incoming: Release, outgoing: Release | None) -> list[dict[str, str]]:
    """The known problems that only the outgoing release has."""
    if outgoing is None or outgoing.problems is None or incoming.problems is None:
        return []
    left = {entry["problem"] for entry in incoming.problems}
    return [dict(entry) for entry in outgoing.problems if entry["problem"] not in left]


def _contents(release: Release) -> list[dict[str, str]]:
    """The parts of a first release, with their versions."""
    installed = mapping(release.installed)
    python = {"key": "python", "name": "Python", "version": text(mapping(installed.get("base")).get("python"))}
    components = _side(release).components
    parts = [python, *(notice_differences.described(key, part) for key, part in components.items())]
    return [part for part in parts if part["version"]]


def _without_secrets(found: dict[str, Any]) -> dict[str, Any]:
    for row in [*found["flags"], *found["settings"]]:
        for key in ("before", "after"):
            row[key] = MASK if row[key] and is_secret_name(row["name"]) else without_credentials(row[key])
    for entry in [*(found["known_problems"] or []), *found["solved_problems"], found["outgoing"] or {}]:
        entry.update({key: without_credentials(value) for key, value in entry.items()})
    return found
