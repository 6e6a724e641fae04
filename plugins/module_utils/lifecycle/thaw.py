# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A hot fix on a frozen release: named paths become writable, and the release is frozen again with a new manifest.

Every step is found out from what is on disk, so a run that was killed is completed by the next one. The order when a
thaw is opened: the manifest is kept, the thaw is recorded (``thawed.json``, then the journal), the paths become
writable. When it is closed: bytecode, bill of materials, permissions, manifest, record of the freeze, journal, and last
``thawed.json`` goes. While that file is there, the release is open.
"""

from __future__ import annotations

import os
import stat
import sys
from typing import Any, Mapping, NamedTuple, Sequence

from ..core.clock import now
from ..core.errors import StackError
from ..core.files import (
    readable_by_all,
    write_atomic,
    write_json,
)
from ..core.text import shortly
from ..release.records import subject_of
from ..release.states import REMOVED, ReleaseState, one_release
from ..trees import manifest
from ..trees.manifest_file import Record
from . import (
    thaw_bytecode,
    thaw_difference,
    thaw_files,
    thaw_paths,
)
from . import thaw_log as thaw_records
from .thaw_paths import Named

OPEN, REFROZEN, ABANDONED = "open", "refrozen", "abandoned"
STATES = (OPEN, REFROZEN, ABANDONED)
LISTED = 100
"""How many differences a result lists; the journal has all."""


class Request(NamedTuple):
    """What is asked for."""

    root: str
    release: str
    state: str
    paths: Sequence[str] = ()
    reason: str = ""
    files: Sequence[Mapping[str, Any]] = ()
    """Files to put into place: ``path``, ``sha256`` and, for other permissions than before, ``mode``."""
    only_for_files: bool = False
    """Open nothing where each of the files is in place already."""
    python: str = ""


class _Thaw:
    """One release, and its thaw as far as it is open."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.state = _release(request.root, request.release)
        self.stage = thaw_files.Stage(request.root, request.release)
        self.records = thaw_records.Records(request.root, request.release)
        self.open: dict[str, Any] | None = self.state.thawed
        self.named = _named(self.open) if self.open else []

    @property
    def manifest_path(self) -> str:
        """The manifest of the release."""
        return os.path.join(self.stage.prefix, thaw_paths.MANIFEST)

    def look(self, content: bool) -> dict[str, Any]:
        """Compare the release with the manifest of before the thaw."""
        return manifest.compare(self._request(self.stage.before if self.open else self.manifest_path, content))

    def record(self, judge: Any) -> dict[str, Any]:
        """Write the manifest anew, if the judge lets it."""
        before = Record(self.stage.before)
        before.close()
        request = self._request(self.manifest_path, True)._replace(exclude=tuple(before.header.exclude))
        return manifest.record(request, True, judge)

    def _request(self, record: str, content: bool) -> manifest.Request:
        return manifest.Request(self.stage.prefix, self.stage.root, record, content, limit=sys.maxsize)

    def left_writable(self, found: Mapping[str, Any]) -> list[tuple[str, int]]:
        """Directories of which only the mode differs because a run died: with the mode that they have to get back."""
        own = {path for path in thaw_paths.own_directories(self.named) if not thaw_paths.covers(self.named, path)}
        return [(entry["path"], int(entry["from"], 8)) for entry in found["differing"]
                if entry["kind"] == "mode" and entry["path"] in own]

    def misplaced(self) -> list[Mapping[str, Any]]:
        """The files that are not in place yet.

        Raises:
            StackError: one of them would go elsewhere than into what is thawed.
        """
        for file in self.request.files:
            path = thaw_paths.well_formed(file["path"])
            if not thaw_paths.covers(self.named, path):
                raise StackError(
                    "%s is not among what is thawed." % path, "thaw_files", "Name it, or its directory, in thaw_paths.",
                    path)
            found = thaw_paths.on_disk(self.stage.prefix, path)
            if found is not None and stat.S_ISDIR(found.st_mode):
                raise StackError("%s is a directory." % path, "thaw_files", "Name the file in it.", path)
        return [file for file in self.request.files
                if thaw_files.digest_of(os.path.join(self.stage.prefix, file["path"])) != file["sha256"]]


