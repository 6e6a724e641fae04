# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""build_step with a real Slurm and a real ansible-playbook: what an operator reads while a job waits and starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.processes import default_signals
from support import slurm_cluster
from support.polling import eventually


@pytest.fixture(name="cluster", scope="module")
def one_cluster(tmp_path_factory):
    with slurm_cluster.running(tmp_path_factory.mktemp("w")) as world:
        yield world


@pytest.fixture(name="playbook")
def one_playbook(cluster, ansible_environment, tmp_path):
    """Start ansible-playbook with a step that is submitted held, and runs until the gate opens."""
    gate, book, running = tmp_path / "gate", tmp_path / "play.yml", []
    task = {
        "name": "s", "state_dir": str(tmp_path / "steps"), "grace": 1, "launcher": "slurm",
        "script": "until test -e '%s'; do echo '[1/2] CXX'; sleep 0.1; done" % gate,
        "launcher_options": {"cores": 1, "walltime": "00:10:00", "directives": ["--hold"]},
    }
    play = {"hosts": "localhost", "gather_facts": False, "connection": "local"}
    book.write_text(json.dumps([dict(play, tasks=[{"hpcml.torchstack.build_step": task}])]))
    path = os.environ["PATH"] + ":" + cluster.environment["PATH"]
    environment = {**ansible_environment, **cluster.environment, "PATH": path, "PYTHONUNBUFFERED": "1"}

    def start():
        shown = tmp_path / ("shown.%d" % len(running))
        with open(str(shown), "wb") as output:
            process = subprocess.Popen(
                [os.path.join(os.path.dirname(sys.executable), "ansible-playbook"), str(book)], env=environment,
                stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                # Tests that a shell started in the background ignore Ctrl-C, and what they start would too.
                preexec_fn=default_signals,
            )
        process.shown = lambda: " ".join(shown.read_text().split())
        process.says = lambda text: eventually(lambda: text in process.shown(), text)
        running.append(process)
        return process

    start.open, start.environment = lambda: gate.write_text(""), environment
    yield start
    start.open()
    for process in running:
        process.kill()
        process.wait()
    cluster.run("scancel", "--user=" + cluster.user)
    eventually(lambda: not cluster.run("squeue", "--noheader").stdout, "the end of all jobs")


def test_a_job_is_followed_from_the_queue_to_its_end_and_ctrl_c_does_not_cancel_it(playbook, cluster):
    first = playbook()
    first.says("held (JobHeldUser)")
    first.says("scontrol release")
    (job,) = cluster.jobs()
    assert "s job %s held" % job["id"] in first.shown()
    os.killpg(first.pid, signal.SIGINT)
    first.wait(120)
    assert cluster.state_of(job["id"]) == "PENDING"
    second = playbook()
    second.says("held (JobHeldUser)")
    cluster.run("scontrol", "release", job["id"])
    second.says("s job %s started on " % job["id"])
    third = playbook()
    third.says("s job %s runs on " % job["id"])
    playbook.open()
    assert [second.wait(300), third.wait(300)] == [0, 0]
    assert "changed=1" in second.shown()
    assert [entry["id"] for entry in cluster.jobs(job["name"])] == [job["id"]]


def test_a_cancelled_job_ends_in_the_words_of_its_scheduler_for_who_follows_it(playbook, cluster, run_module, tmp_path):
    follower = playbook()
    follower.says("held (JobHeldUser)")
    (job,) = [job for job in cluster.jobs() if job["state"] == "PENDING"]
    options = {"name": "s", "state_dir": str(tmp_path / "steps"), "state": "cancelled"}
    cancelled = run_module("build_step", options, environment=playbook.environment)
    assert (cancelled.changed, cancelled["job_id"]) == (True, job["id"])
    assert "s job %s cancelled, log " % job["id"] in " ".join(cancelled.console.split())
    assert follower.wait(300) == 2
    assert "Job %s of step s was cancelled" % job["id"] in follower.shown()
    again = run_module("build_step", options, environment=playbook.environment)
    assert not again.changed
