# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Measuring two things in turn, and saying what is being measured."""

from __future__ import annotations

import contextlib
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator


class UnavailableError(Exception):
    """Something to compare with, or to compare on, is not there; the text says what and how to get it."""


def require(programs: Iterable[str]) -> None:
    """Raise UnavailableError where a program is not there."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise UnavailableError("there is no %s to compare with" % ", no ".join(missing))


@contextlib.contextmanager
def told(what: str) -> Iterator[None]:
    """Say on the standard error what is going on, and how long it took."""
    begun = time.monotonic()
    print("-- %s ..." % what, file=sys.stderr, flush=True)
    try:
        yield
    finally:
        print("   %.0f s" % (time.monotonic() - begun), file=sys.stderr, flush=True)


def alternate(measures: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Call all measures in turn, ``rounds`` times over, and return each one's median.

    In turn, so that a slower minute of the machine falls on all of them; the order turns around with each round, so
    that none always follows the same one.
    """
    times: dict[str, list[float]] = {name: [] for name in measures}
    names = list(measures)
    for number in range(rounds):
        for name in names if number % 2 == 0 else reversed(names):
            times[name].append(measures[name]())
    return {name: statistics.median(values) for name, values in times.items()}
