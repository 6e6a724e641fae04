# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Know every launcher by its name, and the one that started a job."""

from __future__ import annotations

from typing import Any, Mapping

from ..batch.registry import LOCAL
from .launcher import Launcher
from .launcher_batch import BatchLauncher
from .launcher_local import LocalLauncher
from .records import JobRecord


def launcher_of(job: JobRecord | None, name: str = LOCAL, options: Mapping[str, Any] | None = None) -> Launcher:
    """Make the launcher that knows a job, or where there is none the one of this name and options.

    A job's commands are looked for where the options say now, if they do, as who submitted it may have been mistaken.
    """
    options = options or {}
    if job is not None:
        corrected = {"bin": options["bin"]} if job.launcher == name and options.get("bin") else {}
        name, options = job.launcher, {**(job.options or {}), **corrected}
    return LocalLauncher() if name == LOCAL else BatchLauncher(name, options)
