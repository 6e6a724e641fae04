# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Freeze a thawed release again, or end a thaw that changed nothing."""

from __future__ import annotations

import os
from typing import Any, Mapping, Sequence

from ..core.clock import now
from ..core.errors import StackError
from ..core.files import (
    write_json,
)
from ..core.text import shortly
from . import (
    root_lock,
    thaw_bytecode,
    thaw_difference,
    thaw_files,
    thaw_log,
    thaw_paths,
)
from .thaw_paths import Named
from .thaw_release import ABANDONED, MAX_LISTED, Thaw, thaw_result


def refreeze(thaw: Thaw, apply: bool) -> dict[str, Any]:
    """Freeze the release again, or find that nothing was changed."""
    if thaw.open is None:
        if apply:
            thaw.stage.sweep()
        return thaw_result(thaw, False, open=False)
    record, stage, several = thaw.open, thaw.stage, thaw.named
    missing = thaw.misplaced()
    if missing:
        raise StackError(
            "%s is not as it was sent." % shortly(sorted(file["path"] for file in missing)), "thaw_files",
            "Run the playbook again: it puts the files into place first.", stage.prefix)
    found = thaw.compare(False)
    left = thaw.left_writable(found)
    restored = [path for path, _mode in left]
    _refuse_unexplained(thaw, found, restored)
    before = thaw_difference.read_entries(stage.before, several)
    abandon = thaw.request.state == ABANDONED
    if not apply or abandon:
        found = thaw.compare(True)
        _refuse_unexplained(thaw, found, restored)
    bytecode = thaw_bytecode.compile_outdated(stage, several, before, thaw.request.python, apply and not abandon)
    planned = _planned_changes(found, several, bytecode, before)
    if abandon and planned:
        raise StackError(
            "%d paths of release %s were changed since it was thawed: %s." % (
                len(planned), thaw.request.release, shortly([entry["path"] for entry in planned])),
            "abandoned", "Bring them back as they were, or freeze the release again with thaw_state=refrozen.",
            stage.prefix)
    if not apply:
        return _closed_result(thaw, planned, record["manifest"])
    thaw.records.announce(record)
    thaw_files.restore_modes(stage, left)
    if not abandon:
        _apply_consequences(thaw, bytecode, before)
    thaw_files.freeze_again(stage, several)
    if abandon:
        _restore_modes(thaw)
    result = thaw.record(lambda seen: _refuse_unexplained(thaw, seen, ()))
    difference = thaw_difference.compare_entries(before, thaw_difference.read_entries(thaw.manifest_path, several))
    with root_lock.held(thaw.request.root):
        _record_freeze(thaw, result)
        thaw.records.close(
            record, thaw_log.ABANDONED if abandon else thaw_log.REFROZEN, difference=difference,
            manifest={"before": record["manifest"], "after": result["digest"]})
    stage.sweep()
    return _closed_result(thaw, difference, result["digest"])


def _refuse_unexplained(thaw: Thaw, found: Mapping[str, Any], restored: Sequence[str]) -> None:
    outside = thaw_difference.unexplained_paths(found, thaw.named, restored)
    if outside:
        raise thaw_difference.unexplained_error(outside, thaw.stage.prefix, True)


def _planned_changes(
    found: Mapping[str, Any], several: Sequence[Named], bytecode: thaw_bytecode.Bytecode, before: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Tell what will differ once the paths are frozen again, which gives them their modes back."""
    changes = {path: thaw_difference.ADDED for path in found["added"]}
    changes.update((path, thaw_difference.REMOVED) for path in found["removed"])
    for entry in found["differing"]:
        if entry["kind"] != "mode":
            changes[entry["path"]] = thaw_difference.CHANGED
    for path in bytecode.compiled:
        changes[path] = thaw_difference.CHANGED if path in before else thaw_difference.ADDED
    changes.update((path, thaw_difference.REMOVED) for path in bytecode.removed)
    return [{"path": path, "change": change, "before": None, "after": None} for path, change in sorted(changes.items())
            if thaw_paths.explains(several, path)]


def _apply_consequences(thaw: Thaw, bytecode: thaw_bytecode.Bytecode, before: Mapping[str, Any]) -> None:
    """Bring what follows from the fix into the release: bytecode and bill of materials."""
    stage = thaw.stage
    for path, compiled in sorted(bytecode.compiled.items()):
        stage.place(compiled, path, 0o444)
    for path in bytecode.removed:
        stage.remove(path)
    for path in thaw_paths.own_directories(thaw.named):
        # One that was missing is new; of the others the manifest says what they are.
        full = os.path.join(stage.prefix, path)
        if os.path.basename(path) == thaw_paths.CACHE and path not in before and os.path.isdir(full):
            os.chmod(full, 0o555)
    sbom = before.get(thaw_paths.SBOM)
    if sbom is not None and thaw_files.digest_of(stage.sbom) not in ("", sbom.sha256):
        stage.place(stage.sbom, thaw_paths.SBOM, sbom.mode)


def _restore_modes(thaw: Thaw) -> None:
    """Give each path its mode of before again, in a release in which nothing was changed."""
    found = thaw.compare(False)
    thaw_files.restore_modes(thaw.stage, [
        (entry["path"], int(entry["from"], 8)) for entry in found["differing"]
        if entry["kind"] == "mode" and thaw_paths.explains(thaw.named, entry["path"])])


def _record_freeze(thaw: Thaw, result: Mapping[str, Any]) -> None:
    """Update the record of the freeze once for each thaw; only one that changed something counts."""
    frozen, record = dict(thaw.state.frozen or {}), thaw.open or {}
    if frozen.get("last_thaw") == record["thaw"]:
        return
    counts = {"digest": result["digest"], "files": result["counts"]["files"], "bytes": result["bytes"]}
    if (frozen.get("manifest") or {}).get("digest") != result["digest"]:
        frozen["thawed"] = frozen.get("thawed", 0) + 1
    frozen.update(manifest=counts, last_thaw=record["thaw"], refrozen_at=now())
    thaw.state = thaw.state._replace(frozen=frozen)
    write_json(thaw.records.frozen_path, frozen)


def _closed_result(thaw: Thaw, difference: Sequence[Mapping[str, Any]], digest: str) -> dict[str, Any]:
    lines: dict[str, list[str]] = {"before": [], "after": []}
    for entry in difference:
        for side, absent in (("before", thaw_difference.ADDED), ("after", thaw_difference.REMOVED)):
            if entry["change"] != absent:
                facts = entry[side] or {}
                said = [str(facts[key]) for key in ("mode", "sha256", "target") if key in facts]
                unknown = ["(other content)"] if side == "after" else []
                lines[side].append(" ".join([entry["path"], *(said or unknown)]))
    return thaw_result(
        thaw, True, open=False, difference=list(difference[:MAX_LISTED]), difference_total=len(difference),
        digest=digest,
        objects=_changed_objects(thaw, difference),
        diff={side: "".join(line + "\n" for line in several) for side, several in lines.items()}, record=thaw.open)


def _changed_objects(thaw: Thaw, difference: Sequence[Mapping[str, Any]]) -> list[str]:
    """List programs and libraries that were changed, whose linking is not verified again by freezing them."""
    found = []
    for entry in difference:
        path = os.path.join(thaw.stage.prefix, entry["path"])
        if entry["change"] != thaw_difference.REMOVED and os.path.isfile(path) and not os.path.islink(path):
            with open(path, "rb") as stream:
                if stream.read(4) == b"\x7fELF":
                    found.append(entry["path"])
    return found[:MAX_LISTED]
