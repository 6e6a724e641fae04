# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The conda packages of a release, from the records that conda keeps in the prefix."""

from __future__ import annotations

import glob
import os
from typing import Any, Iterable, Mapping

from ..conda.prefix import META
from ..core.lenient_json import mapping, sequence, text
from ..core.redaction import without_credentials
from .installed_records import read_record

BASE = "base"


def packages(prefix: str) -> list[dict[str, Any]]:
    """The packages of the base, sorted by name; none where it is no conda prefix.

    Args:
        prefix: the release's directory.

    Returns:
        per package what :func:`installed.installed` says, and ``files``, relative to the release.

    Raises:
        StackError: a record cannot be read.
    """
    pattern = os.path.join(glob.escape(os.path.join(prefix, BASE, META)), "*.json")
    found = [_package(mapping(read_record(path))) for path in sorted(glob.glob(pattern))]
    return sorted((one for one in found if one["name"]), key=lambda one: (one["name"], one["version"], one["build"]))


def _package(record: Mapping[str, Any]) -> dict[str, Any]:
    paths = [text(mapping(entry).get("_path")) for entry in sequence(mapping(record.get("paths_data")).get("paths"))]
    return {
        "name": text(record.get("name")), "version": text(record.get("version")), "build": text(record.get("build")),
        "channel": without_credentials(text(record.get("channel")).rstrip("/")), "subdir": text(record.get("subdir")),
        "url": without_credentials(text(record.get("url"))), "licence": text(record.get("license")),
        "sha256": text(record.get("sha256")),
        "files": [os.path.join(BASE, path) for path in paths or map(text, sequence(record.get("files")))],
    }


def owners(found: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The name of the conda package that brought a Python distribution, by the distribution's directory."""
    return {
        os.path.dirname(path): one["name"]
        for one in found for path in one["files"]
        if path.endswith((".dist-info/METADATA", ".egg-info/PKG-INFO"))
    }
