# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Make the bill of materials of a release, and keep it on disk."""

from __future__ import annotations

import glob
import json
import os
from typing import Any, Mapping

from ..core.errors import StackError
from ..core.files import read_bytes, write_atomic
from ..core.lenient_json import mapping, moment, text
from . import spdx
from .installed import installed
from .installed_records import RECORDS, read_record

NAME = "sbom.spdx.json"


def sbom_path(prefix: str) -> str:
    """Tell where a release has its bill of materials."""
    return os.path.join(prefix, RECORDS, NAME)


def find_build_time(prefix: str) -> str:
    """Find when the last step of a build was finished, if that was recorded. Raises StackError: a record is damaged."""
    pattern = os.path.join(glob.escape(os.path.join(prefix, RECORDS, "steps")), "*", "stamp.json")
    times = [text(mapping(read_record(path)).get("finished")) for path in sorted(glob.glob(pattern))]
    return max((said for said in times if moment(said) is not None), default="")


def make_sbom(prefix: str, resolved: Mapping[str, Any]) -> dict[str, Any]:
    """Make the bill of materials that a release should have. Raises StackError: a file cannot be read."""
    return spdx.document(installed(prefix, resolved), find_build_time(prefix))


def as_bytes(document: Mapping[str, Any]) -> bytes:
    """Encode the document as it is written."""
    return (json.dumps(document, indent=2, sort_keys=True) + "\n").encode("utf-8")


def read_current(path: str) -> bytes | None:
    """Read the document that is there; None where nothing is. Raises StackError: it cannot be read."""
    try:
        return read_bytes(path)
    except OSError as error:
        raise _refused(path, error) from error


def write(path: str, content: bytes) -> None:
    """Replace the document. Raises StackError: the file system refuses."""
    directory, name = os.path.split(path)
    try:
        # What a run that was killed has begun would become a part of the release.
        for begun in glob.glob(os.path.join(glob.escape(directory), ".%s.*" % glob.escape(name))):
            os.unlink(begun)
        write_atomic(path, content)
    except OSError as error:
        raise _refused(path, error) from error


def list_packages(content: bytes | None) -> str:
    """List a document's packages, one in a line, for a difference that an operator reads."""
    try:
        packages = json.loads(content or b"{}").get("packages", [])
        lines = [" ".join(filter(None, (one["SPDXID"][8:], one.get("versionInfo")))) for one in packages]
    except (ValueError, KeyError, TypeError, AttributeError):
        return "not an SPDX document\n"
    return "".join(line + "\n" for line in lines)


def _refused(path: str, error: OSError) -> StackError:
    return StackError(
        "The bill of materials %s cannot be kept: %s." % (path, error.strerror), "sbom",
        "Correct the rights there; of a frozen release it is part of what is frozen.", path)
