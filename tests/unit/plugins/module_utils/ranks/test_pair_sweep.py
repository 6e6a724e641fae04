# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A rank of a pair sweep; its links, and what rank 0 decides, have tests of their own."""

from __future__ import annotations

import time

from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import (
    pair_sweep,
    sweep_leader,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks.pair_links import Team


def test_nodes_are_in_the_order_of_their_numbers():
    names = ["n10", "n2", "n1", "gpu3-2", "gpu3-10", "login"]
    assert sorted(names, key=pair_sweep.natural_key) == ["gpu3-2", "gpu3-10", "login", "n1", "n2", "n10"]


def eventually(condition, what, seconds=60.0):
    """Poll until the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened: " + what
        time.sleep(0.01)


class Output:
    """In place of a rank's output: keeps the stages."""

    def __init__(self):
        self.stages = []

    def stage(self, name):
        self.stages.append(name)


def swept(hosts):
    """Rank 0 of one rank on each host, without the others."""
    sweep = pair_sweep.Sweep({"sweep": {"backend": "gloo"}}, time.time() + 600)
    sweep.output, sweep.hosts = Output(), hosts
    sweep.members = [[rank] for rank in range(len(hosts))]
    return sweep


def test_a_rank_that_measures_long_says_so_and_takes_it_back(monkeypatch):
    monkeypatch.setattr(pair_sweep, "SLOW_SECONDS", 0.0)
    sweep = swept(["n1", "n2"])
    sweep.report["host"] = "n1"
    order = sweep_leader.Order("round", 1, [[0, 1]])
    with sweep.report_when_slow(order, Team("x", [0, 1], 0, [])):
        eventually(lambda: sweep.output.stages, "it is said")
    assert sweep.output.stages == ["round 1 with n2", "sweep"]
