# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Start a step, or find that it is done, or attach to the build that is running.

No call waits for a build. The records in the step's directory are the only memory between two calls.
"""

from __future__ import annotations

import os
import time
from typing import Any

from ..core.errors import StackError
from ..core.files import readable_by_all
from ..core.processes import here
from .attempt import Order, launch_attempt
from .decision import assess
from .lock import StepLock
from .request import Request
from .results import stamped_result
from .status import query, query_briefly

LOCK_SECONDS = 60.0
"""How long to wait for another starter: longer than a job may have no process, or a submission no answer."""


def begin(request: Request, order: Order) -> dict[str, Any]:
    """Start a step that has no stamp for this digest, or attach to the build that is running.

    The result is ``running``, or ``done`` or ``cached`` for a short step, or ``unchanged`` when somebody else finished
    it. StackError: see :func:`.decide` and :class:`.StepLock`; it has failed already; a record cannot be written.
    """
    files = request.files
    try:
        with readable_by_all():
            return _begin(request, order)
    except OSError as error:
        # The error of a write has no file's name.
        raise StackError(
            "The records of step %s cannot be written: %s: %s."
            % (files.name, error.filename or files.directory, error.strerror), "records",
            "Make sure that this account can write there and that there is space, and run this again.",
            files.directory,
        ) from error


def _begin(request: Request, order: Order) -> dict[str, Any]:
    files = request.files
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        found = assess(request, order)
        stamp, job = found.records.stamp, found.records.job
        if found.action == "unchanged" and stamp is not None:
            return stamped_result(files, stamp, False, "unchanged")
        if found.action == "attach" and job is not None:
            return dict(query(files, job.nonce), attached=True)
        if found.action == "refuse" and found.state.error is not None:
            raise found.state.error
        if found.action in ("run", "wait"):
            os.makedirs(files.directory, exist_ok=True)
            lock = StepLock(files, here())
            if lock.acquire():
                try:
                    # Somebody else may have finished or started it before this process had the lock.
                    found = assess(request, order, lock)
                    if found.action != "run":
                        continue
                    job = found.records.job
                    if found.state.name == "leftover" and job is not None:
                        found.launcher.clear(files, job)
                    nonce, warnings = launch_attempt(request, order, lock, job)
                finally:
                    lock.withdraw()
                result = (query_briefly if order.launcher == "local" else query)(files, nonce)
                return dict(result, resumed=found.resumed, warnings=[*warnings, *result.get("warnings", [])])
        if time.monotonic() > deadline:
            raise StepLock(files, here()).refusal()
        time.sleep(0.05)
