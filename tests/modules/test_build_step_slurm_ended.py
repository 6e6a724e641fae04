# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""build_step with a real Slurm: jobs that are ended, preempted, put back and lost, and what is kept of them."""

from __future__ import annotations

import datetime
import os
import signal
import time

import pytest
from support import slurm_cluster
from support.batch_histories import exclusive, lines_of
from support.polling import eventually

MAKEFILE = """
program: first.o second.o
\t@touch program
first.o:
\t@echo compiling first; touch first.o
second.o:
\t@test -e {gate} || {{ echo waiting; sleep 600; }}
\t@echo compiling second; touch second.o
"""


@pytest.fixture(name="cluster", scope="module")
def one_cluster(tmp_path_factory):
    with slurm_cluster.running(tmp_path_factory.mktemp("w"), nodes=3, slurmd_timeout=6) as world:
        yield world


@pytest.fixture(name="steps")
def some_steps(cluster, tmp_path, monkeypatch):
    with slurm_cluster.steps_on(cluster, tmp_path / "steps", monkeypatch) as steps:
        yield steps


def start_again(cluster, job_id):
    """Let a job that was put back start soon; Slurm would have it wait for two minutes, and says so more than once."""
    eventually(lambda: cluster.state_of(job_id) == "PENDING", "its former start is over")
    # A slurmd refuses a start of a job within the second in which it has ended one.
    time.sleep(2)

    def started():
        state = cluster.state_of(job_id)
        if state == "PENDING":
            cluster.run("scontrol", "update", "JobId=" + job_id, "StartTime=now", check=False)
        return state not in ("PENDING", "COMPLETING", "REQUEUED")

    eventually(started, "the job is started again")


def jobs_of(cluster, steps, name="s"):
    return cluster.jobs(steps.read("submission.json", name)["job_name"])


def test_a_job_that_was_cancelled_by_scancel_is_resumed_with_its_objects(steps, cluster, tmp_path):
    (tmp_path / "Makefile").write_text(MAKEFILE.format(gate=tmp_path / "gate"))
    begun = steps.begin("make", chdir=str(tmp_path))
    eventually(lambda: "waiting" in steps.log(), "the first object")
    cluster.run("scancel", begun["job_id"])
    failed = steps.failure(steps.finish)
    assert (failed["reason"], failed["job_id"]) == ("cancelled", begun["job_id"])
    assert "job %s of step s was cancelled (slurm: cancelled" % begun["job_id"] in failed["msg"].lower()
    (tmp_path / "gate").write_text("")
    resumed = steps.begin("make", chdir=str(tmp_path))
    assert "was cancelled" in resumed["resumed"]
    assert steps.finish()["state"] == "done"
    assert [steps.log().count("compiling " + name) for name in ("first", "second")] == [1, 1]


def test_a_supervisor_that_is_killed_ends_its_job_and_is_resumed(steps):
    steps.begin("sleep 600")
    job = steps.until("running") and steps.read("job.json")
    os.kill(job["pid"], signal.SIGKILL)
    failed = steps.failure(steps.finish)
    assert (failed["reason"], failed["job_id"]) == ("killed", job["job_id"])
    assert "ended, and its supervisor has recorded nothing (slurm: failed" in failed["msg"].lower()
    resumed = steps.run("sleep 0.1; true")
    assert resumed["state"] == "done"


def test_preempted_jobs_are_put_back_as_often_as_the_site_says(steps, cluster, tmp_path):
    for name in ("back", "out"):
        (tmp_path / name).mkdir()
    scripts = {name: exclusive("slurm", tmp_path / name) for name in ("back", "out")}
    options = {"cores": 2}
    steps.begin(scripts["back"], "back", {**options, "requeue": 1})
    steps.begin(scripts["out"], "out", options)
    for name in scripts:
        eventually((tmp_path / name / "starts").exists, name + " runs")
    cluster.submit("--partition=urgent", "--nodes=3", "--ntasks=6", "--wrap", "true")
    failed = steps.failure(steps.finish, "out")
    assert (failed["reason"], "slurm: preempted" in failed["msg"].lower()) == ("preempted", True)
    assert "allow requeue" in failed["msg"].lower()
    queue = eventually(lambda: steps.query("back")["queue"], "it is put back")
    assert queue["state"] in ("requeued", "starting")
    (tmp_path / "back" / "gate").write_text("")
    start_again(cluster, queue["job_id"])
    assert steps.finish("back")["state"] == "done"
    starts = [start.partition(".")[0] for start in (tmp_path / "back" / "starts").read_text().split()]
    assert starts == [queue["job_id"]] * 2
    assert not (tmp_path / "back" / "violation").exists()
    assert len(jobs_of(cluster, steps, "back")) == 1


