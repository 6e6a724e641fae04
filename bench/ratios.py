# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Two ways to do the same, timed in turns, as medians and their ratio."""

from __future__ import annotations

import os
import pathlib
import statistics
import sys
import time
from typing import Callable

RELEASE = "2026-11-20"


def release() -> pathlib.Path:
    """The finished release of the `local` site that is measured on."""
    root = pathlib.Path(os.environ.get("TORCHSTACK_ROOT", "~/torchstack")).expanduser()
    if not (root / "modulefiles").is_dir():
        sys.exit("There is no finished release in %s to measure on: roll one out, or set TORCHSTACK_ROOT." % root)
    return root / RELEASE


def compare(ways: dict[str, Callable[[], object]], runs: int) -> dict[str, float]:
    """Seconds of each way, the median of some runs; the ways take turns, so that load meets all of them."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _run in range(runs):
        for name, act in ways.items():
            begun = time.monotonic()
            act()
            times[name].append(time.monotonic() - begun)
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, value in medians.items():
        print("%-28s %7.2f s (median of %d)" % (name, value, runs))
    return medians


def say_ratio(slower: float, faster: float, goal: str) -> None:
    """Print how many times one is the other."""
    print("%-28s %7.2f (goal: %s)\n" % ("ratio", slower / faster, goal))
