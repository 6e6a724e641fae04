# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A site with two partitions of other GPUs and a real Slurm: each is looked at, accepted and named by itself.

The GPUs are those of which a stand-in for nvidia-smi tells, another model and number in each partition.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import partitions, site_jobs
from support import slurm_cluster
from support.role_plays import play_tasks

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = CHECKOUT / "tests" / "fixtures"

SMI = """\
#!/bin/sh
# Four A100 in one partition, two L40S in the other; what they say besides is that of a real A100 and a real H200.
case $SLURM_JOB_PARTITION in a100) of=a100-525 ;; l40s) of=h200-580 ;; *) echo "No devices were found"; exit 6 ;; esac
case "$*" in
    "-q -x") exec sed "s/NVIDIA H200/NVIDIA L40S/" %(health)s/$of/q.xml ;;
    "nvlink -s") exec cat %(health)s/$of/nvlink-s.txt ;;
    "nvlink -e") exec cat %(health)s/$of/nvlink-e.txt ;;
    *) exec cat %(health)s/$of/remapped-rows.csv ;;
esac
"""
RANKS = {
    "launcher": ["srun", "--nodes={nodes}", "--ntasks={ranks}", "--ntasks-per-node={per_node}", "--overcommit"],
    "nodes": 1, "per_node": 2,
}
SITE = {
    "site": "mysite", "release": "r1", "acceptance": {}, "ranks": RANKS,
    "jobs": {"launcher": "slurm", "options": {"partition": "main", "cores": 2, "python": sys.executable}},
}
A100 = {"jobs": {"options": {"partition": "a100"}}, "node_health_expected": {"gpus": 4, "gpu_model": "*A100*"}}
L40S = {
    "jobs": {"options": {"partition": "l40s"}}, "ranks": {"per_node": 1},
    "node_health_expected": {"gpus": 2, "gpu_model": "*L40S*"}}


@pytest.fixture(name="cluster", scope="module")
def one_cluster(tmp_path_factory):
    with slurm_cluster.running(tmp_path_factory.mktemp("w"), partitions={"a100": "n1", "l40s": "n2"}) as world:
        yield world


@pytest.fixture()
def records(tmp_path):
    """What is recorded of the release, on one partition or on none."""
    return lambda *names: tmp_path.joinpath("root", ".torchstack", "r1", *names)


@pytest.fixture()
def play(cluster, ansible_environment, tmp_path):
    """Run the main tasks of a role for a site with these partitions; the exit code and what was shown."""
    packages = tmp_path / "root" / "r1" / "lib" / "mpi4py"
    packages.mkdir(parents=True)
    (packages / "__init__.py").write_text("")
    shutil.copy(FIXTURES / "acceptance" / "MPI.py", packages)
    (tmp_path / "exchange").mkdir()
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "nvidia-smi").write_text(SMI % {"health": FIXTURES / "health"})
    (programs / "nvidia-smi").chmod(0o755)
    environment = {"PATH": "%s:%s" % (programs, slurm_cluster.SYSTEM_PATH), "PYTHONPATH": str(packages.parent),
                   "FAKE_MPI_DIRECTORY": str(tmp_path / "exchange"), "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": str(slurm_cluster.free_ports(1)[0])}

    def run(role, *options, a100=A100, l40s=L40S, wrong_on="", tasks="main", **variables):
        site = {**SITE, "partitions": {"a100": a100, "l40s": l40s}}
        context = {
            "release": "r1", "root": str(tmp_path / "root"), "prefix": str(tmp_path / "root" / "r1"), "digest": "s1",
            "subject": "s1", "frozen": False, "base": {"python": sys.executable, "kind": "python_overlay"},
            "python": {"executable": os.path.realpath(sys.executable), "version": "%d.%d.%d" % sys.version_info[:3]},
            "compilers": {"CC": "cat"}, "mpi": {"provider": "wheel"},
            **site_jobs.describe({"torchstack_jobs": SITE["jobs"], "torchstack_ranks": RANKS}),
            "acceptance": {}, "partitions": partitions.describe(site)}
        wrong = "{{ {'FAKE_MPI_OFF_BY_ONE': '1'} if acceptance_partition == '%s' else {} }}" % wrong_on
        given = {
            "release_context": context, "torchstack_site": "mysite", "torchstack_release": "r1",
            "torchstack_root": context["root"], "torchstack_required_bytes": 1, "torchstack_required_inodes": 1,
            "node_health_module": "", "node_health_python": sys.executable, "node_health_environment": environment,
            "node_health_thresholds": {}, "node_health_directories": [],
            "acceptance_module_system": "none", "acceptance_imports": ["mpi4py.MPI"], "acceptance_checks": ["mpi4py"],
            "acceptance_where_possible": [], "acceptance_measure": {}, "own_environment": environment,
            "wrong_environment": wrong, "acceptance_environment": "{{ own_environment | combine(wrong_environment) }}",
            **variables}
        path = os.path.dirname(sys.executable) + ":" + slurm_cluster.SYSTEM_PATH
        whole = {**ansible_environment, **cluster.environment, "PATH": path}
        done = play_tasks(role, tasks, given, [{}], whole, tmp_path, *options)
        return done.returncode, " ".join(done.stdout.split())

    return run


def read(path):
    return json.loads(path.read_text())


