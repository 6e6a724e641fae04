# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Detect how far a tree has come in a patch series, from its contents and the last run's record.

Levels count patches: level 0 is the pristine tree, level k the tree after the first k patches. For an assumed level the
tree is taken back to level 0 in memory and the whole series is applied to that; the assumption holds when every hunk
fits and the way forward passes through exactly the files that are there.
"""

from __future__ import annotations

import hashlib
from typing import Any, Sequence

from ..core.errors import StackError
from .diff_model import Patch
from .header_paths import display
from .patch_apply import Fault, LineCache, MemoryTree, Note, Reader, apply_patch
from .series import Series
from .series_record import (
    as_path,
    as_text,
)
from .source_files import (
    TreeFile,
)

EXTRACT_AGAIN = "Extract the source again, then run this again."


class Trial:
    """Hold the outcome of assuming a level, without faults when the assumption holds.

    ``found``, ``pristine`` and ``final`` are the touched files as they are, at level 0 and at the last level.
    ``digests`` has one map of path to digest per level, ``offsets`` per patch per file the offsets of its hunks.
    """

    def __init__(self, level: int) -> None:
        self.level = level
        self.faults: list[Fault] = []
        self.notes: list[Note] = []
        self.offsets: list[list[tuple[int, ...]]] = []
        self.digests: list[dict[bytes, str | None]] = []
        self.found: dict[bytes, TreeFile | None] = {}
        self.pristine: dict[bytes, TreeFile | None] = {}
        self.final: dict[bytes, TreeFile | None] = {}


def file_digest(file: TreeFile | None, with_mode: bool) -> str | None:
    """Digest a file, with ``+x`` for an executable one where that tells levels apart; None for none."""
    if file is None:
        return None
    return hashlib.sha256(file.content).hexdigest() + ("+x" if with_mode and file.executable else "")


def run_trial(
    series: Series, read: Reader, level: int, max_offset: int, pins: Sequence[Sequence[Sequence[int]]] = (),
    modes: dict[bytes, int] | None = None, collect: bool = False,
) -> Trial:
    """Assume that the tree is at ``level`` and see whether that holds.

    Args:
        pins: offsets of the leading patches, known from the record.
        modes: permission bits of pristine files, for those that the tree does not have now.
        collect: go on after a fault, file by file, to learn how many files it concerns.
    """
    trial, files = Trial(level), MemoryTree(read)
    touched, mode_paths = sorted(series.touched), series.mode_paths
    broken: set[bytes] | None = set() if collect else None
    trial.found = {path: files.get(path) for path in touched}
    known: dict[bytes, str | None] = {}

    def digests(paths: Sequence[bytes]) -> dict[bytes, str | None]:
        known.update({path: file_digest(files.get(path), path in mode_paths) for path in paths})
        return dict(known)

    for index in range(level - 1, -1, -1):
        pinned = pins[index] if index < len(pins) else None
        trial.faults += apply_patch(series.patches[index], files, max_offset, pinned, undo=True, broken=broken).faults
        if trial.faults and not collect:
            return trial
    for path, mode in (modes or {}).items():
        file = files.get(path)
        if file is not None and trial.found.get(path) is None:
            files.set(path, file._replace(mode=mode))
    trial.pristine = {path: files.get(path) for path in touched}
    trial.digests.append(digests(touched))
    for index, patch in enumerate(series.patches):
        pinned = pins[index] if index < len(pins) else None
        outcome = apply_patch(patch, files, max_offset, pinned, broken=broken)
        trial.faults += outcome.faults
        trial.notes += outcome.notes
        trial.offsets.append(outcome.offsets)
        if index == level - 1:
            trial.faults += _find_detours(patch, trial, files, mode_paths, broken or set())
        if trial.faults and not collect:
            return trial
        trial.digests.append(digests([path for section in patch.files for path in section.paths]))
    trial.final = {path: files.get(path) for path in touched}
    return trial


def _find_detours(
    patch: Patch, trial: Trial, files: MemoryTree, mode_paths: set[bytes], broken: set[bytes]
) -> list[Fault]:
    """Find files for which undoing and applying again does not lead back to what is there."""
    reason = "undoing the patches and applying them again does not lead back to this file"
    return [
        Fault(patch.name, path, 0, 0, reason, True)
        for path, found in trial.found.items()
        if path not in broken
        and file_digest(files.get(path), path in mode_paths) != file_digest(found, path in mode_paths)
    ]


def find_possible_levels(series: Series, read: Reader, max_offset: int) -> list[int]:
    """Find levels at which the last patch could be undone and the next applied: only these are tried."""
    lines = LineCache(64 << 20)  # these contents are the reader's, so that keeping them costs nothing

    def fits(patch: Patch, undo: bool) -> bool:
        return not apply_patch(patch, MemoryTree(read, lines), max_offset, undo=undo).faults

    undoable = [True, *(fits(patch, True) for patch in series.patches)]
    appliable = [*(fits(patch, False) for patch in series.patches), True]
    return [level for level, possible in enumerate(zip(undoable, appliable)) if all(possible)]


def detect(
    series: Series, read: Reader, record: dict[str, Any] | None, max_offset: int, allow_unverified: bool = False
) -> Trial:
    """Detect how far the tree is.

    The record decides where it fits both the series and the tree; otherwise the contents do, and of several levels
    that fit those are preferred at which every header names the right blobs. A tree is refused that is foreign, carries
    another series, cannot be told apart, or is unverified.
    """
    trial = _detect_by_record(series, read, record, max_offset) if record is not None else None
    if trial is None:
        trial = _detect_by_content(series, read, max_offset)
    if trial.notes and not allow_unverified:
        raise _unverified_error(trial)
    return trial


def _detect_by_content(series: Series, read: Reader, max_offset: int) -> Trial:
    levels = find_possible_levels(series, read, max_offset)
    fitting = [trial for trial in (run_trial(series, read, level, max_offset) for level in levels) if not trial.faults]
    pool = [trial for trial in fitting if not trial.notes] or fitting
    if not pool:
        candidates = sorted(set(levels) | {0, len(series.patches)})
        raise _foreign_error([run_trial(series, read, level, max_offset, collect=True) for level in candidates])
    ends = {tuple(tuple(sorted(trial.digests[end].items())) for end in (0, -1)) for trial in pool}
    if len(ends) > 1:
        raise StackError(
            "The tree looks %s alike, and no record tells which it is."
            % " and ".join("patched up to %d" % trial.level if trial.level else "pristine" for trial in pool),
            "detect state",
            "Name the pristine blobs in the patch headers: git diff does, and so does a line 'Torchstack-Pristine: "
            "BLOB PATH' in place of the index line of another version. Or run with the state_dir of the first run.",
            state_before=foreign_state(len(series.patches)),
        )
    return pool[0]


def _detect_by_record(series: Series, read: Reader, record: dict[str, Any], max_offset: int) -> Trial | None:
    """Try the level that the record tells; None where the record says nothing about this tree."""
    entries = {as_path(path): entry for path, entry in record["files"].items()}
    current = {path: file_digest(read(path), entry["with_mode"]) for path, entry in entries.items()}
    recorded = record["patches"]
    same = [{"name": as_text(patch.name), "sha256": patch.sha256} for patch in series.patches]
    tainted = sorted(
        path for path, entry in entries.items()
        if current[path] != entry["levels"][0] and current[path] in entry["levels"][1:]
    )
    if record["strip"] != series.strip or recorded != same[:len(recorded)]:
        if tainted:
            message = "The series has changed since the tree was patched (%s), and %s still carries the old one."
            file, state = display(tainted[0]), foreign_state(len(same))
            message %= (_describe_change(recorded, same), file)
            raise StackError(message, "detect state", EXTRACT_AGAIN, file=file, state_before=state)
        return None
    levels = [
        level for level in range(len(recorded) + 1)
        if all(current[path] == entry["levels"][level] for path, entry in entries.items())
    ]
    if not levels:
        if tainted:
            raise _stray_error(entries, current, len(same))
        return None
    level = record["applied"] if record["applied"] in levels else levels[0]
    modes = {path: entry["mode"] for path, entry in entries.items() if entry["mode"] is not None}
    trial = run_trial(series, read, level, max_offset, record["offsets"], modes)
    if trial.faults:
        raise _foreign_error([run_trial(series, read, level, max_offset, record["offsets"], modes, collect=True)])
    return trial


def foreign_state(total: int) -> dict[str, object]:
    """Return ``state_before`` of a tree that is not at any level."""
    return {"kind": "foreign", "applied": None, "of": total}


def _describe_change(recorded: Sequence[dict[str, str]], now: Sequence[dict[str, str]]) -> str:
    """Describe shortly what happened to the series since it was recorded."""
    old, new = ({entry["name"]: entry["sha256"] for entry in entries} for entries in (recorded, now))
    words = [(name, "changed" if name in new else "gone") for name in sorted(old) if new.get(name) != old[name]]
    words += [(name, "new") for name in sorted(new) if name not in old]
    shown = ", ".join("%s %s" % (display(as_path(name)), word) for name, word in words[:3])
    return shown + (" and %d more" % (len(words) - 3) if len(words) > 3 else "") or "another order or strip"


def _stray_error(entries: dict[bytes, dict[str, Any]], current: dict[bytes, str | None], total: int) -> StackError:
    """Make the error for a tree that this series patched and that was changed afterwards."""
    strange = sorted(path for path, entry in entries.items() if current[path] not in entry["levels"])
    if strange:
        path, problem = strange[0], "is neither as it was before the patches nor as they left it"
    else:
        disagreeing = [
            [path for path, entry in entries.items() if current[path] != entry["levels"][level]]
            for level in range(len(next(iter(entries.values()))["levels"]))
        ]
        best = min(range(len(disagreeing)), key=lambda level: (len(disagreeing[level]), -level))
        path = min(disagreeing[best])
        problem = "is not as patch %d leaves it, while other files are" % best
        if best == 0:
            problem = "is patched, while other files are not"
    message = "The tree is foreign: %s %s." % (display(path), problem)
    return StackError(message, "detect state", EXTRACT_AGAIN, file=display(path), state_before=foreign_state(total))


def _foreign_error(trials: Sequence[Trial]) -> StackError:
    """Make the error that names the first fault of the assumption with the fewest broken files."""
    broken = {trial.level: {fault.path for fault in trial.faults} for trial in trials}
    best = min(trials, key=lambda trial: (len(broken[trial.level]), trial.level))
    fault = best.faults[0]
    patch, path = display(fault.patch), display(fault.path)
    part, done = "hunk %d" % fault.hunk if fault.hunk else "the part", "undone" if fault.undoing else "applied"
    sentence = "The tree is foreign: %s of %s for %s cannot be %s: %s." % (part, patch, path, done, fault.reason)
    elsewhere = [level for level in sorted(broken) if fault.path not in broken[level]]
    if elsewhere:
        sentence += " That file is as after %d patches, others are as after %d." % (elsewhere[-1], best.level)
    remedy = "Extract the source again; if that is the same, the patch does not belong to this version."
    return StackError(
        sentence, "detect state", remedy, patch=patch, file=path, hunk=fault.hunk or None, line=fault.line or None,
        state_before=foreign_state(len(best.digests) - 1),
    )


def _unverified_error(trial: Trial) -> StackError:
    note = trial.notes[0]
    patch, path, actual = display(note.patch), display(note.path), note.actual[:max(len(note.named or ""), 12)]
    if note.named is None:
        problem = "%s names no pristine blob for %s" % (patch, path)
    elif note.side == "before":
        problem = "%s was made for blob %s of %s, and the tree has %s" % (patch, note.named, path, actual)
    else:
        problem = "%s says that it turns %s into blob %s, and it gives %s: it was edited after it was made"
        problem %= (patch, path, note.named, actual)
    message = "The hunks fit, but the series is unverified: %s." % problem
    remedy = "Make the patch again from the pristine source with git diff, or set allow_unverified."
    notes = [entry.as_result() for entry in trial.notes]
    return StackError(message, "verify series", remedy, patch=patch, file=path, unverified=notes)
