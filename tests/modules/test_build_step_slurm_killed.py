# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""build_step with a real Slurm: controllers and daemons are killed, and each step has one job all the same."""

from __future__ import annotations

import os
import signal
import time

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.files import write_json
from support import slurm_cluster
from support.batch_histories import HeldCommand, exclusive, kill, lines_of
from support.polling import eventually

COMMANDS = ("squeue", "scontrol", "scancel")


@pytest.fixture(name="cluster", scope="module")
def one_cluster(tmp_path_factory):
    with slurm_cluster.running(tmp_path_factory.mktemp("w"), nodes=3) as world:
        yield world


@pytest.fixture(name="steps")
def some_steps(cluster, tmp_path, monkeypatch):
    with slurm_cluster.steps_on(cluster, tmp_path / "steps", monkeypatch) as steps:
        yield steps


def commands_with(tmp_path, sbatch):
    """A directory of Slurm's commands with an sbatch of its own, to be named in ``bin``."""
    place = tmp_path / "bin"
    place.mkdir()
    for name in COMMANDS:
        (place / name).symlink_to("/usr/bin/" + name)
    (place / "sbatch").write_text("#!/bin/sh\n%s\n" % sbatch)
    (place / "sbatch").chmod(0o755)
    return str(place)


def kill_them(controller, victims, sbatch):
    """Kill a controller, or ``both`` it and the command by which it submits."""
    kill(controller)
    if victims == "both":
        os.kill(sbatch.held(), signal.SIGKILL)


def jobs_of(cluster, steps, name="s"):
    return cluster.jobs(steps.read("submission.json", name)["job_name"])


# -- killed controllers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("victims", ["controller", "both"])
def test_killed_before_the_submission_the_next_run_submits_once(steps, cluster, tmp_path, victims):
    sbatch = HeldCommand(tmp_path, "/usr/bin/sbatch")
    options = {"bin": commands_with(tmp_path, sbatch.script("before"))}
    controller = steps.controller(steps.hello, options=options)
    eventually(sbatch.held, "sbatch is called")
    assert steps.read("submission.json")["job_id"] is None
    kill_them(controller, victims, sbatch)
    if victims == "both":
        sbatch.let_go()
        done = steps.run(steps.hello, options=options)
        assert "before its job was submitted" in done.get("resumed", "before its job was submitted")
    else:
        follower = steps.controller(steps.hello, options=options)
        time.sleep(1)
        assert follower.poll() is None, "nobody starts a step while its submission is under way"
        sbatch.let_go()
        answer = steps.answer_of(follower)
        assert answer["attached"] or answer["state"] == "unchanged", answer
        done = steps.run(steps.hello, options=options)
    assert done["state"] in ("done", "unchanged")
    assert len(cluster.jobs("ts-s-" + done["digest"][:8])) == 1
    assert steps.log().count("==== attempt") == 1


@pytest.mark.parametrize("victims", ["controller", "both"])
def test_killed_between_acceptance_and_answer_the_next_run_attaches(steps, cluster, tmp_path, victims):
    sbatch = HeldCommand(tmp_path, "/usr/bin/sbatch")
    options = {"bin": commands_with(tmp_path, sbatch.script("after"))}
    gate = tmp_path / "gate"
    script = "until test -e %s; do sleep 0.1; done" % gate
    controller = steps.controller(script, options=options)
    eventually(sbatch.held, "the job is accepted")
    kill_them(controller, victims, sbatch)
    assert steps.read("submission.json")["job_id"] is None
    attached = steps.begin(script, options=options)
    assert (attached["state"], attached["attached"]) == ("running", True)
    gate.write_text("")
    done = steps.finish()
    sbatch.let_go()
    assert done["state"] == "done"
    assert [job["id"] for job in jobs_of(cluster, steps)] == [attached["job_id"]]
    assert steps.begin(script, options=options)["state"] == "unchanged"


def test_killed_in_the_queue_and_during_the_build_the_next_run_attaches(steps, cluster, tmp_path):
    gate = tmp_path / "gate"
    script = "until test -e %s; do sleep 0.1; done" % gate
    options = {"directives": ["--hold"]}
    controller = steps.controller(script, options=options)
    eventually(lambda: (steps.read("submission.json") or {}).get("job_id"), "a job in the queue")
    kill(controller)
    attached = steps.begin(script, options=options)
    assert (attached["attached"], attached["queue"]["state"]) == (True, "held")
    cluster.run("scontrol", "release", attached["job_id"])
    steps.until("running")
    follower = steps.controller(script, options=options)
    time.sleep(0.5)
    kill(follower)
    again = steps.begin(script, options=options)
    assert (again["attached"], again["queue"], again["node"]) == (True, None, steps.read("job.json")["host"])
    gate.write_text("")
    assert steps.finish()["state"] == "done"
    assert [job["id"] for job in cluster.jobs("ts-s-" + again["digest"][:8])] == [attached["job_id"]]