def carry_out(request: Request, apply: bool) -> dict[str, Any]:
    """Bring a release into the state that is asked for.

    Args:
        request: which release, and what is to become of it.
        apply: do it; else only tell.

    Returns:
        the module's result.

    Raises:
        StackError: the release cannot be thawed, or not be frozen again; what was done stays, and the next run goes on.
    """
    with readable_by_all(), thaw_files.refusals(request.state, os.path.join(request.root, request.release)):
        thaw = _Thaw(request)
        return _open(thaw, apply) if request.state == OPEN else _close(thaw, apply)


def _release(root: str, release: str) -> ReleaseState:
    state = one_release(root, release)
    if state.retired and state.retired.get("state") in REMOVED:
        raise StackError(
            "Release %s is being removed." % release, "find the releases", "Thaw one that is kept.", state.prefix)
    owner = os.lstat(state.prefix).st_uid
    if owner != os.geteuid():
        raise StackError(
            "Release %s belongs to another account (uid %d) than this one (uid %d)." % (release, owner, os.geteuid()),
            "find the releases", "Run this as the account that rolled it out.", state.prefix)
    return state


def _named(record: Mapping[str, Any]) -> list[Named]:
    return [Named(path, path in record["directories"]) for path in record["paths"]]


def _open(thaw: _Thaw, apply: bool) -> dict[str, Any]:
    """Make the paths writable, and put the files into place that are there."""
    request, stage = thaw.request, thaw.stage
    asked_for = [path for path in map(thaw_paths.well_formed, request.paths) if not thaw_paths.covers(thaw.named, path)]
    new = thaw_paths.named(stage.prefix, asked_for)
    thaw.named = thaw_paths.together([*thaw.named, *new])
    if not thaw.named:
        raise StackError(
            "Nothing is named that is to be thawed.", thaw_paths.STEP, "Name paths of the release in thaw_paths.")
    misplaced = thaw.misplaced()
    if not thaw.open and request.only_for_files and not misplaced:
        return _result(thaw, False, open=False)
    if new and not request.reason.strip():
        raise StackError("No reason is given.", "thaw_reason", "Say why in thaw_reason: it goes into the journal.")
    found = thaw.look(False)
    left = thaw.left_writable(found)
    if not thaw.open:
        _refuse_drift(thaw, found, left)
    begun = not thaw.open
    record = _record(thaw, new, request.reason, found)
    if apply:
        stage.make()
        if new:
            if begun:
                _keep_manifest(thaw)
            thaw.records.begin(record)
        thaw.open = record
        thaw.records.announce(record)
        thaw_files.restore_modes(stage, left)
    changed = thaw_files.thaw(stage, thaw.named, apply)
    ready = [file for file in misplaced if os.path.lexists(stage.sent(file["sha256"]))]
    if apply:
        for file in ready:
            _put(thaw, file)
    put = ready if apply else misplaced
    return _result(
        thaw, bool(new or left or changed or put), thawed=changed[:LISTED], put=sorted(file["path"] for file in put),
        wanted=[dict(file) for file in misplaced if file not in ready],
        differed=record["differed"][:LISTED], diff=_opening(new, changed, put, stage.prefix), record=record)


def _refuse_drift(thaw: _Thaw, found: Mapping[str, Any], left: Sequence[tuple[str, int]]) -> None:
    recorded = ((thaw.state.frozen or {}).get("manifest") or {}).get("digest")
    if recorded != found["digest"]:
        raise StackError(
            "%s is not the manifest that the freeze of release %s recorded." % (
                thaw.manifest_path, thaw.request.release),
            "compare", "See with playbooks/drift.yml what happened to the release first.", thaw.manifest_path)
    outside = thaw_difference.outside(found, thaw.named, [path for path, _mode in left])
    if outside:
        raise thaw_difference.refuse(outside, thaw.stage.prefix, False)


