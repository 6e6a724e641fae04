# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Compare frozen releases with their manifests, and attribute what differs.

The manifest names neither owners nor times, so who changed something and when is what the file system tells today. It
keeps no trace of who removed a file: of that, the directory's owner and times are all that is left.
"""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

from ..core.errors import StackError
from ..core.files import read_json
from ..modulefiles.layout import stage_directory
from ..release.states import REMOVED, STEP, ReleaseState, all_releases, one_release, unreadable_error
from ..trees import manifest
from .drift_attribution import Thaws, attribute
from .drift_content import compare_content

MANIFEST = os.path.join(".torchstack", "manifest.json")
NO_LIMIT = 1 << 30

_REASON = re.compile(r"(.*) \((.*)\)", re.S)


class FrozenRelease(NamedTuple):
    """A release that has a record of its freeze."""

    release: str
    prefix: str
    state: ReleaseState | None
    """None where so much is missing that it is no release any more."""
    frozen: dict[str, Any]
    removal: str
    """``removing`` or ``removed`` where its files are meant to be gone."""

    @property
    def loadable(self) -> bool:
        """Tell whether a user can load its module."""
        return self.state is not None and any(
            self.state.visible[syntax] or self.state.hidden[syntax] for syntax in self.state.visible)


def find_frozen(root: str, wanted: list[str]) -> list[FrozenRelease]:
    """Return the frozen releases of a root, or the ``wanted``, those too of which little is left.

    Raises StackError: one that is asked for was never frozen, or a record cannot be read.
    """
    if not os.path.isabs(root):
        raise StackError("The root %r is no absolute path." % root, STEP, "Write it in full.")
    states = {state.release: state for state in all_releases(root)}
    names = wanted or sorted(
        name for name in _list_directory(os.path.join(root, ".torchstack"))
        if os.path.isfile(os.path.join(stage_directory(root, name), "frozen.json")))
    found = []
    for name in names:
        afterwards = stage_directory(root, name)
        frozen = _read_record(os.path.join(afterwards, "frozen.json"))
        if frozen is None:
            # It says which there are, and what is wrong with this one.
            one_release(root, name)
        retired = _read_record(os.path.join(afterwards, "retired.json")) or {}
        removal = str(retired.get("state")) if retired.get("state") in REMOVED else ""
        found.append(FrozenRelease(name, os.path.join(root, name), states.get(name), frozen or {}, removal))
    return sorted(found, key=lambda item: (str(item.frozen.get("frozen_at", "")), item.release))


def compare_release(
    root: str, found: FrozenRelease, level: str, limit: int, workers: int
) -> tuple[dict[str, Any], float]:
    """Compare a release with its manifest; return the outcome as plain data, and the seconds that it took.

    The level ``quick`` reads only files whose inode was changed since the manifest, ``full`` reads all.
    """
    thaws = Thaws(stage_directory(root, found.release))
    record = os.path.join(found.prefix, MANIFEST)
    outcome: dict[str, Any] = {
        "level": level, "manifest": str((found.frozen.get("manifest") or {}).get("digest", "")),
        "thawed": thaws.open_as_result()}
    try:
        since = os.stat(record).st_mtime_ns
        # What an open thaw explains has to be told from what it does not, for all of it.
        request = manifest.Request(
            found.prefix, root, record, level == "full", (), workers, NO_LIMIT if thaws.is_open else limit, since)
        result: dict[str, Any] = manifest.compare(request)
    except (OSError, StackError) as error:
        finding = _nothing_to_compare(found, record, error)
        return dict(outcome, **_outcome([finding], 1, 1, {}, [], 0, limit)), 0.0
    findings = _findings(found.prefix, result, thaws)
    total = sum(count for kind, count in result["totals"].items() if kind != "foreign")
    touched, touched_total = _touched_paths(result)
    if level == "full":
        touched, touched_total = [], 0
    elif touched_total == len(touched):
        content = compare_content(found.prefix, record, touched)
        findings += [_attributed(found.prefix, thaws, *item) for item in content.differing]
        total += len(content.differing)
        result["totals"]["content"] += len(content.differing)
        touched, touched_total = content.unknown, len(content.unknown)
    if result["digest"] != outcome["manifest"] and outcome["manifest"]:
        findings.insert(0, {
            "path": MANIFEST, "kind": "manifest", "from": outcome["manifest"], "to": result["digest"],
            **attribute(found.prefix, MANIFEST, False)})
        total += 1
    unexplained = total - sum(1 for finding in findings if finding.get("explained"))
    return (
        dict(outcome, **_outcome(findings, total, unexplained, result["totals"], touched, touched_total, limit),
             files=result["counts"]["files"]),
        result["seconds"])


def _outcome(
    findings: list[dict[str, Any]], total: int, unexplained: int, totals: dict[str, int], touched: list[str],
    touched_total: int, limit: int,
) -> dict[str, Any]:
    findings = sorted(findings, key=lambda finding: bool(finding.get("explained")))
    return {
        "matches": not total, "drifted": bool(unexplained), "totals": totals, "findings": findings[:limit],
        "findings_total": total, "explained": total - unexplained, "touched": touched[:limit],
        "touched_total": touched_total,
    }


def _nothing_to_compare(found: FrozenRelease, record: str, error: OSError | StackError) -> dict[str, Any]:
    """Tell what is wrong where tree or manifest cannot be read at all."""
    if not os.path.lexists(found.prefix):
        return {"path": ".", "kind": "removed", **attribute(os.path.dirname(found.prefix), found.release, True)}
    if not os.path.isdir(found.prefix) or os.path.islink(found.prefix):
        return {"path": ".", "kind": "type", "from": "directory", "to": "something else",
                **attribute(os.path.dirname(found.prefix), found.release, False)}
    if isinstance(error, FileNotFoundError):
        return {"path": MANIFEST, "kind": "removed", **attribute(found.prefix, MANIFEST, True)}
    reason = error.message if isinstance(error, StackError) else "%s: %s" % (record, error.strerror)
    return {"path": MANIFEST, "kind": "unreadable", "reason": reason, **attribute(found.prefix, MANIFEST, False)}


def _findings(prefix: str, result: dict[str, Any], thaws: Thaws) -> list[dict[str, Any]]:
    found = []
    for kind in ("added", "removed"):
        found += [_attributed(prefix, thaws, path, kind) for path in result[kind]]
    for entry in result["differing"]:
        found.append(_attributed(prefix, thaws, entry["path"], entry["kind"], entry["from"], entry["to"]))
    for kind in ("unreadable", "unstable"):
        for text in result[kind]:
            match = _REASON.fullmatch(text)
            path, reason = match.groups() if match else (text, "")
            found.append(dict(_attributed(prefix, thaws, path, kind), reason=reason))
    return found


def _attributed(prefix: str, thaws: Thaws, path: str, kind: str, before: str = "", after: str = "") -> dict[str, Any]:
    finding: dict[str, Any] = {"path": path, "kind": kind}
    if before or after:
        finding.update({"from": before, "to": after})
    finding.update(attribute(prefix, path, kind == "removed"))
    finding.update(thaws.explain(path, kind))
    return finding


def _touched_paths(result: dict[str, Any]) -> tuple[list[str], int]:
    """List entries whose inode was changed and that no difference explains, not even by their directory."""
    named = {entry["path"] for entry in result["differing"]} | set(result["added"])
    named |= {os.path.dirname(path) or "." for kind in ("added", "removed") for path in result[kind]}
    # Writing the manifest is the last change of its own directory.
    named.add(os.path.dirname(MANIFEST))
    kept = [path for path in result["touched"] if path not in named]
    return kept, result["touched_total"] - (len(result["touched"]) - len(kept))


def _list_directory(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StackError(
            "Cannot list %s: %s." % (directory, error.strerror), STEP,
            "Run this as the account that owns the root.", directory) from error


def _read_record(path: str) -> dict[str, Any] | None:
    try:
        record = read_json(path)
    except (OSError, ValueError) as error:
        raise unreadable_error(path, error) from error
    return record if isinstance(record, dict) else None
