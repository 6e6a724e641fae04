# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run one short command, never longer than agreed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import NamedTuple, Sequence

from .processes import start_program
from .redaction import without_credentials


class Outcome(NamedTuple):
    """How a command ended."""

    code: int | None
    """Its exit code; negative for the signal that ended it; None where it did not start or not finish."""
    output: str
    errors: str
    problem: str
    """Why there is no exit code, as the end of a sentence; empty where there is one."""

    @property
    def ok(self) -> bool:
        """Tell whether it ended with exit code 0."""
        return self.code == 0

    @property
    def complaint(self) -> str:
        """Return the line that says best what went wrong: the first with the word error, else the last."""
        if self.problem:
            return self.problem
        lines = [line.strip() for line in (self.errors or self.output).splitlines() if line.strip()]
        telling = [line for line in lines if "error" in line.lower()] or lines[-1:]
        return without_credentials(telling[0])[:300] if telling else "it ended with exit code %s" % self.code


def run(
    words: Sequence[str], timeout: float, directory: str = "/", environment: dict[str, str] | None = None,
    given: bytes | None = None,
) -> Outcome:
    """Run a command without terminal, and end it with all its children after ``timeout`` seconds.

    Its input is what is ``given``, or nothing.

    The first word is looked up in PATH and never resolved any further, because compiler drivers of Cray systems look at
    the name that they were called by. Messages are asked for in plain English, also in an environment that is given.
    """
    variables = dict(os.environ if environment is None else environment, LC_ALL="C")
    try:
        process = start_program(
            list(words), stdin=subprocess.DEVNULL if given is None else subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, cwd=directory, env=variables, start_new_session=True,
        )
    except OSError as error:
        return Outcome(None, "", "", "it cannot be run (%s)" % (error.strerror or error))
    with process:
        try:
            output, errors = process.communicate(given, timeout=timeout)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            # A child that left the process group may keep the pipes open; what it says is not waited for.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=1)
            return Outcome(None, "", "", "it did not finish within %g seconds" % timeout)
    return Outcome(process.returncode, output.decode("utf-8", "replace"), errors.decode("utf-8", "replace"), "")
