# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The directory of a release's ReFrame tests: which files belong there, and which differ."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Mapping

from ..core.files import readable_by_all, write_atomic
from ..core.zipapp import program_archive
from ..ranks import benchmark_cli
from ..ranks import program as rank_program
from . import (
    reframe_judge,
    reframe_tests,
)

DIRECTORY = "reframe"
"""Name of the directory beside the release's other records."""


def wanted(data: Mapping[str, Any], tests: str) -> dict[str, bytes]:
    """The content of each file by its name.

    Args:
        data: from :func:`.reframe_tests.described`.
        tests: text of the test file, which bears the release's name, as ReFrame knows test files by theirs.
    """
    return {
        "torchstack_%s.py" % data["name"]: tests.encode("utf-8"),
        "release.json": reframe_tests.text(data),
        "ranks.pyz": program_archive(rank_program),
        "judge.pyz": program_archive(reframe_judge),
        "collectives.pyz": program_archive(benchmark_cli),
    }


def differing(directory: str, files: Mapping[str, bytes]) -> list[str]:
    """Names of the files that are not there as they should be.

    Raises:
        OSError: one is there and cannot be read.
    """
    return [name for name, content in sorted(files.items()) if content_of(os.path.join(directory, name)) != content]


def content_of(path: str) -> bytes | None:
    """The bytes of a file; None where there is none."""
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as stream:
        return stream.read()
    return None


def write(directory: str, files: Mapping[str, bytes], names: list[str]) -> None:
    """Replace some of the files.

    Args:
        directory: where; made if need be.
        files: all of them.
        names: which.

    Raises:
        OSError: as the system reports it.
    """
    with readable_by_all():
        os.makedirs(directory, exist_ok=True)
        for name in names:
            write_atomic(os.path.join(directory, name), files[name])
