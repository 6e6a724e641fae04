# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Writing the record of a verification, of libraries or of imports."""

from __future__ import annotations

from typing import Any, Mapping

from ..core.errors import StackError
from ..core.files import write_json


def write_record(path: str, record: Mapping[str, Any]) -> None:
    """Replace a record.

    Raises:
        StackError: it cannot be written; an older one is still there then.
    """
    try:
        write_json(path, record)
    except OSError as error:
        raise StackError(
            "Cannot write the record %s: %s." % (path, error.strerror), "record",
            "Thaw the release if it is frozen, and see that its directory exists and has room; then verify again.",
            path,
        ) from error
