# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Say what made a step be built, by comparing its recorded inputs with those of another release."""

from __future__ import annotations

import difflib
from typing import Any, Mapping

from ansible_collections.hpcml.torchstack.plugins.module_utils.core.lenient_json import mapping, text
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition.recorded import changed_keys
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.files import StepFiles
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.json_record import read_record
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.needs import took_over
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.own_place import place_of, placeless
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.records import Stamp

from . import releases
from .places import CommandError
from .progress import files_of
from .releases import Release

MOST_LINES = 20
"""Of a difference between two scripts."""


def inputs(release: Release, files: StepFiles) -> dict[str, Any]:
    """Read what the digest of a step was made of, as any release has it. Raises CommandError: there is none."""
    record = mapping(read_record(files.inputs))
    if not record:
        raise CommandError("Step %s of release %s has no record of its inputs, %s." % (
            files.name, release.files.release, files.inputs))
    place = place_of("%s/.torchstack/steps" % release.files.prefix)
    # What a step was made on, behind "on", is a run of its own in each release.
    needs = {name: text(made).partition(" on ")[0] for name, made in mapping(record.get("needs")).items()}
    return {**mapping(placeless(record.get("facts"), place)), "needs": needs}


def other_release(release: Release, step: str) -> Release | None:
    """Find the release that was frozen last before this one, and has the step."""
    found, _broken = releases.read_all(release.files.root)
    own = str(release.facts["release"]["frozen_at"] or "9")
    before = [one for one in found if one.files.release != release.files.release
              and "" < str(one.facts["release"]["frozen_at"]) < own and any(row["name"] == step for row in one.steps)]
    return max(before, key=lambda one: str(one.facts["release"]["frozen_at"]), default=None)


def explain(release: Release, step: str, other: Release | None) -> dict[str, Any]:
    """Compare a step with that of another release: ``sentences``, and the ``changed`` keys of its inputs."""
    files = files_of(release, step)
    stamp = Stamp.read(files)
    now = inputs(release, files)
    found: dict[str, Any] = {
        "release": release.files.release, "step": step, "with": other.files.release if other else None, "changed": [],
        "attempts": stamp.attempt if stamp else None}
    if stamp is not None and stamp.taken_over:
        return dict(found, sentences=["Step %s was not built: %s." % (step, took_over(stamp.taken_over))])
    again = []
    if stamp is not None and stamp.attempt > 1:
        again = ["This was attempt %d; the ones before are in its log." % stamp.attempt]
    if other is None:
        return dict(found, sentences=[
            "Step %s was built as no earlier release below %s has it." % (step, release.files.root), *again])
    before = inputs(other, files_of(other, step))
    changed = sorted(changed_keys(before, now))
    sentences = [line for key in changed for line in _sentences(key, before, now)]
    if not changed:
        sentences = ["Step %s has the same inputs as in release %s: it was built as nothing could be taken over from "
                     "there (see torchstack_cache)." % (step, other.files.release)]
    else:
        sentences.insert(0, "Step %s was built, as its inputs differ from those in release %s:" % (
            step, other.files.release))
    return dict(found, changed=changed, sentences=sentences + again)


def _sentences(key: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Say how one input differs."""
    was, will_be = _value(before, key), _value(now, key)
    if key.startswith("needs."):
        return ["  It is built on step %s, which is another one: torchstack why %s" % (key[6:], key[6:])]
    if key == "script":
        lines = list(difflib.unified_diff(text(was).splitlines(), text(will_be).splitlines(), lineterm="", n=0))[2:]
        lines = [line for line in lines if not line.startswith("@@")]
        more = ["    and %d more lines" % (len(lines) - MOST_LINES)] if len(lines) > MOST_LINES else []
        return ["  Its script:", *("    " + line for line in lines[:MOST_LINES]), *more]
    return ["  %s: %s, before %s" % (key, _short(will_be), _short(was))]


def _value(found: Any, key: str) -> Any:
    if isinstance(found, Mapping):
        for name in found:
            if key == name or key.startswith("%s." % name):
                return found[name] if key == name else _value(found[name], key[len(name) + 1:])
    return None


def _short(value: object) -> str:
    said = "none" if value is None else str(value)
    return said if len(said) <= 80 else said[:77] + "..."
