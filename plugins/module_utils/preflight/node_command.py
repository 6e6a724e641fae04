# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run a short command on a node, never longer than agreed.

It travels as part of :mod:`.node_facts`: Python 3.8 or later, and nothing of this collection.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import NamedTuple, Sequence

COMMAND_SECONDS = 60
"""For one command; a driver that hangs must not hang the look at it."""


class Ran(NamedTuple):
    """How a command ended: its exit code (None where it did not start or end), and what it printed."""

    code: int | None
    output: str


def run(words: Sequence[str], seconds: float = COMMAND_SECONDS) -> Ran:
    """Run a command without input, and end it with its children after its time."""
    try:
        # A library of this collection would do it better; this file travels without any.
        process = subprocess.Popen(  # pylint: disable=ansible-bad-function # see above
            list(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return Ran(None, error.strerror or str(error))
    with process:
        try:
            output = process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            return Ran(None, "it did not finish within %g seconds" % seconds)
    return Ran(process.returncode, output.decode("utf-8", "replace"))
