# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a cluster asks of its batch system, whichever that is."""

from __future__ import annotations

import abc
import pathlib
import subprocess
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

Ask = Callable[..., subprocess.CompletedProcess[bytes]]
"""Runs a command, given as words, on the login node as root."""


class Programs(NamedTuple):
    """Programs of this machine that the nodes have a copy of."""

    here: pathlib.Path
    """the directory that holds them"""
    there: str
    """the directory on the nodes"""


class BatchSystem(abc.ABC):
    """A batch system of the cluster; its packages and services are a part of the nodes' image."""

    name: ClassVar[str]
    """As data have it, and as the directory of its part of the image is called."""

    title: ClassVar[str]
    """What is waited for, in a sentence."""

    shows_nodes: ClassVar[tuple[str, ...]]
    """The command that shows an operator in which state the nodes are."""

    programs: Programs | None = None
    """What the nodes have of this machine's."""

    def check(self) -> None:  # noqa: B027 - most need nothing of this machine
        """Look whether it can be had here, before anything begins.

        Raises:
            MissingError: it cannot.
        """

    @abc.abstractmethod
    def files(self, node: str, compute: Sequence[str]) -> dict[str, str]:
        """Give what is laid into a node before it starts, by path below the root.

        Args:
            node: the node's name.
            compute: the names of the compute nodes.
        """

    @abc.abstractmethod
    def ready(self, ask: Ask, compute: Sequence[str]) -> bool:
        """Tell whether every compute node can take a job, and the rollout account may submit one."""
