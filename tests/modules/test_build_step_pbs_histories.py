# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""build_step with a real PBS of three nodes, which is its own: controllers, server, moms and nodes are killed.

TORCHSTACK_TEST_PBS names the directory of an installed PBS (support/pbs_cluster.py). TORCHSTACK_PBS_HISTORIES says how
many random histories of each kind are played (2), TORCHSTACK_PBS_SEED where they begin. What happens in one is decided
by its seed, and its timing is the machine's.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch import commands
from pbs.world import World, server, steps_on
from support import pbs_cluster
from support.batch_histories import BatchHistory, exclusive, kill, lines_of
from support.polling import eventually

FIRST = int(os.environ.get("TORCHSTACK_PBS_SEED", "1"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("TORCHSTACK_PBS_HISTORIES", "2")))

SLOW = 0.4
"""Seconds that qsub takes before and after it submits, so that a kill meets it there."""

HTML = "echo '<html><body>502 Bad Gateway</body></html>'"
MALFORMED = {
    "empty": "true", "html": HTML, "cut-off": "echo '{ \"timestamp\": 1, \"Jobs\": { \"1.pbs\": {'",
    "other-json": "echo '[]'", "failed": "echo 'qstat: cannot connect to server pbs (errno=15010)' >&2; exit 1",
}


@pytest.fixture(name="cluster", scope="module")
def one_cluster(tmp_path_factory):
    why = pbs_cluster.missing()
    if why:
        pytest.skip(why)
    with server(tmp_path_factory.mktemp("pbs")) as cluster:
        yield cluster


@pytest.fixture(name="world")
def one_world(cluster, tmp_path):
    world = World(tmp_path / "pbs", cluster)
    yield world
    world.end()


@pytest.fixture(name="steps")
def some_steps(world, tmp_path, monkeypatch):
    with steps_on(world, tmp_path, monkeypatch) as steps:
        yield steps


@pytest.fixture(name="build")
def one_build(tmp_path):
    """A build that goes on once there is a gate, and of which two at once leave a violation."""
    return exclusive("pbs", tmp_path)


def starts_of(tmp_path):
    """The job and the node of each start of the build."""
    return [tuple(line.split(".")) for line in lines_of(tmp_path / "starts")]


def jobs_of(cluster, digest):
    """The jobs of a step in order, which by the accounting log were there one after the other.

    The server's own record (``qstat -x``) has the same ones.
    """
    lines = cluster.accounting("ts-s-" + digest[:8])
    jobs, over = [], set()
    for line in lines:
        if line.kind == "Q":
            assert over.issuperset(jobs), "two jobs at once: %s" % (lines,)
            jobs.append(line.job_id)
        elif line.kind in "ED":
            over.add(line.job_id)
    assert sorted(jobs) == sorted(cluster.jobs("ts-s-" + digest[:8])), "each job is known, and each once"
    return jobs


def done(steps, build, tmp_path):
    """Let the build go, and complete the step; its digest."""
    (tmp_path / "gate").touch()
    result = steps.run(build)
    assert result["state"] in ("done", "unchanged")
    assert steps.begin(build)["state"] == "unchanged"
    assert not (tmp_path / "violation").exists()
    return result["digest"]


# -- random histories -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_controllers_that_are_killed_at_any_moment_leave_one_job_and_one_build(cluster, world, steps, tmp_path, seed):
    world.hold_qsub("", SLOW)
    history = BatchHistory(steps, tmp_path, seed, {})
    # In every other history the job stays in the queue meanwhile, and cannot tell of itself.
    world.set(starts=bool(seed % 2))
    history.play()
    world.set(starts=True)
    digest = history.end_well()
    assert len(jobs_of(cluster, digest)) == 1, history.told
    assert len(starts_of(tmp_path)) == 1, history.told


