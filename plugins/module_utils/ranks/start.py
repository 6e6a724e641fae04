# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How the program of a rank begins: with its question, its deadline, and what ends it when it hangs."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import signal
from typing import Any, Callable, Iterator, Protocol


class Program(Protocol):
    """What a rank does: its seconds until the deadline, and its work, which returns an exit status."""

    limit: float

    def run(self) -> int:
        """Do it."""


def start(arguments: list[str], program: Callable[[dict[str, Any], float], Program]) -> int:
    """Read the question, arm the dumps for a hang, and work.

    Args:
        arguments: the file of the question, and the deadline in seconds since the epoch.
        program: makes what works of both.

    Returns:
        the exit status.
    """
    with open(arguments[0], encoding="utf-8") as stream:
        question = json.load(stream)
    made = program(question, float(arguments[1]))
    with _armed(made.limit, question["patience"]):
        return made.run()


@contextlib.contextmanager
def _armed(limit: float, patience: float) -> Iterator[None]:
    """Have a rank that hangs print its stacks when asked or too late, and end it for good after that.

    Args:
        limit: seconds from now to its deadline.
        patience: seconds after it.
    """
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True, chain=False)
    faulthandler.dump_traceback_later(limit)
    # The kernel's own alarm also ends a rank on another node that holds the interpreter lock for ever.
    signal.alarm(int(limit) + int(patience))
    yield
    faulthandler.cancel_dump_traceback_later()
