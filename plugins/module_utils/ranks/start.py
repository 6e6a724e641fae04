# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Start the program of a rank with its question, its deadline, and what ends it when it hangs."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import signal
from typing import Any, Callable, Iterator, Protocol


class Program(Protocol):
    """Describe a rank's work, and its seconds until the deadline."""

    limit: float

    def run(self) -> int:
        """Do the work, and return an exit status."""


def run_program(arguments: list[str], program: Callable[[dict[str, Any], float], Program]) -> int:
    """Read the question, arm the stack dumps for a hang, run the program, and return its exit status.

    Args:
        arguments: the file of the question, and the deadline in seconds since the epoch.
        program: makes what works of both.
    """
    with open(arguments[0], encoding="utf-8") as stream:
        question = json.load(stream)
    made = program(question, float(arguments[1]))
    with _hang_guard(made.limit, question["patience"]):
        return made.run()


@contextlib.contextmanager
def _hang_guard(limit: float, patience: float) -> Iterator[None]:
    """Dump the stacks of a rank that hangs, on request or at its deadline, and kill it ``patience`` seconds later."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True, chain=False)
    faulthandler.dump_traceback_later(limit)
    # The kernel's alarm also ends a rank that never releases the interpreter lock.
    signal.alarm(int(limit) + int(patience))
    yield
    faulthandler.cancel_dump_traceback_later()