def test_two_partitions_with_other_gpus_are_looked_at_and_accepted_separately(play, cluster, records):
    code, shown = play("node_health")
    assert code == 0 and len(cluster.jobs("ts-node_health-")) == 2, shown
    for name, count, model in (("a100", 4, "NVIDIA A100-SXM4-40GB"), ("l40s", 2, "NVIDIA L40S")):
        record = read(records("partitions", name, "node_health.json"))
        assert record["passed"] and record["partition"] == name
        assert [gpu["name"] for node in record["nodes"] for gpu in node["facts"]["gpus"]] == [model] * count

    code, shown = play("acceptance", "--check")
    assert code == 0 and cluster.jobs("ts-acceptance-") == [], shown

    # What is wrong on one keeps the other from nothing.
    code, shown = play("acceptance", wrong_on="a100")
    assert code != 0 and "Release r1 is not accepted on partition a100." in shown, shown
    assert "The acceptance of r1 on partition a100 failed at mpi4py" in shown
    assert not read(records("partitions", "a100", "acceptance.json"))["passed"]
    accepted = read(records("partitions", "l40s", "acceptance.json"))
    assert accepted["passed"] and accepted["partition"] == "l40s" and len(accepted["ranks"]) == 1
    assert len(cluster.jobs("ts-acceptance-")) == 2

    code, shown = play("acceptance")
    assert code == 0 and len(cluster.jobs("ts-acceptance-")) == 3, shown
    assert len(read(records("partitions", "a100", "acceptance.json"))["ranks"]) == 2
    assert read(records("partitions.json")) == {"a100": {}, "l40s": {}}
    assert not records("acceptance.json").exists() and not records("node_health.json").exists()

    code, shown = play("acceptance")
    assert code == 0 and "changed=0" in shown and len(cluster.jobs("ts-acceptance-")) == 3, shown

    code, shown = play("acceptance", torchstack_partition="l40s", acceptance_again=True)
    assert code == 0 and len(cluster.jobs("ts-acceptance-")) == 4, shown
    assert len(records("partitions", "l40s", "acceptance.jsonl").read_text().splitlines()) == 2


def test_pairs_of_nodes_are_measured_on_each_partition(play, cluster, records):
    if not slurm_cluster.namespaces_allowed():
        pytest.skip("the nodes of this cluster all have the machine's name")
    # All nodes are this machine: how fast they are says nothing.
    tried = {"acceptance_sweep_backend": "tcp", "acceptance_sweep_size": "1 MiB", "acceptance_sweep_trials": 2,
             "acceptance_sweep_thresholds": {"suspect": 0.02, "slow": 0.02}}
    both = {"ranks": {"nodes": 2, "per_node": 1}}
    code, shown = play("acceptance", tasks="sweep", a100=both, l40s=both, **tried)
    assert code == 0 and len(cluster.jobs("ts-sweep-")) == 2, shown
    found = [read(records("partitions", name, "sweep.json")) for name in ("a100", "l40s")]
    assert [(sweep["partition"], sweep["hosts"]) for sweep in found] == [(n, ["n1", "n2"]) for n in ("a100", "l40s")]
    # One node makes no pair, and that keeps the other partition from nothing.
    code, shown = play("acceptance", tasks="sweep", a100={"ranks": {"nodes": 1}}, l40s=both, **tried)
    assert code != 0 and "Release r1 has slow or silent pairs of nodes on partition a100." in shown, shown
    assert "nodes is 1: that makes no pair" in shown


def test_nodes_of_an_optional_partition_stop_nothing_and_of_one_left_out_are_not_asked(play, cluster, records):
    before = len(cluster.jobs("ts-"))
    unfit = dict(L40S, node_health_expected={"gpus": 8}, optional="They are lent for tests.")
    left_out = dict(A100, left_out={"r1": "They are being moved."})
    code, shown = play("node_health", a100=left_out, l40s=unfit)
    assert code == 0 and "The nodes of partition l40s, which is optional (They are lent for tests.)" in shown, shown
    assert "2 GPUs are seen" in shown and len(cluster.jobs("ts-")) == before + 1
    assert not records("partitions", "a100").exists()
    code, shown = play("node_health", l40s=dict(unfit, optional=""))
    assert code != 0 and "The nodes of partition l40s are not fit." in shown, shown
    code, shown = play("node_health", a100=left_out, l40s=unfit, torchstack_partition="l40s")
    assert code != 0 and "The nodes of partition l40s are not fit." in shown, shown


def test_a_node_of_each_partition_is_looked_at_before_anything_is_built(play, cluster, records):
    many = {**L40S["jobs"], "node": {"cores": 1000}}
    code, shown = play("release", tasks="compute", l40s=dict(L40S, jobs=many))
    assert code != 0 and "Nothing was built. A node of partition l40s will not do:" in shown, shown
    assert "and 1000 are expected" in shown and len(cluster.jobs("ts-compute-preflight")) == 3
    assert records("partitions", "a100", "compute.json").exists() and records("compute.json").exists()
    code, shown = play("release", tasks="compute")
    assert code == 0 and len(cluster.jobs("ts-compute-preflight")) == 4, shown
    code, shown = play("release", tasks="compute")
    assert code == 0 and "changed=0" in shown and len(cluster.jobs("ts-compute-preflight")) == 4, shown
