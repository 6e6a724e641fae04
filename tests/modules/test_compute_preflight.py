# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The look at a compute node: the module by itself, and in its role with a real Slurm."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
from pbs.world import World
from support import slurm_cluster


@pytest.fixture()
def site(tmp_path):
    """An opened release and the module's arguments."""
    root = tmp_path / "root"
    (root / "r1").mkdir(parents=True)
    (root / ".torchstack" / "r1").mkdir(parents=True)
    return {
        "root": str(root), "release": "r1", "launcher": "slurm", "options": {"python": sys.executable},
        "node": {"tmpdir": "/tmp"}, "programs": {"CC": "cat"}, "wait": 1,
    }


def records(site):
    return pathlib.Path(site["root"], ".torchstack", "r1")


def perform(asked):
    """What the job of the step does."""
    subprocess.run(["/bin/bash", "-euc", asked["script"]], stdout=subprocess.DEVNULL, check=True)


def test_check_do_check_again_do_again(run_module, site):
    planned = run_module("compute_preflight", site, check=True)
    assert not planned.changed and planned["needed"] and planned["reason"] == "no compute node was looked at yet"
    assert list(records(site).iterdir()) == []
    asked = run_module("compute_preflight", site)
    assert asked["state_dir"] == str(records(site) / "compute")
    perform(asked)
    judged = run_module("compute_preflight", dict(site, state="judged"))
    assert not judged.failed, judged.console
    assert judged["facts"]["machine"]["host"] == os.uname().nodename
    assert all(finding["ok"] for finding in judged["findings"])
    for check in (True, False):
        again = run_module("compute_preflight", site, check=check)
        assert not again["needed"] and not again.changed and again["findings"] == judged["findings"]
    changed = run_module("compute_preflight", dict(site, node={"tmpdir": "/tmp", "cores": 1}))
    assert changed["reason"] == "the site's data has changed" and changed["inputs"]["nonce"] != asked["inputs"]["nonce"]


def test_a_node_that_will_not_do_is_refused_and_looked_at_again(run_module, site):
    site["node"].update(cores=100000, memory="900T")
    asked = run_module("compute_preflight", site)
    perform(asked)
    judged = run_module("compute_preflight", dict(site, state="judged"))
    assert judged.failed and judged["failed_step"] == "compute"
    assert "and 100000 are expected. Ask for them as torchstack_jobs.options.cores" in judged["msg"]
    assert "and 900 TiB are expected." in judged["msg"]
    assert not (records(site) / "compute.json").exists()
    again = run_module("compute_preflight", site)
    assert again["needed"] and again["inputs"]["nonce"] != asked["inputs"]["nonce"]


def test_an_answer_that_does_not_come_back_is_a_file_system_that_is_not_shared(run_module, site):
    unasked = run_module("compute_preflight", dict(site, state="judged"))
    assert unasked.failed and "No compute node was asked anything." in unasked["msg"]
    run_module("compute_preflight", site)
    judged = run_module("compute_preflight", dict(site, state="judged"))
    assert judged.failed and "what it wrote is not seen here after 1 seconds" in judged["msg"]
    assert "login and compute nodes share" in judged["msg"]


# --- with a real Slurm -----------------------------------------------------------------------------------------------

PLAY = """\
- hosts: localhost
  gather_facts: false
  vars:
    torchstack_site: mysite
    torchstack_release: r1
    torchstack_root: {root}
    torchstack_required_bytes: 1
    torchstack_required_inodes: 1
    release_context:
      frozen: false
      jobs: {jobs}
      python: {{executable: {python}, version: "{version}"}}
      compilers: {{CC: cat}}
      base: {{kind: python_overlay}}
      mpi: {{provider: wheel}}
  tasks:
    - name: Look
      ansible.builtin.include_role:
        name: hpcml.torchstack.release
        tasks_from: compute
"""


@pytest.fixture(name="cluster", scope="module")
def one_cluster(tmp_path_factory):
    with slurm_cluster.running(tmp_path_factory.mktemp("w")) as world:
        yield world


@pytest.fixture()
def play(site, ansible_environment, tmp_path):
    """Run the role's look with a site's data; the exit code and what was shown."""
    python = os.path.realpath(sys.executable)
    version = "%d.%d.%d" % sys.version_info[:3]

    def run(jobs, more=None):
        path = tmp_path / "play.yml"
        path.write_text(PLAY.format(root=site["root"], jobs=json.dumps(jobs), python=python, version=version))
        environment = dict(ansible_environment, **(more or {}))
        environment["PATH"] = os.path.dirname(sys.executable) + ":" + slurm_cluster.SYSTEM_PATH
        done = subprocess.run(
            ["ansible-playbook", "-i", "localhost,", "-c", "local", "-e",
             "ansible_python_interpreter=" + sys.executable, str(path)],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )
        return done.returncode, " ".join(done.stdout.split())

    return run


@pytest.fixture()
def look(cluster, play):
    """Look at a node of the cluster."""
    return lambda jobs: play(jobs, cluster.environment)


def data(**changes):
    jobs = {
        "launcher": "slurm", "options": {"partition": "main", "cores": 2, "python": sys.executable}, "steps": {},
        "node": {"cores": 2},
    }
    return dict(jobs, **changes)


def test_one_short_job_looks_at_a_node_and_the_second_run_submits_none(look, cluster, site):
    before = len(cluster.jobs("ts-compute-preflight"))
    code, shown = look(data())
    assert code == 0, shown
    record = json.loads((records(site) / "compute.json").read_text())
    assert record["launcher"] == "slurm" and record["facts"]["machine"]["host"]
    code, shown = look(data())
    assert code == 0 and "changed=0" in shown, shown
    assert len(cluster.jobs("ts-compute-preflight")) == before + 1


def test_a_node_that_lacks_what_the_site_speaks_of_stops_the_rollout(look):
    code, shown = look(data(node={"cores": 3, "modules": ["no-such/1"]}))
    assert code != 0
    assert "A job may use 2 of the " in shown and "and 3 are expected." in shown, shown
    assert "torchstack_jobs.node.modul" in shown


def test_a_job_that_never_runs_is_told_in_the_scheduler_s_words(look):
    code, shown = look(data(options={"partition": "nowhere"}))
    assert code != 0
    assert "No compute node could be looked at, and nothing was built." in shown, shown
    assert "invalid partition" in shown.lower()


# --- with PBS, or the recorded answers of one ------------------------------------------------------------------------


@pytest.fixture()
def pbs(tmp_path):
    world = World(tmp_path / "pbs")
    yield world
    world.end()


def test_the_same_look_is_a_job_of_pbs_where_that_is_the_launcher(play, pbs, site):
    options = {"bin": str(pbs.bin), "python": sys.executable}
    jobs = data(launcher="pbs", options=options, node={"tmpdir": "/tmp"})
    code, shown = play(jobs)
    assert code == 0, shown
    assert json.loads((records(site) / "compute.json").read_text())["launcher"] == "pbs"
    code, shown = play(jobs)
    assert code == 0 and "changed=0" in shown, shown
    assert len(pbs.accepted()) == 1
