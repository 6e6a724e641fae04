# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Make the directory for the temporary files of one build on a node, with a short path.

Programs bind sockets below ``TMPDIR``, whose paths have room for 107 characters (``sun_path``, unix(7)): of these 60
for a site's directory (:data:`..batch.options.TMPDIR_CHARACTERS`), 11 for this, 32 for Python's multiprocessing.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any, Mapping

from .outcome import Outcome

PREFIX = "ts"


def make(options: Mapping[str, Any], environment: dict[str, str]) -> str:
    """Make a directory that no other build has, where the site names one for such, and let ``TMPDIR`` name it."""
    if not options.get("tmpdir"):
        return ""
    environment["TMPDIR"] = tempfile.mkdtemp(prefix=PREFIX, dir=options["tmpdir"])
    return environment["TMPDIR"]


def obstacle(options: Mapping[str, Any], problem: OSError) -> Outcome:
    """Return the end of an attempt for whose temporary files there was no place."""
    return Outcome.of(
        "tmpdir", place=options["tmpdir"], host=os.uname().nodename, error=problem.strerror,
        advice="Correct launcher_options: tmpdir, or have the directory made.",
    )


def remove(directory: str) -> None:
    """Remove it with all that programs have left there."""
    if directory:
        shutil.rmtree(directory, ignore_errors=True)
