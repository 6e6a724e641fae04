# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Ask a compute node something, and await its answer, by files that both see and a step of build_step between them.

Every question has a nonce, which is an input of the step: the same question finds the step that asks it already, so
that a lost connection never means a second job, and another question is another step.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from typing import Any, Callable, TypeVar

from ..core.errors import StackError
from ..core.files import read_json

Answer = TypeVar("Answer")


def read_pending(path: str) -> dict[str, Any] | None:
    """Read the question that was asked last, as :func:`create` made it; None where none is open."""
    with contextlib.suppress(ValueError):
        asked = read_json(path)
        if isinstance(asked, dict) and "nonce" in asked and "digest" in asked:
            return asked
    return None


def create(digest: str) -> dict[str, Any]:
    """Make a question that nobody has asked yet: ``nonce``, and the ``digest`` of all that the answer depends on."""
    return {"nonce": uuid.uuid4().hex, "digest": digest}


def await_answer(
    path: str, read: Callable[[], Answer | None], seconds: float, step: str, shared: str = "the root"
) -> Answer:
    """Read what a job that has ended wrote on its node, as soon as ``read`` finds it whole.

    StackError: it does not show up within ``seconds``, in which a shared file system may be late.
    """
    begin = time.monotonic()
    while True:
        # Reading a directory makes NFS look at it anew.
        with contextlib.suppress(OSError):
            os.listdir(os.path.dirname(path))
        answer = read()
        if answer is not None:
            return answer
        if time.monotonic() - begin >= seconds:
            raise StackError(
                "The job on the compute node has ended, and what it wrote is not seen here after %g seconds: %s."
                % (seconds, path), step,
                "Have %s on a file system that login and compute nodes share; both have to write there." % shared, path,
            )
        time.sleep(0.2)
