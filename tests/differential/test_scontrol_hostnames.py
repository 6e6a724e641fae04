# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Host lists, as module_utils/standalone/hostlist.py and Slurm itself write them out."""

from __future__ import annotations

import random
import re
import shutil
import subprocess

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.standalone import hostlist
from ansible_collections.hpcml.torchstack.plugins.module_utils.standalone import rank_environment as ranks

CASES = 150


@pytest.fixture()
def scontrol(tmp_path):
    """Ask Slurm; None where it refuses."""
    program = shutil.which("scontrol", path="/usr/bin:/bin")
    if program is None:
        pytest.skip("not installed: scontrol")
    configuration = tmp_path / "slurm.conf"
    configuration.write_text("ClusterName=any\nSlurmctldHost=localhost\nNodeName=n1\nPartitionName=p Nodes=ALL\n")

    def ask(text):
        done = subprocess.run(
            [program, "show", "hostnames", text], env={"SLURM_CONF": str(configuration)}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=True)
        return None if done.stderr else done.stdout.split()

    return ask


def _number(dice):
    return dice.choice(("%d", "%02d", "%03d", "%05d")) % dice.randrange(120)


def _range(dice):
    if dice.random() < 0.5:
        return _number(dice)
    low = dice.randrange(110)
    # Now and then a range that ends before it begins.
    return dice.choice(("%d-%d", "%03d-%03d", "%02d-%d")) % (low, low + dice.randrange(-1, 6))


def _name(dice):
    parts = []
    for _group in range(dice.choice((0, 1, 1, 1, 2, 3))):
        parts.append(dice.choice(("n", "nid", "nid001-a", "r0.x", "", "c1-")))
        parts.append("[%s]" % ",".join(_range(dice) for _word in range(dice.randrange(1, 4))))
    if not parts or dice.random() < 0.05:
        parts.append(dice.choice(("login", "n7", "e-ib", "x01y")))
    return "".join(parts)


def test_s35_a_list_of_hosts_is_that_of_slurm(scontrol):
    dice = random.Random(35)
    refused = 0
    for _case in range(CASES):
        text = dice.choice((",", ", ", " ")).join(_name(dice) for _word in range(dice.randrange(1, 4)))
        try:
            mine = hostlist.expand(text)
        except hostlist.HostListError:
            mine = None
        theirs = scontrol(text)
        if theirs is None and re.search(r"\][^\[,\s]", text):
            # Before 24.11 Slurm knew nothing behind the last bracket.
            continue
        assert mine == theirs, text
        refused += mine is None
        if mine and " " not in text:
            assert ranks.first_host(text) == mine[0], text
    assert 0 < refused < CASES / 2
