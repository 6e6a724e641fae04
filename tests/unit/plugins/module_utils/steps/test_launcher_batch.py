# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How a batch job stands, from its records and from what its scheduler shows."""

from __future__ import annotations

import json

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch.outcomes import describe_end
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch.scheduler import (
    ENDED,
    PENDING,
    RUNNING,
    Sight,
    last_sight,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps import launcher_batch
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.batch_records import SUBMISSION, job_name
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.step import describe_outcome, step_files, utc

NONCE = "9c0a11d4" * 4
NAME = "ts-s-d1-9c0a11d4"


class Scheduler:
    """One that shows what it is told."""

    name, title = "slurm", "Slurm"

    def __init__(self, *sights):
        self.sights, self.cancelled = sights, []

    def find(self, name):
        if None in self.sights:
            raise StackError("Slurm did not answer.", "scheduler", "Run this again.")
        return [sight for sight in self.sights if sight.name == name]

    def cancel(self, job_id):
        self.cancelled.append(job_id)


@pytest.fixture(name="step")
def one_step(tmp_path, monkeypatch):
    monkeypatch.setattr(launcher_batch, "WATCH_SECONDS", 0.05)
    monkeypatch.setattr(launcher_batch, "RECORD_SECONDS", 0.05)
    monkeypatch.setattr(launcher_batch, "END_SECONDS", 0.05)
    launcher_batch._stopped.clear()
    step = step_files(str(tmp_path), "s")
    (tmp_path / "s").mkdir()

    def standing(sights, phase="starting", job_id="12", outcome=None, requeue=0, requeue_on=("preempted",),
                 stamp=False, **more):
        job = {
            "digest": "d1", "heartbeat": utc(1e9), "host": "n1", "launcher": "slurm", "nonce": NONCE, "phase": phase,
            "pid": 7, **more,
        }
        submission = {"nonce": NONCE, "job_name": NAME, "job_id": job_id, "requeues": 0}
        records = {"job.json": job, SUBMISSION: submission}
        if stamp:
            records["stamp.json"] = {"nonce": NONCE, "digest": "d1"}
        for name, record in records.items():
            (tmp_path / "s" / name).write_text(json.dumps(record))
        launcher = launcher_batch.BatchLauncher("slurm", {"requeue": requeue, "requeue_on": list(requeue_on)})
        launcher.scheduler = Scheduler(*sights)
        outcome = outcome and dict(outcome, nonce=NONCE)
        return launcher.standing(step, job, outcome)

    return standing


def sight(state, **more):
    return Sight("12", NAME, state, **more)


def ended(end, **more):
    return sight(ENDED, end=end, words=end.upper(), **more)


STOPPED = {"reason": "stopped", "signal": 15}
BROKEN = {"reason": "exit", "code": 2}
SILENT = (None,)


@pytest.mark.parametrize("sights, how, expected", [
    ([sight(PENDING)], {}, "queued"),
    ([sight(PENDING)], {"job_id": None}, "queued"),
    ([sight(PENDING, restarts=1)], {"phase": "running"}, "queued"),
    ([sight(PENDING, restarts=1)], {"phase": "running", "outcome": STOPPED}, "queued"),
    ([sight(PENDING, restarts=1)], {"phase": "running", "outcome": BROKEN}, "queued"),
    ([sight(RUNNING)], {}, "queued"),
    ([sight(RUNNING)], {"phase": "running"}, "elsewhere"),
    ([sight(RUNNING)], {"phase": "running", "outcome": {"reason": "done"}}, "elsewhere"),
    ([sight(RUNNING)], {"phase": "running", "outcome": STOPPED}, "queued"),
    ([sight(RUNNING)], {"phase": "running", "outcome": BROKEN}, "finished"),
    ([sight(RUNNING)], {"phase": "running", "outcome": {"reason": "timeout"}}, "finished"),
    ([], {"job_id": None}, "starting"),
    ([], {}, "lost"),
    ([], {"phase": "running"}, "lost"),
    ([], {"phase": "running", "outcome": STOPPED}, "finished"),
    ([], {"phase": "running", "outcome": {"reason": "done"}, "stamp": True}, "finished"),
    ([ended("time_limit")], {"phase": "running"}, "ended"),
    ([ended("time_limit")], {"phase": "running", "outcome": BROKEN}, "ended"),
    ([ended("time_limit")], {"phase": "running", "stamp": True}, "finished"),
    ([ended("time_limit")], {"requeue": 1}, "ended"),
    ([ended("time_limit")], {"requeue": 1, "requeue_on": ["time_limit"]}, "requeue"),
    ([ended("time_limit", restarts=1)], {"requeue": 1, "requeue_on": ["time_limit"]}, "ended"),
    ([ended("preempted")], {"requeue": 1, "outcome": STOPPED, "phase": "running"}, "requeue"),
    ([ended("cancelled")], {"requeue": 9}, "ended"),
    ([ended("failed")], {"phase": "running", "outcome": BROKEN}, "finished"),
    ([ended("failed")], {"phase": "running"}, "ended"),
    ([ended("done")], {"phase": "running"}, "ended"),
    (SILENT, {}, "unasked"),
    (SILENT, {"phase": "running"}, "unasked"),
    (SILENT, {"phase": "running", "outcome": STOPPED}, "unasked"),
    (SILENT, {"phase": "running", "outcome": BROKEN}, "finished"),
])
def test_how_a_job_stands(step, sights, how, expected):
    assert step(sights, **how).word == expected


@pytest.mark.parametrize("how, expected", [
    ({"restarts": 0}, "queued"), ({"restarts": 1}, "elsewhere"), ({"restarts": None}, "elsewhere"),
    ({"restarts": None, "turn": 0, "taken": 0}, "elsewhere"), ({"restarts": None, "turn": 0, "taken": 1}, "queued"),
], ids=["earlier-start", "this-start", "start-not-counted", "last-turn", "former-turn"])
def test_the_record_of_an_earlier_start_is_not_the_supervisor_of_this_one(step, tmp_path, how, expected):
    taken = how.pop("taken", None)
    if taken is not None:
        (tmp_path / "s" / (".turn.%s.%d" % (NONCE, taken))).write_text("{}")
    found = step([sight(RUNNING, restarts=1, nodes="n2")], phase="running", **how)
    assert found.word == expected
    if expected == "queued":
        assert [found.queue[key] for key in ("state", "node", "former")] == ["starting", "n2", "n1"]


def test_a_job_that_starts_waits_for_what_the_attempt_before_has_left_elsewhere(step, tmp_path):
    former = {"nonce": "f" * 32, "number": 0, "owner": {"host": "n3"}}
    assert step([sight(RUNNING, nodes="n2")], former=former).queue["former"] == "n3"
    (tmp_path / "s" / (".turn.%s.0.left" % ("f" * 32))).write_text("")
    assert step([sight(RUNNING, nodes="n2")], former=former).queue["former"] == ""
    assert step([sight(PENDING)], former=former).queue["node"] == ""


def test_a_heartbeat_that_goes_on_outweighs_a_scheduler_that_knows_nothing(step, monkeypatch):
    monkeypatch.setattr(launcher_batch, "heartbeat_changes", lambda path, seconds: True)
    for sights in ([], SILENT):
        assert step(sights, phase="running").word == "elsewhere"


def test_the_end_of_a_job_is_told_in_its_schedulers_terms(step):
    end = step([ended("time_limit", nodes="n2", reason="TimeLimit", advice="Ask for longer.", signal=15)]).end
    assert (end["reason"], end["job_id"], end["node"], end["advice"]) == ("time_limit", "12", "n2", "Ask for longer.")
    assert describe_outcome("s", end) == (
        "job 12 of step s reached its time limit (Slurm: TIME_LIMIT, reason TimeLimit, node n2)")
    end = step([ended("failed", nodes="n2", exit_code=127)], phase="running").end
    assert describe_end("s", end) == (
        "job 12 of step s ended without a word from its supervisor (Slurm: FAILED, node n2, exit code 127)")


@pytest.mark.parametrize("given, state", [
    (sight(PENDING, held=True), "held"), (sight(PENDING), "pending"), (sight(PENDING, restarts=1), "requeued"),
    (sight(RUNNING), "starting"),
])
def test_how_a_job_waits(step, given, state):
    queue = step([given]).queue
    assert (queue["state"], queue["job_id"]) == (state, "12")


def test_among_jobs_of_one_name_the_living_one_counts():
    over, alive = ended("done"), sight(RUNNING)
    assert last_sight([over, alive]) == alive
    assert last_sight([over, ended("failed")]) == over
    assert last_sight([]) is None


def test_every_submission_has_a_name_of_its_own():
    assert job_name("pytorch", "6f1ed002ab55", NONCE, 0) == "ts-pytorch-6f1ed002-9c0a11d4"
    assert job_name("pytorch", "6f1ed002ab55", NONCE, 2) == "ts-pytorch-6f1ed002-9c0a11d4-r2"
