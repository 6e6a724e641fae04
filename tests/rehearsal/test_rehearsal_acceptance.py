# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A frozen release accepted again on a rehearsal cluster: a node is slow, another one, or has one GPU for two ranks.

It needs the whole release, which takes minutes, so it is asked for, with three compute nodes or more:
REHEARSAL_NODES=3 TORCHSTACK_REHEARSE=local tests/run pytest tests/rehearsal/test_rehearsal_acceptance.py
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib

import pytest
import rehearsals
from controllers import Controller

from rehearsal.nodes import LOGIN

SITE = os.environ.get("TORCHSTACK_REHEARSE", "")
RELEASE = "/shared/software/torchstack/2026-11-20"
RECORDS = "/shared/software/torchstack/.torchstack/2026-11-20"
INVENTORIES = ("-i", "inventories/local/hosts.yml", "-i", "inventories/rehearsal/local/hosts.yml")
CHECKS = ("imports", "devices", "horovod", "mpi4py", "torch_gloo")
OF_THE_USER = "/shared/home/researcher/.local/torchstack/local/2026-11-20/lib/python3.11/site-packages"
"""Where Python looks for an account's own start-up file; the release's module says so."""

pytestmark = pytest.mark.skipif(SITE != "local", reason="asked for by TORCHSTACK_REHEARSE=local")


@pytest.fixture(scope="module")
def rehearsed(cluster):
    """The cluster with the release rolled out."""
    assert "failed=0" in rehearsals.rehearse(cluster, SITE)
    return cluster


@pytest.fixture()
def accept(rehearsed, tmp_path):
    """Runs accept.yml on the login node, to a good end or to a bad one; what it printed, and the play's records."""

    def run(nodes, *words, good=True):
        log = tmp_path / "accept.log"
        extra = ["-e", "acceptance_nodes=%d" % nodes, *words]
        controller = Controller(rehearsed, log, "playbooks/accept.yml", *INVENTORIES, *extra)
        (controller.succeed if good else controller.fail)()
        return " ".join(controller.text.split())

    return run


@pytest.fixture()
def record(rehearsed):
    """Reads the record of that name."""
    return lambda name: json.loads(rehearsed.execute(LOGIN, "cat", "%s/%s.json" % (RECORDS, name)).stdout)


def privileged(cluster, node, line):
    """Run a line of shell on a node as a root that may change its network and what is mounted there."""
    words = ("exec", "--privileged", cluster.names.container(node), "sh", "-c", line)
    done = cluster.podman.run(*words)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


@contextlib.contextmanager
def slowed(cluster, node, rate):
    """A node whose network lets only so much out."""
    privileged(cluster, node, "tc qdisc add dev eth0 root tbf rate %s burst 256kb latency 50ms" % rate)
    try:
        yield
    finally:
        privileged(cluster, node, "tc qdisc del dev eth0 root")


@contextlib.contextmanager
def with_another_mpi(cluster, node):
    """A node on which the release's libmpi is another file at the same place."""
    path = "%s/base/lib/libmpi.so.12" % RELEASE
    other = "cat %s > /tmp/libmpi; echo other >> /tmp/libmpi; chmod 755 /tmp/libmpi" % path
    privileged(cluster, node, "%s; mount --bind /tmp/libmpi %s" % (other, path))
    try:
        yield
    finally:
        privileged(cluster, node, "umount %s; rm /tmp/libmpi" % path)


@contextlib.contextmanager
def with_one_gpu_for_all_ranks_of_a_node(cluster):
    """Ranks of the ordinary user to whom PyTorch shows a GPU; all of a node see the same."""
    text = (pathlib.Path(__file__).parent / "stand_in_gpu.py").read_text()
    line = "mkdir -p $1; printf %s \"$2\" > $1/usercustomize.py"
    assert cluster.execute(LOGIN, "bash", "-c", line, "bash", OF_THE_USER, text, user="researcher").returncode == 0
    try:
        yield
    finally:
        cluster.execute(LOGIN, "rm", "-r", OF_THE_USER)


def everywhere(cluster):
    """All compute nodes; a test of pairs needs three of them."""
    nodes = list(cluster.names.compute)
    if len(nodes) < 3:
        pytest.skip("with REHEARSAL_NODES=3 or more")
    return nodes


@pytest.mark.parametrize("nodes", [2, 3])
def test_mpi_and_gloo_are_right_and_measured_over_two_and_three_nodes(rehearsed, accept, record, nodes):
    if len(rehearsed.names.compute) < nodes:
        pytest.skip("with REHEARSAL_NODES=%d or more" % nodes)
    accept(nodes)
    found = record("acceptance")
    assert found["passed"] and len({rank["host"] for rank in found["ranks"]}) == nodes
    assert {check["name"] for check in found["checks"] if check["status"] == "passed"} >= set(CHECKS)
    measured = {row["backend"]: row for row in found["measurements"]}
    assert set(measured) == {"gloo", "mpi"}
    for row in measured.values():
        assert (row["ranks"], row["nodes"]) == (nodes, nodes)
        assert all(size["verified"] and size["busbw"] > 0 for size in row["rows"])
    assert all(len(set(row["hosts"])) == 2 for row in found["latency"])
    assert record("node_health")["passed"]
    assert b"<html" in rehearsed.execute(LOGIN, "cat", RECORDS + "/report.html").stdout


def test_s28_a_node_behind_a_slow_network_is_named_and_nobody_is_once_it_is_well(rehearsed, accept, record):
    nodes = everywhere(rehearsed)
    sweep = ("-e", "acceptance_sweep=true")
    with slowed(rehearsed, nodes[1], "400mbit"):
        said = accept(len(nodes), *sweep, good=False)
    found = record("sweep")
    assert [row["host"] for row in found["slow_nodes"]] == [nodes[1]] and found["slow_links"] == []
    assert nodes[1] in said and record("acceptance")["passed"]
    accept(len(nodes), *sweep)
    found = record("sweep")
    assert found["slow_nodes"] == found["slow_links"] == []


def test_s07_a_rank_with_another_libmpi_is_refused_and_named(rehearsed, accept, record):
    node = rehearsed.names.compute[1]
    with with_another_mpi(rehearsed, node):
        said = accept(2, good=False)
    assert "failed at libraries" in said and "on %s from" % node in said
    found = record("acceptance")
    assert not found["passed"] and {failure["check"] for failure in found["failures"]} == {"libraries"}


def test_s07_two_ranks_on_one_gpu_are_refused_and_named(rehearsed, accept, record):
    plain = {"acceptance_checks": ["imports", "devices", "mpi4py"], "acceptance_where_possible": []}
    ranks = {"acceptance_imports": ["torch"], "acceptance_ranks": 4, "acceptance_measure": {}}
    with with_one_gpu_for_all_ranks_of_a_node(rehearsed):
        said = accept(2, "-e", json.dumps({**plain, **ranks}), good=False)
    assert "failed at devices" in said and "ranks 0 and 1 use the same GPU" in said
    assert [rank["device_facts"]["kind"] for rank in record("acceptance")["ranks"]] == ["gpu"] * 4
