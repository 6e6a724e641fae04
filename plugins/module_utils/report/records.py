# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read the records that a report is made of; name those that cannot be read."""

from __future__ import annotations

import contextlib
import glob
import itertools
import json
import os
from typing import Any, Callable, NamedTuple, Sequence

from ..acceptance.records import check_place
from ..core.errors import StackError
from ..core.files import read_json, regular_file
from ..core.lenient_json import mapping, whole
from ..logs.errors import find_attempt_errors, kind_of
from ..logs.remedies import remedy_of
from ..modulefiles.layout import (
    JOURNAL,
    PARTITIONS,
    SYNTAXES,
    default_path,
    default_version,
    read_bytes,
    relative_path,
    stage_directory,
)
from ..modulefiles.visible_text import read_added
from ..release.records import ReleaseFiles
from ..release.states import hidden_of
from ..verify.summary import (
    summarise_imports,
    summarise_libraries,
)

REPORT = "report.json"
"""The report's facts, beside the records of what happens to a release after its build."""

BUILD = ("pytorch", "horovod", "nccl", "bytecode")
"""Records of the roles that are small enough to be read as a whole."""

AFTERWARDS = (
    "frozen", "freezing", "modulefile", "compute", "acceptance", "sweep", "node_health", "notice", "retired", "thawed",
    PARTITIONS,
)

ON_PARTITION = ("compute", "acceptance", "sweep", "node_health")

STEP = ("job", "exit", "stamp", "submission")
"""Records of a step, by the names of their files without an ending."""

SUMMARIES: dict[str, Callable[[Any], dict]] = {"verification": summarise_libraries, "imports": summarise_imports}


class Records(NamedTuple):
    """Hold all that is known of a release; a record that is not there is not in its mapping."""

    release: str
    steps: dict[str, dict[str, Any]]
    build: dict[str, Any]
    afterwards: dict[str, Any]
    acceptances: list[dict[str, Any]]
    partitions: dict[str, dict[str, Any]]
    """Of each partition of the site, ``afterwards`` and ``acceptances``."""
    published: list[dict[str, Any]]
    patches: dict[str, list[dict[str, str]]]
    seen: dict[str, str]
    """By syntax, what users see: it is ``visible``, ``hidden``, ``gone``, or nothing, the empty text."""
    said: str
    """What loading the module says to users; empty where it says nothing."""
    default: dict[str, bool]
    unreadable: dict[str, str]
    """A sentence's end for each file that is there and is no record."""


def release_files(root: str, release: str) -> ReleaseFiles:
    """Locate a release's records; see :func:`.check_place`."""
    check_place(root, release, "report")
    return ReleaseFiles(root, release)


def read_records(files: ReleaseFiles, tools: str = "") -> Records:
    """Read every record of a release; none has to be there.

    Args:
        tools: the environment of build tools that it shares with other releases; of its steps only those that failed
            are its own matter.
    """
    reader = _Reader(files)
    inside = os.path.join(files.prefix, ".torchstack")
    steps = _read_steps(reader, os.path.join(inside, "steps"))
    shared = _read_steps(reader, tools + ".records") if os.path.isabs(tools) else {}
    steps.update((name, records) for name, records in shared.items() if "failure" in records and "stamp" not in records)
    afterwards = reader.all_of(files.afterwards, AFTERWARDS)
    build = reader.all_of(inside, (*BUILD, *SUMMARIES))
    module = mapping(afterwards.get("modulefile"))
    # No file has this name.
    name, version = str(module.get("name") or "."), str(module.get("version") or ".")
    visible = {syntax: _read_visibility(files.root, syntax, name, version) for syntax in SYNTAXES}
    return Records(
        files.release, {step: records for step, records in steps.items() if records}, build, afterwards,
        reader.lines(os.path.join(files.afterwards, "acceptance.jsonl")),
        {name: {"afterwards": reader.all_of(place, ON_PARTITION),
                "acceptances": reader.lines(os.path.join(place, "acceptance.jsonl"))}
         for name in mapping(afterwards.get(PARTITIONS))
         for place in [stage_directory(files.root, files.release, name)]},
        reader.lines(os.path.join(files.afterwards, JOURNAL)), _list_patches(os.path.join(inside, "series")),
        {syntax: seen for syntax, (seen, _said) in visible.items()},
        next((said for _seen, said in visible.values() if said), ""),
        {syntax: _read_default(files.root, syntax, name) == version for syntax in SYNTAXES}, reader.unreadable)


