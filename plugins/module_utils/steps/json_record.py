# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read and replace files that hold one JSON object."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Callable, Mapping, TypeVar

from ..core.errors import StackError
from ..core.files import read_json

Record = TypeVar("Record")

NEXT = ".next"
"""Suffix of a record that is being written in place."""


def read_record(path: str) -> dict[str, Any] | None:
    """Read the JSON object in ``path``; None where there is none, StackError where it is no record."""
    try:
        record = read_json(path)
    except (ValueError, UnicodeDecodeError):
        record = {}
    if record is None or (isinstance(record, dict) and record):
        return record
    raise _no_record(path)


def read_as(from_json: Callable[[Mapping[str, Any]], Record], path: str) -> Record | None:
    """Read a record as an object; None where there is none, StackError where it is no such record."""
    record = read_record(path)
    try:
        return None if record is None else from_json(record)
    except (TypeError, AttributeError):
        raise _no_record(path) from None


def _no_record(path: str) -> StackError:
    return StackError("%s is not a record of a build step." % path, "records", "Look at it, then remove it.", path)


def split(record: Mapping[str, Any], names: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Divide a record into the named keys that it has, and all others."""
    named = {name: record[name] for name in names if name in record}
    return named, {key: value for key, value in record.items() if key not in named}


def write_in_place(path: str, record: Mapping[str, Any]) -> None:
    """Replace a record without flushing it to disk: for a heartbeat, which is worth nothing after a crash."""
    temporary = path + NEXT
    try:
        with open(temporary, "w", encoding="utf-8") as stream:
            json.dump(record, stream, indent=2, sort_keys=True)
            stream.write("\n")
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