def test_a_job_that_is_put_back_too_often_gives_up(steps, cluster, tmp_path):
    begun = steps.begin(exclusive("slurm", tmp_path), options={"requeue": 1})
    for start in (1, 2):
        eventually(lambda start=start: len(lines_of(tmp_path / "starts")) == start, "start %d" % start)
        cluster.run("scontrol", "requeue", begun["job_id"])
        eventually(lambda start=start: cluster.show(begun["job_id"])["Restarts"] == str(start), "it is put back")
        start_again(cluster, begun["job_id"])
    failed = steps.failure(steps.finish)
    assert failed["reason"] == "requeued"
    assert "it has been put back 2 times, and requeue allows 1" in failed["msg"].lower()
    assert not (tmp_path / "violation").exists()


def test_time_limit_and_a_killed_slurmd(steps, cluster, tmp_path):
    """Slurm looks at time limits and at nodes every half minute: all that waits for it waits together.

    A slurmd that is killed leaves its jobs alive: Slurm has lost their nodes, and they build on.
    """
    names = ("again", "over", "moved", "broken")
    for name in names:
        (tmp_path / name).mkdir()
    scripts = {name: exclusive("slurm", tmp_path / name) for name in names}
    (tmp_path / "again" / "Makefile").write_text(MAKEFILE.format(gate=tmp_path / "again" / "gate"))
    limit = {"requeue": 1, "requeue_on": ["time_limit"], "directives": ["--nodelist=n2"]}
    again = steps.begin("make", "again", limit, chdir=str(tmp_path / "again"))
    over = steps.begin(scripts["over"], "over", {"directives": ["--nodelist=n2"]})
    moved = steps.begin(scripts["moved"], "moved", {"requeue": 1})
    broken = steps.begin(scripts["broken"], "broken", {"directives": ["--nodelist=n1"]})
    for name in names:
        steps.until("running", name)
    soon = (datetime.datetime.now() + datetime.timedelta(seconds=1)).strftime("%Y-%m-%dT%H:%M:%S")
    for begun in (again, over):
        cluster.update("JobId=" + begun["job_id"], "EndTime=" + soon)
    node = cluster.show(moved["job_id"])["NodeList"]
    assert node == "n1", "the job that moves is on the node whose slurmd is killed"
    cluster.kill("slurmd.n1")

    failed = steps.failure(steps.finish, "over")
    assert (failed["reason"], failed["node"]) == ("time_limit", "n2")
    assert "job %s of step over reached its time limit (slurm: timeout" % over["job_id"] in failed["msg"].lower()
    assert "longer walltime" in failed["msg"].lower()

    (tmp_path / "again" / "gate").write_text("")
    assert steps.finish("again")["state"] == "done"
    assert [steps.log("again").count("compiling " + name) for name in ("first", "second")] == [1, 1]
    assert [job["name"][-3:] for job in jobs_of(cluster, steps, "again")] == ["-r1"]
    assert len(cluster.jobs("ts-again-")) == 2

    failed = steps.failure(steps.finish, "broken")
    assert (failed["reason"], failed["job_id"]) == ("node_failed", broken["job_id"])
    assert "slurm: node_fail" in failed["msg"].lower()
    assert "'sinfo -r' says why" in failed["msg"].lower()
    resumed = steps.begin(scripts["broken"], "broken", {"directives": ["--nodelist=n2"]})
    assert "lost its node" in resumed["resumed"]

    eventually(lambda: cluster.show(moved["job_id"])["Restarts"] == "1", "it is put back")
    start_again(cluster, moved["job_id"])
    for name in ("moved", "broken"):
        eventually(lambda name=name: len(lines_of(tmp_path / name / "starts")) == 2, name + " builds again")
        (tmp_path / name / "gate").write_text("")
        assert steps.finish(name)["state"] == "done"
        assert not (tmp_path / name / "violation").exists()
        places = [start.partition(".")[2] for start in lines_of(tmp_path / name / "starts")]
        assert (places[0], places[1] in ("n2", "n3")) == ("n1", True)
    assert [len(cluster.jobs("ts-%s-" % name)) for name in ("moved", "broken")] == [1, 2]
    cluster.start_node("n1")
    cluster.wait_for_nodes("idle")
