# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""`make rehearse SITE=local` to its end: a whole release, built in jobs on nodes without network.

It compiles Horovod, which takes minutes, so it is asked for: TORCHSTACK_REHEARSE=local tests/run pytest tests/rehearsal
"""

from __future__ import annotations

import os
import re

import pytest
import rehearsals
from rehearsals import jobs
from support.console import changed_in

SITE = os.environ.get("TORCHSTACK_REHEARSE", "")

pytestmark = pytest.mark.skipif(SITE != "local", reason="asked for by TORCHSTACK_REHEARSE=local")


@pytest.fixture(scope="module")
def rehearse(cluster):
    """Runs `make rehearse` on the tests' cluster; what it printed."""
    return lambda *arguments: rehearsals.rehearse(cluster, SITE, *arguments)


@pytest.fixture(scope="module")
def rehearsed(cluster, rehearse):
    """What the first rehearsal printed, and the jobs that it submitted."""
    before = jobs(cluster)
    printed = rehearse()
    return printed, {job: seen for job, seen in jobs(cluster).items() if job not in before}


def test_what_is_built_is_built_once_in_a_job_on_a_compute_node(cluster, rehearsed):
    printed, submitted = rehearsed
    assert "failed=0" in printed
    assert {job.state for job in submitted.values()} == {"COMPLETED"}
    steps = {job.step: job for job in submitted.values()}
    assert {"ts-compute-preflight", "ts-mpi4py", "ts-horovod", "ts-acceptance"} <= set(steps)
    assert len(steps) == len(submitted)
    # The ordinary user's ranks are on all nodes.
    acceptance = steps.pop("ts-acceptance")
    assert (acceptance.user, acceptance.account, acceptance.nodes) == ("researcher", "science", "compute[1-2]")
    health = steps.pop("ts-node_health")
    assert (health.user, health.account, health.nodes) == ("rollout", "staff", acceptance.nodes)
    assert {(job.user, job.account) for job in steps.values()} == {("rollout", "staff")}
    assert {job.nodes for job in steps.values()} <= set(cluster.names.compute)


def test_the_rehearsal_lists_what_it_replaced(rehearsed):
    printed, _submitted = rehearsed
    table = printed[printed.index("Replaced by the rehearsal") :]
    assert re.search(r"torchstack_root +\{\{ lookup.* /shared/software/torchstack", table)
    assert re.search(r'torchstack_jobs +\(not set\) +\{', table)


def test_a_second_rehearsal_changes_nothing_and_submits_nothing(cluster, rehearsed, rehearse):
    before = jobs(cluster)
    assert changed_in(rehearse()) == 0
    assert jobs(cluster) == before


def test_an_ordinary_user_finds_and_loads_the_release_on_all_nodes(cluster, on, rehearsed):
    for node in ("login", *cluster.names.compute):
        assert "torchstack/" in on(node, "module --terse spider torchstack 2>&1", user="researcher").text
        on(node, "module load torchstack && python3 -c 'import torch, horovod.torch'", user="researcher")
