# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The document with a report's facts: made from the records, and written where it is not what is there."""

from __future__ import annotations

import os
from typing import Any, Dict, Mapping, cast

from ..core.errors import StackError
from ..core.files import write_atomic
from ..core.json_document import rendered
from ..core.lenient_json import mapping, text
from ..core.redaction import redacted_data
from . import facts as report_facts
from . import records as report_records


def renew(root: str, release: str, resolved: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Make sure that the document says what the records say.

    Args:
        root: the directory of the releases.
        release: the release's name.
        resolved: its resolved release file; empty where there is none.
        check_mode: only say what would be.

    Returns:
        ``changed``, ``facts`` and ``path``; in check mode also ``planned_after`` where nothing is there yet.

    Raises:
        StackError: there is no such release, or the document cannot be written.
    """
    files = report_records.files_of(root, release)
    path = os.path.join(files.afterwards, report_records.REPORT)
    # A report is sent round: records from before their writers masked credentials must not spoil it.
    records = report_records.read(files, text(mapping(resolved).get("tools")))
    facts = cast(Dict[str, Any], redacted_data(report_facts.facts(records, resolved)))
    result = {"changed": True, "facts": facts, "path": path}
    if not os.path.isdir(files.afterwards):
        if check_mode:
            return dict(result, planned_after="release")
        raise StackError(
            "There are no records of release %s below %s." % (release, root), "release",
            "Correct the name of the release, or roll it out first.", files.afterwards,
        )
    content = rendered(facts)
    try:
        result["changed"] = not _holds(path, content)
        if result["changed"] and not check_mode:
            write_atomic(path, content)
    except OSError as error:
        raise StackError(
            "The report %s cannot be written: %s." % (path, error.strerror), "report",
            "Run this as the account that owns the root, and look at the space that is left.", path,
        ) from error
    return result


def _holds(path: str, content: bytes) -> bool:
    """Whether the file has this content already."""
    try:
        with open(path, "rb") as stream:
            return stream.read() == content
    except FileNotFoundError:
        return False