def _record(thaw: _Thaw, new: Sequence[Named], reason: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """The record of the thaw with what is asked for now."""
    record = dict(thaw.open) if thaw.open else {
        "thaw": thaw.records.next_number(), "manifest": found["digest"], "asked": [],
        "differed": [path for path in thaw_difference.differing(found) if thaw_paths.explains(thaw.named, path)],
    }
    if new:
        said = thaw_records.asked(reason)
        record["asked"] = [*record["asked"], said]
        record["paths"] = [one.path for one in thaw.named]
        record["directories"] = [one.path for one in thaw.named if one.directory]
        for key, value in said.items():
            record.setdefault(key, value)
    return record


def _keep_manifest(thaw: _Thaw) -> None:
    """Keep what the release consisted of before: the manifest in it is replaced when it is frozen again."""
    with open(thaw.manifest_path, "rb") as stream:
        write_atomic(thaw.stage.before, stream.read())


def _put(thaw: _Thaw, file: Mapping[str, Any]) -> None:
    sent, path = thaw.stage.sent(file["sha256"]), thaw_paths.well_formed(file["path"])
    if thaw_files.digest_of(sent) != file["sha256"]:
        raise StackError("%s did not arrive as it was sent." % path, "thaw_files", "Run this again.", sent)
    found = thaw_paths.on_disk(thaw.stage.prefix, path)
    before = stat.S_IMODE(found.st_mode) if found is not None else 0o644
    mode = int(file["mode"], 8) if file.get("mode") else before
    thaw.stage.place(sent, path, mode | stat.S_IWUSR)


def _opening(
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


def _close(thaw: _Thaw, apply: bool) -> dict[str, Any]:
    """Freeze the release again, or find that nothing was changed."""
    if thaw.open is None:
        if apply:
            thaw.stage.sweep()
        return _result(thaw, False, open=False)
    record, stage, several = thaw.open, thaw.stage, thaw.named
    missing = thaw.misplaced()
    if missing:
        raise StackError(
            "%s is not as it was sent." % shortly(sorted(file["path"] for file in missing)), "thaw_files",
            "Run the playbook again: it puts the files into place first.", stage.prefix)
    found = thaw.look(False)
    left = thaw.left_writable(found)
    restored = [path for path, _mode in left]
    _refuse_outside(thaw, found, restored)
    before = thaw_difference.recorded(stage.before, several)
    abandon = thaw.request.state == ABANDONED
    if not apply or abandon:
        found = thaw.look(True)
        _refuse_outside(thaw, found, restored)
    bytecode = thaw_bytecode.outdated(stage, several, before, thaw.request.python, apply and not abandon)
    planned = _planned(found, several, bytecode, before)
    if abandon and planned:
        raise StackError(
            "%d paths of release %s were changed since it was thawed: %s." % (
                len(planned), thaw.request.release, shortly([entry["path"] for entry in planned])),
            "abandoned", "Bring them back as they were, or freeze the release again with thaw_state=refrozen.",
            stage.prefix)
    if not apply:
        return _closed(thaw, planned, record["manifest"])
    thaw.records.announce(record)
    thaw_files.restore_modes(stage, left)
    if not abandon:
        _complete(thaw, bytecode, before)
    thaw_files.freeze_again(stage, several)
    if abandon:
        _give_modes_back(thaw)
    result = thaw.record(lambda seen: _refuse_outside(thaw, seen, ()))
    difference = thaw_difference.between(before, thaw_difference.recorded(thaw.manifest_path, several))
    _record_freeze(thaw, result)
    thaw.records.close(
        record, thaw_records.ABANDONED if abandon else thaw_records.REFROZEN, difference=difference,
        manifest={"before": record["manifest"], "after": result["digest"]})
    stage.sweep()
    return _closed(thaw, difference, result["digest"])


def _refuse_outside(thaw: _Thaw, found: Mapping[str, Any], restored: Sequence[str]) -> None:
    outside = thaw_difference.outside(found, thaw.named, restored)
    if outside:
        raise thaw_difference.refuse(outside, thaw.stage.prefix, True)


def _planned(
    found: Mapping[str, Any], several: Sequence[Named], bytecode: thaw_bytecode.Bytecode, before: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """What will differ once the paths are frozen again, which gives them their modes back."""
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


def _complete(thaw: _Thaw, bytecode: thaw_bytecode.Bytecode, before: Mapping[str, Any]) -> None:
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


def _give_modes_back(thaw: _Thaw) -> None:
    """Of a release in which nothing was changed, each path has the mode of before again."""
    found = thaw.look(False)
    thaw_files.restore_modes(thaw.stage, [
        (entry["path"], int(entry["from"], 8)) for entry in found["differing"]
        if entry["kind"] == "mode" and thaw_paths.explains(thaw.named, entry["path"])])


def _record_freeze(thaw: _Thaw, result: Mapping[str, Any]) -> None:
    """Bring the record of the freeze up to date, once for each thaw; only one that changed something counts."""
    frozen, record = dict(thaw.state.frozen or {}), thaw.open or {}
    if frozen.get("last_thaw") == record["thaw"]:
        return
    counts = {"digest": result["digest"], "files": result["counts"]["files"], "bytes": result["bytes"]}
    if (frozen.get("manifest") or {}).get("digest") != result["digest"]:
        frozen["thawed"] = frozen.get("thawed", 0) + 1
    frozen.update(manifest=counts, last_thaw=record["thaw"], refrozen_at=now())
    thaw.state = thaw.state._replace(frozen=frozen)
    write_json(thaw.records.frozen_path, frozen)


def _closed(thaw: _Thaw, difference: Sequence[Mapping[str, Any]], digest: str) -> dict[str, Any]:
    lines: dict[str, list[str]] = {"before": [], "after": []}
    for entry in difference:
        for side, absent in (("before", thaw_difference.ADDED), ("after", thaw_difference.REMOVED)):
            if entry["change"] != absent:
                facts = entry[side] or {}
                said = [str(facts[key]) for key in ("mode", "sha256", "target") if key in facts]
                unknown = ["(other content)"] if side == "after" else []
                lines[side].append(" ".join([entry["path"], *(said or unknown)]))
    return _result(
        thaw, True, open=False, difference=list(difference[:LISTED]), difference_total=len(difference), digest=digest,
        objects=_objects(thaw, difference),
        diff={side: "".join(line + "\n" for line in several) for side, several in lines.items()}, record=thaw.open)


def _objects(thaw: _Thaw, difference: Sequence[Mapping[str, Any]]) -> list[str]:
    """Programs and libraries among what was changed: how they were linked is not verified again by freezing them."""
    found = []
    for entry in difference:
        path = os.path.join(thaw.stage.prefix, entry["path"])
        if entry["change"] != thaw_difference.REMOVED and os.path.isfile(path) and not os.path.islink(path):
            with open(path, "rb") as stream:
                if stream.read(4) == b"\x7fELF":
                    found.append(entry["path"])
    return found[:LISTED]


def _result(thaw: _Thaw, changed: bool, **more: Any) -> dict[str, Any]:
    record = more.pop("record", None) or thaw.open or {}
    result = {
        "changed": changed, "open": True, "paths": list(record.get("paths", [])), "thaw": record.get("thaw"),
        "thawed": [], "put": [], "wanted": [], "differed": [], "difference": [], "difference_total": 0, "objects": [],
        "digest": ((thaw.state.frozen or {}).get("manifest") or {}).get("digest"), "who": record.get("who"),
        "why": record.get("why"), "since": record.get("at"), "subject": subject_of(thaw.state.frozen),
        "stage": thaw.stage.directory,
    }
    result.update(more)
    return result