def test_a_slurmd_that_is_killed_and_a_slurmctld_that_stops_cost_a_build_nothing(steps, cluster, tmp_path):
    begun = steps.begin(exclusive("slurm", tmp_path))
    eventually((tmp_path / "starts").exists, "the build")
    cluster.kill("slurmd." + cluster.show(begun["job_id"])["BatchHost"])
    # Killed, it forgets what it has not written down yet.
    cluster.kill("slurmctld", signal.SIGTERM)
    (tmp_path / "gate").write_text("")
    eventually(lambda: steps.read("stamp.json"), "the end of the build without them")
    cluster.start_controller()
    for node in cluster.nodes:
        if cluster.pid_of("slurmd." + node) is None:
            cluster.start_node(node)
    assert steps.finish()["state"] == "done"
    assert lines_of(tmp_path / "starts") == [begun["job_id"] + ".n1"]
    assert [job["id"] for job in jobs_of(cluster, steps)] == [begun["job_id"]]
    cluster.wait_for_nodes("idle")


def test_two_starters_on_two_hosts_submit_one_job(steps, cluster):
    starters = [
        steps.controller(steps.hello, before=slurm_cluster.as_host("login%d" % number, [])) for number in range(4)
    ]
    answers = [steps.answer_of(starter) for starter in starters]
    done = steps.run(steps.hello)
    assert done["state"] in ("done", "unchanged")
    assert all(answer.get("state") in ("running", "done", "unchanged") for answer in answers), answers
    assert len(cluster.jobs("ts-s-" + done["digest"][:8])) == 1
    assert steps.log().count("==== attempt") == 1


def test_a_script_that_is_submitted_twice_builds_once(steps, cluster, tmp_path):
    script = exclusive("slurm", tmp_path)
    begun = steps.begin(script)
    eventually((tmp_path / "starts").exists, "the build")
    batch = os.path.join(steps.state, "s", "batch.sh")
    second = cluster.run("sbatch", "--parsable", batch).stdout.strip()
    eventually(lambda: cluster.state_of(second) == "COMPLETED", "the end of the second job")
    assert steps.query()["node"], "the first job goes on"
    (tmp_path / "gate").write_text("")
    assert steps.finish()["state"] == "done"
    third = cluster.run("sbatch", "--parsable", batch).stdout.strip()
    eventually(lambda: cluster.state_of(third) == "COMPLETED", "the end of the third job")
    starts = (tmp_path / "starts").read_text().split()
    assert [start.partition(".")[0] for start in starts] == [begun["job_id"]]


# -- forgotten jobs -----------------------------------------------------------------------------------------------


def test_a_job_that_slurm_has_forgotten_is_judged_by_its_records_and_its_heartbeat(steps, cluster, tmp_path):
    """Without accounting nobody knows an old job; here squeue shows none, and the supervisor stands still."""
    gate = tmp_path / "gate"
    script = "until test -e %s; do sleep 0.1; done" % gate
    steps.begin(script)
    job = steps.until("running") and steps.read("job.json")
    name = steps.read("submission.json")["job_name"]
    empty = commands_with(tmp_path, "exit 1\n")
    (tmp_path / "bin" / "squeue").unlink()
    (tmp_path / "bin" / "squeue").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "bin" / "squeue").chmod(0o755)
    path = os.path.join(steps.state, "s", "job.json")
    os.kill(job["pid"], signal.SIGSTOP)
    job = steps.read("job.json")
    write_json(path, dict(job, options=dict(job["options"], bin=empty)))
    lost = steps.failure(steps.query)
    assert lost["reason"] == "lost"
    assert "neither the queue nor the accounting knows it" in lost["msg"]
    os.unlink(os.path.join(steps.state, "s", "exit"))
    os.kill(job["pid"], signal.SIGCONT)
    assert steps.begin(script)["attached"], "its heartbeat goes on"
    gate.write_text("")
    assert steps.finish()["state"] == "done"
    assert len(cluster.jobs(name)) == 1
