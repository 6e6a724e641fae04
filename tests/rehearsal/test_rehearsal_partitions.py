# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Two partitions of a rehearsal cluster with other GPUs: a release is built, and accepted on each by itself.

The GPUs are those of which a stand-in for nvidia-smi tells, four A100 on the first node and two L40S on the second;
PyTorch is made to see as many. The release is that of the local site without Horovod. It takes minutes, so it is asked
for: TORCHSTACK_REHEARSE=local tests/run pytest tests/rehearsal/test_rehearsal_partitions.py
"""

from __future__ import annotations

import json
import os
import pathlib

import pytest
import rehearsals
import yaml
from controllers import Controller
from support import sites

from rehearsal.checkout import CHECKOUT, PLACE, make_environment, send_checkout
from rehearsal.nodes import LOGIN

SITE = os.environ.get("TORCHSTACK_REHEARSE", "")
RELEASES = "/shared/home/rollout/releases-of-partitions"
HEALTH = "/shared/home/rollout/health-of-partitions"
RECORDS = "/shared/software/torchstack/.torchstack/partitions"
INVENTORIES = ("-i", "inventories/local/hosts.yml", "-i", "inventories/rehearsal/local/hosts.yml")
OF_THE_USER = "/shared/home/researcher/.local/torchstack/local/partitions/lib/python3.11/site-packages"
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


def partition(name, **expected):
    """The data of a partition."""
    jobs = {"options": {"partition": name}, "node": {"cuda": "12.4"}}
    return {"jobs": jobs, "ranks": {"nodes": 1, "per_node": 2}, "node_health_expected": expected}


PARTITIONS = {
    "a100": partition("a100", gpus=4, gpu_model="*A100*"), "l40s": partition("l40s", gpus=2, gpu_model="*L40S*")}
GIVEN = {
    "torchstack_release": "partitions", "torchstack_releases": RELEASES, "acceptance_reframe": False,
    "acceptance_checks": ["imports", "devices", "mpi4py"], "acceptance_where_possible": [], "acceptance_measure": {},
}

pytestmark = pytest.mark.skipif(SITE != "local", reason="asked for by TORCHSTACK_REHEARSE=local")


def release_file():
    """The release of the local site without Horovod and further packages."""
    release = yaml.safe_load(sites.whole_text(CHECKOUT / "inventories/local/releases/2026-11-20.yml"))
    release.update(release="partitions", title="PyTorch 2.13.0")
    for part in release["verification"].values():
        for key, rules in part.items():
            part[key] = [rule for rule in rules if "horovod" not in repr(rule)]
    return yaml.safe_dump({key: value for key, value in release.items() if key not in ("horovod", "packages")})


def write(cluster, node, path, text, user="root", mode="644"):
    line = "mkdir -p \"${1%/*}\"; printf %s \"$2\" > \"$1\"; chmod \"$3\" \"$1\""
    done = cluster.execute(node, "bash", "-c", line, "bash", path, text, mode, user=user)
    assert done.returncode == 0, done.stderr.decode()


@pytest.fixture(scope="module")
def site(cluster):
    """The cluster with a partition for each of two nodes, and their GPUs."""
    send_checkout(cluster)
    make_environment(cluster)
    write(cluster, LOGIN, RELEASES + "/partitions.yml", release_file(), "rollout")
    seen = (pathlib.Path(__file__).parent / "stand_in_gpu.py").read_text()
    write(cluster, LOGIN, OF_THE_USER + "/usercustomize.py", seen, "researcher")
    for (name, (of, model, count)), node in zip(GPUS.items(), cluster.names.compute):
        text = SMI % {"health": HEALTH, "of": of, "model": model, "count": count}
        write(cluster, node, "/usr/local/bin/nvidia-smi", text, mode="755")
        made = cluster.execute(LOGIN, "scontrol", "create", "PartitionName=" + name, "Nodes=" + node, "State=UP")
        assert made.returncode == 0 or b"already exists" in made.stdout + made.stderr
    locks = "cp -r %s/inventories/local/releases/2026-11-20 %s" % (PLACE, RELEASES)
    answers = "rm -rf %s && cp -r %s/tests/fixtures/health %s" % (HEALTH, PLACE, HEALTH)
    line = "%s && %s && chmod -R a+rX %s" % (locks, answers, HEALTH)
    assert cluster.execute(LOGIN, "bash", "-c", line, user="rollout").returncode == 0
    yield cluster
    cluster.execute(LOGIN, "rm", "-r", OF_THE_USER)
    for name, node in zip(GPUS, cluster.names.compute):
        cluster.execute(LOGIN, "scontrol", "delete", "PartitionName=" + name)
        cluster.execute(node, "rm", "/usr/local/bin/nvidia-smi")


@pytest.fixture()
def run(site, tmp_path):
    """Run a playbook with these partitions, to a good end or to a bad one; what it printed."""

    def play(playbook, *words, good=True, partitions=None):
        given = json.dumps({"torchstack_partitions": partitions or PARTITIONS, **GIVEN})
        controller = Controller(site, tmp_path / "play.log", playbook, *INVENTORIES, "-e", given, *words)
        assert (controller.wait(3600) == 0) is good, controller.text[-6000:]
        return " ".join(controller.text.split())

    return play


@pytest.fixture()
def record(site):
    """Reads a record of the release on a partition."""
    return lambda *names: json.loads(site.execute(LOGIN, "cat", "/".join((RECORDS, "partitions", *names))).stdout)


def jobs(cluster):
    """How many jobs there were that look at a compute node, look at nodes, and accept."""
    seen = [job.step for job in rehearsals.jobs(cluster).values()]
    return [seen.count("ts-" + name) for name in ("compute-preflight", "node_health", "acceptance")]


def test_two_partitions_with_other_gpus_are_accepted_separately_and_the_second_rollout_changes_nothing(
    site, run, record
):
    before = jobs(site)
    planned = run("playbooks/local.yml", "--check")
    assert "Partition a100: its nodes looked at, and the release accepted on them" in planned
    assert jobs(site) == before

    shown = run("playbooks/local.yml")
    # One node on which steps run is looked at besides.
    assert [now - then for now, then in zip(jobs(site), before)] == [3, 2, 2]
    for (name, (_of, model, count)), node in zip(GPUS.items(), site.names.compute):
        looked, health, accepted = (
            record(name, kind + ".json") for kind in ("compute", "node_health", "acceptance"))
        assert looked["facts"]["machine"]["host"] == node and looked["facts"]["gpus"]["names"] == [model] * count
        assert health["passed"] and [seen["host"] for seen in health["nodes"]] == [node]
        assert [gpu["name"] for seen in health["nodes"] for gpu in seen["facts"]["gpus"]] == [model] * count
        assert accepted["passed"] and accepted["partition"] == name
        assert {rank["host"] for rank in accepted["ranks"]} == {node} and len(accepted["ranks"]) == 2
        # The release is one for CPUs, whose ranks only count what PyTorch sees.
        assert [rank["device_facts"]["gpus_unused"] for rank in accepted["ranks"]] == [count] * 2
        assert "Checked, partition %s: imports, devices, mpi4py" % name in shown
        assert "Checked: a compute node of partition %s, by a job" % name in shown
    page = site.execute(LOGIN, "cat", RECORDS + "/report.html").stdout.decode()
    assert "Acceptance on partition a100" in page and "Acceptance on partition l40s" in page

    done = jobs(site)
    assert "changed=0" in run("playbooks/local.yml") and jobs(site) == done


def test_one_partition_is_accepted_by_its_name_and_nodes_with_other_gpus_are_refused(site, run, record):
    before = jobs(site)
    run("playbooks/accept.yml", "-e", "torchstack_partition=l40s")
    assert [now - then for now, then in zip(jobs(site), before)] == [0, 1, 1]
    said = run("playbooks/accept.yml", "-e", "torchstack_partition=l40", good=False)
    assert "torchstack_partition is l40, which is no partition of site local; did you mean 'l40s'?" in said
    wrong = {**PARTITIONS, "l40s": partition("l40s", gpus=4, gpu_model="*A100*")}
    said = run("playbooks/accept.yml", good=False, partitions=wrong)
    assert "The nodes of partition l40s are not fit." in said and record("a100", "node_health.json")["passed"]
    said = run("playbooks/publish.yml", good=False, partitions={**PARTITIONS, "h100": partition("a100")})
    assert "has not been accepted on partition h100" in said