def read_steps(files: ReleaseFiles, directory: str) -> dict[str, dict[str, Any]]:
    """Read the records of all steps in another directory than the release's own, by their names."""
    return {name: records for name, records in _read_steps(_Reader(files), directory).items() if records}


def _read_steps(reader: _Reader, directory: str) -> dict[str, dict[str, Any]]:
    """Read the records of all steps in a directory, by their names."""
    return {
        os.path.basename(path): _explain_failure(path, reader.all_of(path, STEP, suffixes=("", ".json")))
        for path in sorted(glob.glob(os.path.join(glob.escape(directory), "*"))) if os.path.isdir(path)
    }


def _explain_failure(directory: str, records: dict[str, Any]) -> dict[str, Any]:
    """Add to the records of a failed step what its log says, as ``failure``."""
    job, end = mapping(records.get("job")), mapping(records.get("exit"))
    if end.get("reason") in (None, "done"):
        return records
    log = os.path.join(directory, "log")
    found = find_attempt_errors(log, max(0, whole(job.get("log_offset")) or 0), end)
    failure = {
        "log": log if os.path.isfile(log) else "", "errors": [error.as_record() for error in found],
        "remedy": remedy_of(end, kind_of(end, found)),
    }
    return dict(records, failure=failure)


class _Reader:
    """Read records, and remember which could not be read."""

    def __init__(self, files: ReleaseFiles) -> None:
        self.root = files.root
        self.unreadable: dict[str, str] = {}

    def all_of(self, directory: str, names: Sequence[str], suffixes: Sequence[str] = (".json",)) -> dict[str, Any]:
        found = {}
        for name, suffix in itertools.product(names, suffixes):
            path = os.path.join(directory, name + suffix)
            try:
                record = read_json(path)
                if isinstance(record, dict):
                    found[name] = SUMMARIES[name](record) if name in SUMMARIES else record
                elif record is not None:
                    raise ValueError("it is no record")
            except (OSError, ValueError) as error:
                self._note(path, error)
        return found

    def lines(self, path: str) -> list[dict[str, Any]]:
        """Read the records of a journal; a line that a crash has cut is left out."""
        found = []
        try:
            with open(path, encoding="utf-8", errors="replace", opener=regular_file) as stream:
                for line in stream:
                    with contextlib.suppress(ValueError):
                        found.append(json.loads(line))
        except FileNotFoundError:
            pass
        except OSError as error:
            self._note(path, error)
        return [record for record in found if isinstance(record, dict)]

    def _note(self, path: str, error: Exception) -> None:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        self.unreadable[os.path.relpath(path, self.root)] = reason


def _read_visibility(root: str, syntax: str, name: str, version: str) -> tuple[str, str]:
    """Read what users see of a modulefile in one syntax, and what loading it says."""
    with contextlib.suppress(OSError, StackError):
        content = read_bytes(os.path.join(root, relative_path(syntax, name, version)))
        if content is not None:
            added = read_added(content)
            hidden = version in hidden_of(root, syntax, name)
            return "gone" if added.gone else "hidden" if hidden else "visible", added.notice
    return "", ""


def _read_default(root: str, syntax: str, name: str) -> str:
    # ValueError: no file can have such a name.
    path = os.path.join(root, default_path(syntax, name))
    with contextlib.suppress(OSError, ValueError), open(path, encoding="utf-8", opener=regular_file) as stream:
        return default_version(syntax, stream.read())
    return ""


def _list_patches(directory: str) -> dict[str, list[dict[str, str]]]:
    """List the patches of each component in order: digest of the series, file, and title."""
    found: dict[str, list[dict[str, str]]] = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(directory), "*", "*", "*.patch"))):
        series, name = os.path.split(path)
        component, digest = os.path.split(series)
        found.setdefault(os.path.basename(component), []).append(
            {"series": digest, "file": name, "title": _read_title(path)})
    return found


def _read_title(path: str) -> str:
    """Read the title of a patch."""
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace", opener=regular_file) as stream:
        line = stream.readline().strip()
        if not line.startswith(("diff ", "--- ", "Index: ", "From ")):
            return line
        if line.startswith("From "):
            for line in stream:
                if line.startswith("Subject: "):
                    return line[len("Subject: "):].strip()
                if line.startswith("diff "):
                    break
    return ""
