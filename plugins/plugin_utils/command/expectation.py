# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Expect of the steps of a rollout how long they take, and which of them are taken over, by the release before."""

from __future__ import annotations

import os
import re
from typing import Any, Mapping, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.lenient_json import mapping, number
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import bundles, components, packages
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition.step_names import (
    of_any_component,
    of_components,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.release.records import last_durations
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.build_cache import origin_of
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.files import step_files
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.records import JobRecord, Stamp

from . import releases
from .places import CommandError
from .releases import Release

BELOW_ALL = ("base", "toolchain", "cuda", "mpi")
"""Keys of a release file that the inputs of any step may have."""

_BESIDE = re.compile("-(fetch|source|wheel)$")
"""How the name of a step ends that fetches or compiles for the one of the name before."""


class Expected(NamedTuple):
    """What the last release that was finished says of this one."""

    release: str
    seconds: Mapping[str, float]
    """of each step that this one will have, too: where it was taken over, of its build"""
    made: Mapping[str, Stamp] = {}
    """how each was made"""
    changed: frozenset[str] = frozenset()
    """those of which this release asks for something else"""


def expected(release: Release) -> Expected | None:
    """Take what is expected from the release that was frozen last, for the steps that this one has; None without one.

    How long each took is by :func:`.records.last_durations`, as for the plan.
    """
    last = last_durations(release.files)
    try:
        found = releases.read(release.files.root, last["release"]) if last else None
    except (CommandError, StackError, OSError):
        found = None
    if found is None:
        return None
    theirs, ours = (mapping(one.resolved.get("definition")) for one in (found, release))
    of_theirs, of_ours = of_components(theirs), of_components(ours)
    alike = [step["name"] for step in found.steps if step["name"] in of_ours or step["name"] not in of_theirs]
    made = {name: _stamp(found, name) for name in alike}
    then, now = _asked(theirs, alike), _asked(ours, alike)
    changed = frozenset(name for name in alike if now[name] != then[name])
    return Expected(
        found.files.release, {name: number(last["seconds"].get(name)) or 0.0 for name in alike},
        {name: stamp for name, stamp in made.items() if stamp is not None}, changed)


def _directory(release: Release) -> str:
    return os.path.join(release.files.prefix, ".torchstack", "steps")


def _stamp(release: Release, step: str) -> Stamp | None:
    try:
        return Stamp.read(step_files(_directory(release), step))
    except (StackError, OSError):
        return None


def _asked(definition: Mapping[str, Any], steps: Sequence[str]) -> dict[str, list[Any]]:
    """Return what a release file asks for that the inputs of each of these steps may have."""
    known, found = of_any_component(definition), {}
    for step in steps:
        name = step if step in known else _BESIDE.sub("", step)
        own: list[Any] = [definition.get(key) for key in BELOW_ALL]
        own += [definition.get(row.key) for row in components.COMPONENTS if name in row.steps]
        own += [entry for entry in bundles.entries(definition, "packages")
                if name == "package-" + packages.canonical(entry["name"])]
        own += [entry for entry in bundles.entries(definition) if name == bundles.STEP + entry["name"]]
        found[step] = own
    return found


def taken_over(release: Release, known: Expected) -> set[str]:
    """Tell which steps that have not ended are, or will be, taken over from what is kept of other releases.

    Of a step that has begun its digest says so. One to come has the inputs that it had in the release before where this
    one asks for the same, and all that it needs has come out the same, or is expected to.
    """
    begun = {step["name"]: _records(release, step["name"]) for step in release.steps}
    caches = [job.cache for job, _stamp in begun.values() if job is not None and job.cache]
    kept = _Kept(known, begun, caches[-1] if caches else "")
    return {name for name in (*known.made, *begun) if not kept.has_ended(name) and kept.has(name)}


Records = Tuple[Optional[JobRecord], Optional[Stamp]]
"""Of a step that was begun; its stamp only where that is of this attempt's inputs."""


def _records(release: Release, step: str) -> Records:
    files = step_files(_directory(release), step)
    try:
        job, stamp = JobRecord.read(files), Stamp.read(files)
    except (StackError, OSError):
        return None, None
    return job, stamp if stamp is not None and (job is None or job.digest == stamp.digest) else None


class _Kept:
    """What is kept of other releases for the steps of one."""

    def __init__(self, known: Expected, begun: Mapping[str, Records], cache: str) -> None:
        self.known = known
        self.begun = begun
        self.cache = cache
        """where this rollout keeps what steps produce; empty where it does not, or none was begun that would say"""
        self._same: dict[str, bool] = {}

    def has_ended(self, name: str) -> bool:
        """Tell whether a step is done."""
        return self.begun.get(name, (None, None))[1] is not None

    def has(self, name: str) -> bool:
        """Tell whether what a step would produce is kept."""
        job = self.begun.get(name, (None, None))[0]
        if name in self.begun:
            return job is not None and bool(job.cache and origin_of(job.cache, job.digest))
        before = self.known.made[name]
        return bool(self.cache and origin_of(self.cache, before.digest)) and self.is_same(name)

    def is_same(self, name: str) -> bool:
        """Tell whether a step comes out as in the release before."""
        before = self.known.made.get(name)
        if before is None:
            return False
        if name not in self._same:
            # Records that are damaged may go in a circle.
            self._same[name] = False
            job, stamp = self.begun.get(name, (None, None))
            if stamp is not None:
                self._same[name] = stamp.result == before.result
            elif name in self.begun:
                self._same[name] = job is not None and (
                    job.result == before.result or (job.digest == before.digest and self.has(name)))
            else:
                self._same[name] = name not in self.known.changed and all(map(self.is_same, before.needs))
        return self._same[name]
