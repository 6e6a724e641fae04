# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Steps that are built as jobs of PBS: of a real one, or with the recorded answers of one.

See tests/pbs/world.py for the choice, and tests/pbs/record.py for the records.
"""

from __future__ import annotations

import os
import pathlib
import signal

import pytest
from pbs.world import MANAGED, TOO_MANY_CORES, World, steps_on
from pbs.world import server as started
from support.batch_histories import MOMENTS, kill
from support.polling import eventually


@pytest.fixture(name="server", scope="module")
def one_server(tmp_path_factory):
    """The PBS that is started for tests, if one is."""
    with started(tmp_path_factory.mktemp("pbs")) as cluster:
        yield cluster


@pytest.fixture(name="world")
def one_world(server, tmp_path):
    """A PBS."""
    world = World(tmp_path / "pbs", server)
    yield world
    world.end()


@pytest.fixture(name="steps")
def some_steps(world, tmp_path, monkeypatch):
    """Run steps as jobs of PBS; what is left of them is deleted."""
    with steps_on(world, tmp_path, monkeypatch) as steps:
        yield steps


def builds(steps):
    """How often the step's script was started."""
    return steps.log().count("==== attempt")


def test_a_step_is_built_as_a_job_and_a_second_run_submits_nothing(world, steps, run_module, tmp_path):
    asked = steps.parameters('echo "in $PBS_JOBID"; umask', options={"walltime": "00:10:00"})
    arguments = {key: value for key, value in asked.items() if value is not None and key not in ("follow", "planned")}
    first = run_module("build_step", arguments)
    assert not first.failed, first.console
    assert first.changed
    assert [first["job_id"]] == world.accepted()
    log = pathlib.Path(first["log"]).read_text()
    assert "in " + first["job_id"] in log and "0022" in log.split()
    again = run_module("build_step", arguments)
    assert not again.failed and not again.changed
    assert len(world.accepted()) == 1


def test_a_step_beyond_its_walltime_says_so_and_goes_on_with_a_longer_one(world, steps):
    steps.begin(steps.gated, options={"walltime": "00:00:01"})
    failed = steps.failure(steps.finish)
    assert (failed["reason"], [failed["job_id"]]) == ("time_limit", world.accepted())
    assert "Exit_status -29" in failed["msg"] and world.accepted()[0] in failed["msg"]
    assert "longer walltime" in failed["msg"]
    steps.gate.touch()
    resumed = steps.begin(steps.gated, options={"walltime": "00:10:00"})
    assert "reached its time limit" in resumed["resumed"]
    steps.finish()
    assert len(world.jobs("ts-s-" + resumed["digest"][:8])) == 2


def test_a_refused_step_leaves_nothing_in_the_queue(world, steps):
    failed = steps.failure(steps.begin, steps.hello, options={"queue": "no-such-queue"})
    assert (failed["reason"], failed["failed_step"]) == ("rejected", "submit")
    assert "Unknown queue" in failed["msg"] and "qstat -Q" in failed["msg"]
    assert not world.accepted()
    assert steps.run(steps.hello)["state"] == "done"


def test_a_step_whose_job_is_deleted_was_cancelled(world, steps):
    begun = steps.begin("sleep 600")
    steps.until("running")
    world.run("qdel", begun["job_id"])
    failed = steps.failure(steps.finish)
    assert (failed["reason"], failed["job_id"]) == ("cancelled", begun["job_id"])
    assert begun["job_id"] in failed["msg"]


def test_a_step_that_waits_shows_the_words_of_pbs(world, steps):
    steps.begin(steps.hello, options={"cores": TOO_MANY_CORES})
    queue = eventually(lambda: (seen := steps.query()["queue"])["reason"] and seen, "a reason")
    assert "ncpus" in queue["reason"]
    world.run("qdel", queue["job_id"])
    assert steps.failure(steps.finish)["reason"] == "cancelled"


@pytest.mark.parametrize("runs", [False, True], ids=["in-the-queue", "in-the-build"])
def test_a_step_is_cancelled_on_request(world, steps, runs):
    begun = steps.begin("sleep 600", options={} if runs else {"directives": ["-h"]})
    if runs:
        steps.until("running")
    assert steps.cancel()["changed"]
    eventually(lambda: begun["job_id"] not in world.run("qselect", "-s", "QHR").stdout.split(), "PBS has ended it")
    assert not steps.cancel()["changed"]


@pytest.mark.parametrize("victims", ["controller", "both"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_before_or_after_pbs_accepts_the_job_there_is_never_a_second_one(world, steps, moment, victims):
    world.hold_qsub(moment)
    controller = steps.controller(steps.gated)
    qsub = eventually(world.qsub.held, "qsub is called")
    kill(controller)
    if victims == "both":
        os.kill(qsub, signal.SIGKILL)
    elif moment == "after":
        assert steps.begin(steps.gated)["attached"], "while qsub has not answered"
    follower = steps.controller(steps.gated)
    world.qsub.let_go()
    answer = steps.answer_of(follower)
    assert answer["state"] == "running", answer
    assert answer["attached"] or (moment, victims) == ("before", "both")
    steps.gate.touch()
    done = steps.finish()
    assert world.jobs("ts-s-" + done["digest"][:8]) == [answer["job_id"]]
    assert builds(steps) == 1


def test_killed_in_the_queue_and_during_the_build_the_next_run_attaches(world, steps):
    asked = {"directives": ["-h"]}
    controller = steps.controller(steps.gated, options=asked)
    eventually(lambda: (steps.read("submission.json") or {}).get("job_id"), "a job in the queue")
    kill(controller)
    attached = steps.begin(steps.gated, options=asked)
    assert (attached["attached"], attached["queue"]["state"]) == (True, "held")
    world.run("qrls", attached["job_id"])
    steps.until("running")
    kill(steps.controller(steps.gated, options=asked))
    again = steps.begin(steps.gated, options=asked)
    assert (again["attached"], again["queue"], again["node"]) == (True, None, steps.read("job.json")["host"])
    steps.gate.touch()
    steps.finish()
    assert world.jobs("ts-s-" + again["digest"][:8]) == [attached["job_id"]]
    assert builds(steps) == 1


@MANAGED
def test_a_step_that_is_put_back_is_built_once_more_and_done(world, steps):
    begun = steps.begin(steps.gated, options={"requeue": 1})
    steps.until("running")
    world.run("qrerun", begun["job_id"])
    eventually(lambda: builds(steps) == 2, "it is built again")
    steps.gate.touch()
    assert steps.finish()["job_id"] == begun["job_id"]
    assert world.jobs("ts-s-" + begun["digest"][:8]) == [begun["job_id"]]


@MANAGED
@pytest.mark.parametrize("history", [True, False], ids=["history", "no-history"])
def test_a_finished_step_is_done_with_and_without_history(world, steps, history):
    world.set(history=history)
    steps.run(steps.hello)
    assert steps.begin(steps.hello)["state"] == "unchanged"
    assert len(world.accepted()) == 1


@MANAGED
def test_a_step_is_not_submitted_again_while_the_server_is_silent(world, steps):
    asked = {"directives": ["-h"]}
    steps.begin(steps.hello, options=asked)
    world.set(up=False)
    assert "PBS did not answer" in steps.failure(steps.begin, steps.hello, options=asked)["msg"]
    world.set(up=True)
    assert steps.begin(steps.hello, options=asked)["queue"]["state"] == "held"
    assert len(world.accepted()) == 1
