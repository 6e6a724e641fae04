# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Divide the time that an operation may take among the sizes that are still to be measured."""

from __future__ import annotations

import time

TRIALS_SHARE = 0.5
"""Of the time that a size has, the part for its trials; the rest is for warming up and checking."""


class TimeBudget:
    """Track the time of an operation, by the clock of the slowest rank."""

    def __init__(self, seconds: float, sizes: int) -> None:
        self.seconds, self.left = seconds, sizes
        self.started = time.monotonic()
        self.spent = 0.0

    def elapsed(self) -> float:
        """Return the seconds by this rank's clock; :attr:`spent` is what all have agreed on."""
        return time.monotonic() - self.started

    def share(self) -> float:
        """Compute the seconds for the next size; infinite without a limit."""
        return max(0.0, self.seconds - self.spent) / max(1, self.left) if self.seconds else float("inf")

    def allows(self, seconds: float) -> bool:
        """Tell whether so many seconds are left."""
        return not self.seconds or self.spent + seconds <= self.seconds


def trials_within(most: int, seconds: float, cost: float) -> int:
    """Compute how many of the wanted trials fit into the seconds of a size, by the cost of one; at least one."""
    return max(1, int(min(most, seconds * TRIALS_SHARE / max(cost, 1e-9))))
