# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Thaw named paths of a frozen release for a hot fix.

Every step is found out from what is on disk, so a run that was killed is completed by the next one. The order when a
thaw is opened: the manifest is kept, the thaw is recorded (``thawed.json``, then the journal), the paths become
writable. When it is closed: bytecode, bill of materials, permissions, manifest, record of the freeze, journal, and last
``thawed.json`` goes. While that file is there, the release is open.
"""

from __future__ import annotations

import os
import stat
from typing import Any, Mapping, Sequence

from ..core.errors import StackError
from ..core.files import (
    readable_by_all,
    write_atomic,
)
from . import (
    root_lock,
    thaw_difference,
    thaw_files,
    thaw_log,
    thaw_paths,
)
from .thaw_close import refreeze
from .thaw_paths import Named
from .thaw_release import ABANDONED, MAX_LISTED, OPEN, REFROZEN, Request, Thaw, thaw_result, thawable_release

STATES = (OPEN, REFROZEN, ABANDONED)


def carry_out(request: Request, apply: bool) -> dict[str, Any]:
    """Bring a release into the state that is asked for.

    Raises StackError: that cannot be; what was done stays, and the next run goes on.
    """
    with readable_by_all(), thaw_files.translate_errors(request.state, os.path.join(request.root, request.release)):
        thaw = Thaw(request)
        return _open_thaw(thaw, apply) if request.state == OPEN else refreeze(thaw, apply)


def _open_thaw(thaw: Thaw, apply: bool) -> dict[str, Any]:
    """Make the paths writable, and put the files into place that are there."""
    request, stage = thaw.request, thaw.stage
    asked_for = [path for path in map(thaw_paths.normalise, request.paths) if not thaw_paths.covers(thaw.named, path)]
    new = thaw_paths.named_paths(stage.prefix, asked_for)
    thaw.named = thaw_paths.without_nested([*thaw.named, *new])
    if not thaw.named:
        raise StackError(
            "Nothing is named that is to be thawed.", thaw_paths.STEP, "Name paths of the release in thaw_paths.")
    misplaced = thaw.misplaced()
    if not thaw.open and request.only_for_files and not misplaced:
        return thaw_result(thaw, False, open=False)
    if new and not request.reason.strip():
        raise StackError("No reason is given.", "thaw_reason", "Say why in thaw_reason: it goes into the journal.")
    found = thaw.compare(False)
    left = thaw.left_writable(found)
    if not thaw.open:
        _refuse_drift(thaw, found, left)
    begun = not thaw.open
    record = _thaw_record(thaw, new, request.reason, found)
    if apply:
        stage.make()
        if new:
            if begun:
                _keep_manifest(thaw)
            with root_lock.held(request.root):
                thawable_release(request.root, request.release)
                thaw.records.begin(record)
        thaw.open = record
        thaw.records.announce(record)
        thaw_files.restore_modes(stage, left)
    changed = thaw_files.thaw(stage, thaw.named, apply)
    ready = [file for file in misplaced if os.path.lexists(stage.sent(file["sha256"]))]
    if apply:
        for file in ready:
            _place_file(thaw, file)
    put = ready if apply else misplaced
    return thaw_result(
        thaw, bool(new or left or changed or put), thawed=changed[:MAX_LISTED],
        put=sorted(file["path"] for file in put),
        wanted=[dict(file) for file in misplaced if file not in ready],
        differed=record["differed"][:MAX_LISTED], diff=_opening_diff(new, changed, put, stage.prefix), record=record)


def _refuse_drift(thaw: Thaw, found: Mapping[str, Any], left: Sequence[tuple[str, int]]) -> None:
    recorded = ((thaw.state.frozen or {}).get("manifest") or {}).get("digest")
    if recorded != found["digest"]:
        raise StackError(
            "%s is not the manifest that the freeze of release %s recorded." % (
                thaw.manifest_path, thaw.request.release),
            "compare", "See with playbooks/drift.yml what happened to the release first.", thaw.manifest_path)
    outside = thaw_difference.unexplained_paths(found, thaw.named, [path for path, _mode in left])
    if outside:
        raise thaw_difference.unexplained_error(outside, thaw.stage.prefix, False)


def _thaw_record(thaw: Thaw, new: Sequence[Named], reason: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of the thaw with what is asked for now."""
    record = dict(thaw.open) if thaw.open else {
        "thaw": thaw.records.next_number(), "manifest": found["digest"], "asked": [],
        "differed": [path for path in thaw_difference.differing_paths(found) if thaw_paths.explains(thaw.named, path)]}
    if new:
        said = thaw_log.requester(reason)
        record["asked"] = [*record["asked"], said]
        record["paths"] = [one.path for one in thaw.named]
        record["directories"] = [one.path for one in thaw.named if one.directory]
        for key, value in said.items():
            record.setdefault(key, value)
    return record


def _keep_manifest(thaw: Thaw) -> None:
    """Keep what the release consisted of before: the manifest in it is replaced when it is frozen again."""
    with open(thaw.manifest_path, "rb") as stream:
        write_atomic(thaw.stage.before, stream.read())


def _place_file(thaw: Thaw, file: Mapping[str, Any]) -> None:
    sent, path = thaw.stage.sent(file["sha256"]), thaw_paths.normalise(file["path"])
    if thaw_files.digest_of(sent) != file["sha256"]:
        raise StackError("%s did not arrive as it was sent." % path, "thaw_files", "Run this again.", sent)
    found = thaw_paths.on_disk(thaw.stage.prefix, path)
    before = stat.S_IMODE(found.st_mode) if found is not None else 0o644
    mode = int(file["mode"], 8) if file.get("mode") else before
    thaw.stage.place(sent, path, mode | stat.S_IWUSR)


def _opening_diff(
    new: Sequence[Named], changed: Sequence[str], put: Sequence[Mapping[str, Any]], prefix: str
) -> dict[str, str]:
    before, after = [], []
    for path in sorted({*(one.path for one in new), *changed}):
        before.append("frozen   %s" % path)
        after.append("writable %s" % path)
    for file in put:
        there = thaw_files.digest_of(os.path.join(prefix, file["path"]))
        before.append("sha256 %s %s" % (there or "(none)", file["path"]))
        after.append("sha256 %s %s" % (file["sha256"], file["path"]))
    return {"before": "".join(line + "\n" for line in before), "after": "".join(line + "\n" for line in after)}
