# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The cluster's Slurm: its configuration on this machine, and whether it is ready."""

from __future__ import annotations

import os
import pathlib
import string
from collections.abc import Sequence

from .batch_system import Ask, BatchSystem

TEMPLATE = pathlib.Path(__file__).resolve().parent / "slurm.conf"

LEAST_PROCESSORS = 2
"""Said of every node even where there are fewer, so that jobs of a site may ask for two."""

FIT = ("idle", "mix", "alloc", "comp", "drain", "drng", "drained", "draining", "resv", "maint", "plnd")
"""States of a node that has answered, in the short form of sinfo(1); what an operator drained on purpose is one."""


class Slurm(BatchSystem):
    """Slurm of the distribution, with accounting."""

    name = "slurm"
    title = "Slurm and its accounting"
    shows_nodes = ("sinfo", "--Node", "--long")

    def files(self, node: str, compute: Sequence[str]) -> dict[str, str]:
        """Give slurm.conf(5), which is the same on all nodes."""
        return {"etc/slurm/slurm.conf": configuration(compute)}

    def ready(self, ask: Ask, compute: Sequence[str]) -> bool:
        """Tell whether Slurm has all nodes and its accounting answers."""
        answer = ask("sinfo", "--noheader", "--Node", "--partition=compute", "--format=%N %t")
        fit = {line.split()[0] for line in answer.stdout.decode().splitlines() if line.split()[1] in FIT}
        if answer.returncode != 0 or not fit.issuperset(compute):
            return False
        known = ask("sacctmgr", "--noheader", "show", "association", "where", "user=rollout")
        return known.returncode == 0 and b"staff" in known.stdout


def configuration(nodes: Sequence[str]) -> str:
    """The text of slurm.conf(5).

    Every node is said to have all processors of this machine, which they share, and an equal part of its memory.

    Args:
        nodes: the compute nodes' names.
    """
    processors = max(os.cpu_count() or 1, LEAST_PROCESSORS)
    memory = _memory() // (len(nodes) or 1)
    return string.Template(TEMPLATE.read_text()).substitute(
        nodes=",".join(nodes), cpus=processors, memory=memory, memory_per_cpu=memory // processors
    )


def _memory() -> int:
    """This machine's memory in MiB."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
