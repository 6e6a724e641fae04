# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Plan the change of a tree from one level of a patch series to another."""

from __future__ import annotations

import uuid
from typing import Any, Sequence

from .journal import Change, Journal
from .series import Series
from .series_record import FORMAT, Place, as_path, as_text
from .series_state import Trial
from .source_files import directories_of, directories_to_drop, missing_directories


def desired(series: Series, params: dict[str, Any]) -> dict[str, object]:
    """Describe what a run is for: an interrupted one is completed by a run for the same only."""
    return {"series_digest": series.digest, "state": params["state"], "strip": params["strip"]}


def plan(place: Place, series: Series, trial: Trial, params: dict[str, Any], record: dict[str, Any] | None) -> Journal:
    """Plan the change that brings the tree from where it is to where it is wanted."""
    present = params["state"] == "present"
    wanted = trial.final if present else trial.pristine
    changes = tuple(
        Change(path, trial.found[path], wanted[path]) for path in sorted(wanted) if trial.found[path] != wanted[path]
    )
    kept = [path for path, file in wanted.items() if file is not None]
    if record is not None and trial.level:
        made = {as_path(path) for path in record["directories"]}
    else:
        new = [path for path, file in trial.found.items() if file is not None and trial.pristine[path] is None]
        made = set(directories_of(place.src, new))
    make = missing_directories(place.src, kept)
    drop = directories_to_drop(place.src, made, kept)
    made = (made | {path for path, _mode in make}) - {path for path, _mode in drop}
    after = make_record(series, trial, len(series.patches) if present else 0, sorted(made), place.relative)
    return Journal(uuid.uuid4().hex[:12], desired(series, params), changes, tuple(make), tuple(drop), after, record)


def make_record(
    series: Series, trial: Trial, applied: int, directories: Sequence[bytes], relative: bytes
) -> dict[str, Any]:
    """Make the record for the next run: the series, and each file's digest after each patch."""
    files = {
        as_text(path): {
            "levels": [level[path] for level in trial.digests], "mode": pristine and pristine.mode,
            "with_mode": path in series.mode_paths,
        }
        for path, pristine in sorted(trial.pristine.items())
    }
    return {
        "format": FORMAT, "tree": as_text(relative), "strip": series.strip, "series_digest": series.digest,
        "patches": [{"name": as_text(patch.name), "sha256": patch.sha256} for patch in series.patches],
        "applied": applied, "verified": not trial.notes, "files": files,
        "offsets": [[list(hunks) for hunks in patch] for patch in trial.offsets],
        "directories": [as_text(path) for path in directories],
    }
