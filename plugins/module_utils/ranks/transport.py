# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Describe what the benchmark needs of a library that connects the ranks."""

from __future__ import annotations

from typing import Any, Callable, Protocol

from .expected_values import Layout


class Operation(Protocol):
    """Run one operation with its buffers, once for each call of :attr:`step`."""

    plan: Layout
    step: Callable[[], Any]

    def fill(self, seed: int) -> None:
        """Fill the buffers with this rank's values, shifted by ``seed``."""

    def mismatch(self, seed: int) -> str:
        """Describe the first wrong value of the result; empty where all are right."""

    def release(self) -> None:
        """Free the buffers."""


class Transport(Protocol):
    """Connect a group of ranks by a library."""

    backend: str
    provider: str
    device: str
    rank: int
    size: int
    max_elements: int
    """The largest number of elements in one operation."""

    def all_gather(self, thing: Any) -> list[Any]:
        """Gather what every rank has given, in their order."""

    def free_memory(self) -> tuple[str, int]:
        """Name the memory of this rank's buffers, and count the bytes that are free there."""

    def synchronize(self) -> None:
        """Wait until all operations that were launched are done."""

    def prepare(self, operation: str, plan: Layout, peer: int | None = None) -> Operation:
        """Allocate the buffers of one of :data:`.units.FACTORS`, or of ``message``: to one other rank and back."""

    def time_trials(
        self, step: Callable[[], Any], trials: int, blocking: bool, alone: bool = False
    ) -> tuple[float, list[float]]:
        """Measure the seconds of all trials together, and of each.

        Args:
            blocking: whether to wait for all ranks before each.
            alone: not all ranks do this; do not wait for the others.
        """
