# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Make the document with a report's facts from the records, and write it where it differs."""

from __future__ import annotations

import os
from typing import Any, Dict, Mapping, cast

from ..core.errors import StackError
from ..core.files import read_bytes, write_atomic
from ..core.json_document import rendered, storable
from ..core.lenient_json import mapping, text
from ..core.redaction import redacted_data
from .facts import compile_facts
from .records import REPORT, read_records, release_files


def update_document(root: str, release: str, resolved: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Write the document if the records say something else.

    Returns:
        ``changed``, ``facts`` and ``path``; in check mode also ``planned_after`` where nothing is there yet.
    """
    files = release_files(root, release)
    path = os.path.join(files.afterwards, REPORT)
    # A report is shared: mask credentials that older records may still hold.
    records = read_records(files, text(mapping(resolved).get("tools")))
    facts = cast(Dict[str, Any], storable(redacted_data(compile_facts(records, resolved))))
    result = {"changed": True, "facts": facts, "path": path}
    if not os.path.isdir(files.afterwards):
        if check_mode:
            return dict(result, planned_after="release")
        raise StackError(
            "There are no records of release %s below %s." % (release, root), "release",
            "Correct the name of the release, or roll it out first.", files.afterwards)
    content = rendered(facts)
    try:
        result["changed"] = read_bytes(path) != content
        if result["changed"] and not check_mode:
            write_atomic(path, content)
    except OSError as error:
        raise StackError(
            "The report %s cannot be written: %s." % (path, error.strerror), "report",
            "Run this as the account that owns the root, and look at the space that is left.", path) from error
    return result
