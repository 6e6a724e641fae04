# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Two partitions of a rehearsal cluster with other GPUs, each looked at and accepted by itself in one rollout.

The GPUs are those of which a stand-in for nvidia-smi tells, four A100 on the first node and two L40S on the second;
PyTorch is made to see as many. It needs the whole release, which takes minutes, so it is asked for:
TORCHSTACK_REHEARSE=local tests/run pytest tests/rehearsal/test_rehearsal_partitions.py
"""

from __future__ import annotations

import json
import os
import pathlib

import pytest
import rehearsals
from controllers import Controller

from rehearsal.checkout import PLACE
from rehearsal.nodes import LOGIN

SITE = os.environ.get("TORCHSTACK_REHEARSE", "")
RECORDS = "/shared/software/torchstack/.torchstack/2026-11-20"
INVENTORIES = ("-i", "inventories/local/hosts.yml", "-i", "inventories/rehearsal/local/hosts.yml")
OF_THE_USER = "/shared/home/researcher/.local/torchstack/local/2026-11-20/lib/python3.11/site-packages"
"""Where Python looks for an account's own start-up file; the release's module says so."""

SMI = """\
#!/bin/sh
case "$*" in
    "-q -x") exec sed "s/NVIDIA H200/NVIDIA L40S/" %(health)s/%(of)s/q.xml ;;
    "nvlink -s") exec cat %(health)s/%(of)s/nvlink-s.txt ;;
    "nvlink -e") exec cat %(health)s/%(of)s/nvlink-e.txt ;;
    "--query-gpu=driver_version,name --format=csv,noheader") yes "580.159.04, %(model)s" | head -n %(count)d ;;
    *) exec cat %(health)s/%(of)s/remapped-rows.csv ;;
esac
"""
GPUS = {"a100": ("a100-525", "NVIDIA A100-SXM4-40GB", 4), "l40s": ("h200-580", "NVIDIA L40S", 2)}
PARTITIONS = {
    "a100": {"jobs": {"options": {"partition": "a100"}}, "ranks": {"nodes": 1, "per_node": 2},
             "node_health_expected": {"gpus": 4, "gpu_model": "*A100*"}},
    "l40s": {"jobs": {"options": {"partition": "l40s"}}, "ranks": {"nodes": 1, "per_node": 2},
             "node_health_expected": {"gpus": 2, "gpu_model": "*L40S*"}},
}
PLAIN = {
    "acceptance_checks": ["imports", "devices", "mpi4py"], "acceptance_where_possible": [], "acceptance_measure": {},
    "acceptance_imports": ["torch"]}

pytestmark = pytest.mark.skipif(SITE != "local", reason="asked for by TORCHSTACK_REHEARSE=local")


@pytest.fixture(scope="module")
def site(cluster):
    """The cluster with the release rolled out, and with a partition for each of two nodes."""
    assert "failed=0" in rehearsals.rehearse(cluster, SITE)
    for name, node in zip(GPUS, cluster.names.compute):
        of, model, count = GPUS[name]
        text = SMI % {"health": PLACE + "/tests/fixtures/health", "of": of, "model": model, "count": count}
        line = "printf %s \"$1\" > /usr/local/bin/nvidia-smi && chmod 755 /usr/local/bin/nvidia-smi"
        assert cluster.execute(node, "bash", "-c", line, "bash", text).returncode == 0
        made = cluster.execute(LOGIN, "scontrol", "create", "PartitionName=" + name, "Nodes=" + node, "State=UP")
        assert made.returncode == 0 or b"already exists" in made.stdout + made.stderr
    seen = (pathlib.Path(__file__).parent / "stand_in_gpu.py").read_text()
    line = "mkdir -p $1; printf %s \"$2\" > $1/usercustomize.py"
    assert cluster.execute(LOGIN, "bash", "-c", line, "bash", OF_THE_USER, seen, user="researcher").returncode == 0
    yield cluster
    cluster.execute(LOGIN, "rm", "-r", OF_THE_USER)
    for name, node in zip(GPUS, cluster.names.compute):
        cluster.execute(LOGIN, "scontrol", "delete", "PartitionName=" + name)
        cluster.execute(node, "rm", "/usr/local/bin/nvidia-smi")


@pytest.fixture()
def run(site, tmp_path):
    """Run a playbook with these partitions, to a good end or to a bad one; what it printed."""

    def play(playbook, *words, good=True, partitions=None):
        given = json.dumps({"torchstack_partitions": partitions or PARTITIONS, **PLAIN})
        controller = Controller(site, tmp_path / "play.log", playbook, *INVENTORIES, "-e", given, *words)
        (controller.succeed if good else controller.fail)()
        return " ".join(controller.text.split())

    return play


@pytest.fixture()
def record(site):
    """Reads a record of the release on a partition."""
    return lambda *names: json.loads(site.execute(LOGIN, "cat", "/".join((RECORDS, "partitions", *names))).stdout)


def steps(cluster):
    """How many jobs of each step there were, by what the acceptance and the look at nodes are called."""
    seen = [job.step for job in rehearsals.jobs(cluster).values()]
    return [seen.count("ts-" + name) for name in ("node_health", "acceptance")]


def test_two_partitions_with_other_gpus_are_accepted_separately_and_the_second_rollout_changes_nothing(
    site, run, record
):
    before = steps(site)
    planned = run("playbooks/local.yml", "--check")
    assert "Partition a100: its nodes looked at, and the release accepted on them" in planned
    assert steps(site) == before

    shown = run("playbooks/local.yml")
    assert steps(site) == [before[0] + 2, before[1] + 2]
    for (name, (_of, model, count)), node in zip(GPUS.items(), site.names.compute):
        health, accepted = record(name, "node_health.json"), record(name, "acceptance.json")
        assert health["passed"] and [seen["host"] for seen in health["nodes"]] == [node]
        assert [gpu["name"] for seen in health["nodes"] for gpu in seen["facts"]["gpus"]] == [model] * count
        assert accepted["passed"] and accepted["partition"] == name
        assert {rank["host"] for rank in accepted["ranks"]} == {node} and len(accepted["ranks"]) == 2
        assert [rank["device_facts"]["name"] for rank in accepted["ranks"]] == [model] * 2
        assert "Checked, partition %s: imports, devices, mpi4py" % name in shown
    page = site.execute(LOGIN, "cat", RECORDS + "/report.html").stdout.decode()
    assert "Acceptance on partition a100" in page and "Acceptance on partition l40s" in page

    done = steps(site)
    assert "changed=0" in run("playbooks/local.yml") and steps(site) == done


def test_one_partition_is_accepted_by_its_name_and_nodes_with_other_gpus_are_refused(site, run, record):
    before = steps(site)
    run("playbooks/accept.yml", "-e", "torchstack_partition=l40s")
    assert steps(site) == [before[0] + 1, before[1] + 1]
    said = run("playbooks/accept.yml", "-e", "torchstack_partition=l40", good=False)
    assert "torchstack_partition is l40, which is no partition of site local; did you mean 'l40s'?" in said
    wrong = {**PARTITIONS, "l40s": {**PARTITIONS["l40s"], "node_health_expected": {"gpus": 4, "gpu_model": "*A100*"}}}
    said = run("playbooks/accept.yml", good=False, partitions=wrong)
    assert "The nodes of partition l40s are not fit." in said and record("a100", "node_health.json")["passed"]
    new = {**PARTITIONS, "h100": {"jobs": {"options": {"partition": "a100"}}}}
    said = run("playbooks/publish.yml", "-e", "publish_to=default", good=False, partitions=new)
    assert "has not been accepted on partition h100" in said