def troubles_of(cluster, world):
    """What may happen to a PBS, each as long as its context lasts."""
    @contextlib.contextmanager
    def server_killed(choose):
        cluster.kill("server")
        yield
        cluster.start_daemon("server")

    @contextlib.contextmanager
    def server_still(choose):
        cluster.kill("server", signum=signal.SIGSTOP)
        yield
        cluster.kill("server", signum=signal.SIGCONT)

    @contextlib.contextmanager
    def nonsense(choose):
        name = choose.choice(("qstat", "qselect"))
        world.install(name, choose.choice(sorted(MALFORMED.values())))
        yield
        world.well(name)

    @contextlib.contextmanager
    def queue_disabled(choose):
        cluster.manage("set queue workq enabled=False\n")
        yield
        cluster.manage("set queue workq enabled=True\n")

    @contextlib.contextmanager
    def nothing_starts(choose):
        cluster.kill("scheduler")
        yield
        cluster.start_daemon("scheduler")

    def lost(how):
        @contextlib.contextmanager
        def trouble(choose):
            yield
            running = [job["exec_host"].partition("/")[0] for job in cluster.jobs().values()
                       if job["job_state"] == "R" and "exec_host" in job]
            for node in running[:1]:
                how(node)
                time.sleep(choose.random() * 5)
                cluster.start_node(node)
        return trouble

    def asked(name):
        @contextlib.contextmanager
        def trouble(choose):
            yield
            for job_id in world.run("qselect").stdout.split():
                world.run(name, job_id)
        return trouble

    return {
        "the server is killed": server_killed, "the server stands still": server_still,
        "a command answers nonsense": nonsense, "the queue takes no jobs": queue_disabled,
        "nothing starts": nothing_starts, "a node loses its power": lost(cluster.kill_host),
        "a mom is killed": lost(lambda node: cluster.kill("mom", node)), "a job is deleted": asked("qdel"),
        "a job is put back": asked("qrerun"),
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_any_history_of_kills_and_trouble_ends_well_and_never_has_two_jobs(cluster, world, steps, tmp_path, seed):
    world.hold_qsub("", SLOW)
    history = BatchHistory(steps, tmp_path, seed, troubles_of(cluster, world), requeue=(0, 2)[seed % 2])
    history.play()
    cluster.wait_for_nodes()
    digest = history.end_well()
    assert jobs_of(cluster, digest), history.told


# -- the server -----------------------------------------------------------------------------------------------------


def test_without_a_server_nothing_is_submitted_and_the_next_run_submits_once(cluster, world, steps, build, tmp_path):
    world.set(up=False)
    failed = steps.failure(steps.begin, build)
    assert failed["failed_step"] == "scheduler" and "PBS did not answer qsub" in failed["msg"]
    assert "qstat -B" in failed["msg"]
    world.set(up=True)
    assert len(jobs_of(cluster, done(steps, build, tmp_path))) == 1


@pytest.mark.parametrize("daemon", ["server", "comm", "scheduler"])
def test_a_daemon_that_is_killed_during_the_build_costs_it_nothing(cluster, steps, build, tmp_path, daemon):
    begun = steps.begin(build)
    eventually(lambda: starts_of(tmp_path), "the build")
    cluster.kill(daemon)
    (tmp_path / "gate").touch()
    eventually(lambda: steps.read("stamp.json"), "the end of the build without it")
    cluster.start_daemon(daemon)
    digest = done(steps, build, tmp_path)
    assert jobs_of(cluster, digest) == [begun["job_id"]]
    assert len(starts_of(tmp_path)) == 1


def test_a_server_that_is_started_anew_while_a_job_waits_still_has_it(cluster, world, steps, build, tmp_path):
    begun = steps.begin(build, options={"directives": ["-h"]})
    cluster.kill("server")
    failed = steps.failure(steps.begin, build, options={"directives": ["-h"]})
    assert failed["failed_step"] == "scheduler" and "PBS did not answer" in failed["msg"]
    cluster.start_daemon("server")
    attached = steps.begin(build, options={"directives": ["-h"]})
    assert (attached["attached"], attached["job_id"], attached["queue"]["state"]) == (True, begun["job_id"], "held")
    world.run("qrls", begun["job_id"])
    (tmp_path / "gate").touch()
    assert jobs_of(cluster, steps.finish()["digest"]) == [begun["job_id"]]


def test_a_server_that_does_not_answer_in_time_is_not_one_without_jobs(
    cluster, world, steps, build, tmp_path, monkeypatch
):
    begun = steps.begin(build, options={"directives": ["-h"]})
    monkeypatch.setattr(commands, "ASK_SECONDS", 2)
    cluster.kill("server", signum=signal.SIGSTOP)
    try:
        failed = steps.failure(steps.begin, build, options={"directives": ["-h"]})
    finally:
        cluster.kill("server", signum=signal.SIGCONT)
        monkeypatch.undo()
    assert failed["failed_step"] == "scheduler" and "took longer than 2 s" in failed["msg"]
    world.run("qrls", begun["job_id"])
    assert jobs_of(cluster, done(steps, build, tmp_path)) == [begun["job_id"]]


@pytest.mark.parametrize("answer", MALFORMED.values(), ids=MALFORMED)
@pytest.mark.parametrize("phase", ["queue", "build"])
def test_a_qstat_that_answers_nonsense_is_not_one_without_jobs(cluster, world, steps, build, tmp_path, phase, answer):
    asked = {"directives": ["-h"]} if phase == "queue" else {}
    begun = steps.begin(build, options=asked)
    if phase == "build":
        eventually(lambda: starts_of(tmp_path), "the build")
    world.install("qstat", answer)
    if phase == "queue":
        failed = steps.failure(steps.begin, build, options=asked)
        assert failed["failed_step"] == "scheduler" and "PBS did not answer qstat" in failed["msg"]
    else:
        assert steps.begin(build)["attached"], "its heartbeat tells that it lives"
    world.well("qstat")
    world.run("qrls", begun["job_id"])
    assert jobs_of(cluster, done(steps, build, tmp_path)) == [begun["job_id"]]


def test_a_queue_that_takes_no_jobs_is_said_and_one_that_is_closed_later_keeps_the_job(
    cluster, steps, build, tmp_path
):
    closed, asked = "set queue workq enabled=False\n", {"directives": ["-h"]}
    refused = steps.failure(steps.begin, build, options={"queue": "closed"})
    assert (refused["reason"], refused["failed_step"]) == ("rejected", "submit")
    assert "not enabled" in refused["msg"] and "takes no jobs" in refused["msg"]
    begun = steps.begin(build, options=asked)
    cluster.manage(closed)
    try:
        attached = steps.begin(build, options=asked)
        assert (attached["attached"], attached["job_id"]) == (True, begun["job_id"])
    finally:
        cluster.manage(closed.replace("False", "True"))
    cluster.run(pbs_cluster.SERVER, "qrls", begun["job_id"])
    assert jobs_of(cluster, done(steps, build, tmp_path)) == [begun["job_id"]]


# -- nodes ----------------------------------------------------------------------------------------------------------


def test_a_build_whose_node_loses_its_power_is_told_and_resumed_by_the_next_run(cluster, steps, build, tmp_path):
    begun = steps.begin(build)
    ((_number, node),) = eventually(lambda: starts_of(tmp_path), "the build")
    cluster.kill_host(node)
    failed = steps.failure(steps.finish)
    assert (failed["reason"], failed["job_id"]) == ("node_failed", begun["job_id"])
    assert "pbsnodes -l" in failed["msg"]
    resumed = steps.begin(build)
    assert "lost its node" in resumed["resumed"]
    assert jobs_of(cluster, done(steps, build, tmp_path)) == [begun["job_id"], resumed["job_id"]]
    assert [start[1] == node for start in starts_of(tmp_path)] == [True, False]


@pytest.mark.parametrize("lives", [False, True], ids=["power", "mom"])
def test_a_job_that_may_be_put_back_moves_to_another_node_though_its_build_may_live(
    cluster, steps, build, tmp_path, lives
):
    """A mom that is killed leaves its jobs alive: PBS has lost their node, and they build on."""
    begun = steps.begin(build, options={"requeue": 2})
    ((_number, node),) = eventually(lambda: starts_of(tmp_path), "the build")
    if lives:
        cluster.kill("mom", node)
    else:
        cluster.kill_host(node)
    kill(steps.controller(build, options={"requeue": 2}))
    eventually(lambda: len(starts_of(tmp_path)) == 2, "it is built again", 300)
    (tmp_path / "gate").touch()
    digest = steps.finish()["digest"]
    assert jobs_of(cluster, digest) == [begun["job_id"]]
    assert [start[1] == node for start in starts_of(tmp_path)] == [True, False]
    assert not (tmp_path / "violation").exists()
