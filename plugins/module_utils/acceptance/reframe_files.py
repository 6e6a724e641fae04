# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Write the directory of a release's ReFrame tests, where its files differ."""

from __future__ import annotations

import os
import zipfile
import zlib
from typing import Any, Mapping

from ..core.files import read_bytes, readable_by_all, write_atomic
from ..core.zipapp import program_archive
from ..ranks import benchmark_cli, program
from . import reframe_judge, reframe_tests

PROGRAM = ".pyz"
"""Ending of the names of programs."""

DIRECTORY = "reframe"
"""Name of the directory beside the release's other records."""


def make_files(data: Mapping[str, Any], tests: str) -> dict[str, bytes]:
    """Make the content of each file, by its name.

    Args:
        tests: text of the test file, which bears the release's name, as ReFrame knows test files by theirs.
    """
    return {
        "torchstack_%s.py" % data["name"]: tests.encode("utf-8"), "release.json": reframe_tests.render(data),
        "ranks.pyz": program_archive(program), "judge.pyz": program_archive(reframe_judge),
        "collectives.pyz": program_archive(benchmark_cli),
    }


def list_differing(directory: str, files: Mapping[str, bytes]) -> list[str]:
    """List the names of files that have to be written.

    The programs stay those that the release was accepted with, for as long as they are whole and what they are asked is
    the same: every version of this collection packs them otherwise.
    """
    paths = {name: os.path.join(directory, name) for name in sorted(files)}
    differing = [name for name, path in paths.items() if read_bytes(path) != files[name]]
    return differing if any(not name.endswith(PROGRAM) or not is_whole(paths[name]) for name in differing) else []


def is_whole(path: str) -> bool:
    """Tell whether a file is a program archive without damage."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error):
        return False


def write_files(directory: str, files: Mapping[str, bytes], names: list[str]) -> None:
    """Replace some of the files; make their directory if need be."""
    with readable_by_all():
        os.makedirs(directory, exist_ok=True)
        for name in names:
            write_atomic(os.path.join(directory, name), files[name])
