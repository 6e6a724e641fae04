# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The state of a batch job, from its records and from what its scheduler shows (launcher_batch, batch_submission)."""

from __future__ import annotations

import json

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch.scheduler import (
    ENDED,
    PENDING,
    RUNNING,
    JobStatus,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.clock import utc
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps import launcher_batch
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.batch_submission import job_name
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.files import step_files
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.outcome import describe_outcome
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.records import Stamp, StepRecords, Submission

from .step_records import job_record, outcome

NONCE = "9c0a11d4" * 4
NAME = "ts-s-d1-9c0a11d4"


class Scheduler:
    """One that shows what it is told."""

    name, title = "slurm", "Slurm"

    def __init__(self, *jobs):
        self.jobs, self.cancelled = jobs, []

    def find(self, name):
        if None in self.jobs:
            raise StackError("Slurm did not answer.", "scheduler", "Run this again.")
        return [job for job in self.jobs if job.name == name]

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

    def state_of(
        jobs, phase="starting", job_id="12", end=None, requeue=0, requeue_on=("preempted",), stamp=False, **more
    ):
        job = job_record(nonce=NONCE, launcher="slurm", phase=phase, host="n1", heartbeat=utc(1e9), **more)
        job.write(step)
        Submission(NONCE, NAME, job_id).write(step)
        if stamp:
            (tmp_path / "s" / "stamp.json").write_text(json.dumps(Stamp("d1", NONCE)._asdict()))
        launcher = launcher_batch.BatchLauncher("slurm", {"requeue": requeue, "requeue_on": list(requeue_on)})
        launcher.scheduler = Scheduler(*jobs)
        return launcher.query(step, StepRecords(None, job, end and end._replace(nonce=NONCE)))

    return state_of


def status(state, **more):
    return JobStatus("12", NAME, state, **more)


def ended(end, **more):
    return status(ENDED, end=end, native_state=end.upper(), **more)


STOPPED = outcome("stopped", signal=15)
BROKEN = outcome("exit", code=2)
SILENT = (None,)


@pytest.mark.parametrize("jobs, how, expected", [
    ([status(PENDING)], {}, "queued"),
    ([status(PENDING)], {"job_id": None}, "queued"),
    ([status(PENDING, restarts=1)], {"phase": "running"}, "queued"),
    ([status(PENDING, restarts=1)], {"phase": "running", "end": STOPPED}, "queued"),
    ([status(PENDING, restarts=1)], {"phase": "running", "end": BROKEN}, "queued"),
    ([status(RUNNING)], {}, "queued"),
    ([status(RUNNING)], {"phase": "running"}, "elsewhere"),
    ([status(RUNNING)], {"phase": "running", "end": outcome("done")}, "elsewhere"),
    ([status(RUNNING)], {"phase": "running", "end": STOPPED}, "queued"),
    ([status(RUNNING)], {"phase": "running", "end": BROKEN}, "finished"),
    ([status(RUNNING)], {"phase": "running", "end": outcome("timeout")}, "finished"),
    ([], {"job_id": None}, "starting"),
    ([], {}, "lost"),
    ([], {"phase": "running"}, "lost"),
    ([], {"phase": "running", "end": STOPPED}, "finished"),
    ([], {"phase": "running", "end": outcome("done"), "stamp": True}, "finished"),
    ([ended("time_limit")], {"phase": "running"}, "ended"),
    ([ended("time_limit")], {"phase": "running", "end": BROKEN}, "ended"),
    ([ended("time_limit")], {"phase": "running", "stamp": True}, "finished"),
    ([ended("time_limit")], {"requeue": 1}, "ended"),
    ([ended("time_limit")], {"requeue": 1, "requeue_on": ["time_limit"]}, "requeue"),
    ([ended("time_limit", restarts=1)], {"requeue": 1, "requeue_on": ["time_limit"]}, "ended"),
    ([ended("preempted")], {"requeue": 1, "end": STOPPED, "phase": "running"}, "requeue"),
    ([ended("cancelled")], {"requeue": 9}, "ended"),
    ([ended("failed")], {"phase": "running", "end": BROKEN}, "finished"),
    ([ended("failed")], {"phase": "running"}, "ended"),
    ([ended("done")], {"phase": "running"}, "ended"),
    (SILENT, {}, "unasked"),
    (SILENT, {"phase": "running"}, "unasked"),
    (SILENT, {"phase": "running", "end": STOPPED}, "unasked"),
    (SILENT, {"phase": "running", "end": BROKEN}, "finished"),
])
def test_the_state_of_a_job_follows_from_its_records_and_its_scheduler(step, jobs, how, expected):
    assert step(jobs, **how).name == expected


@pytest.mark.parametrize("how, expected", [
    ({"restarts": 0}, "queued"), ({"restarts": 1}, "elsewhere"), ({"restarts": None}, "elsewhere"),
    ({"restarts": None, "turn": 0, "taken": 0}, "elsewhere"), ({"restarts": None, "turn": 0, "taken": 1}, "queued"),
], ids=["earlier-start", "this-start", "start-not-counted", "last-turn", "former-turn"])
def test_the_record_of_an_earlier_start_is_not_the_supervisor_of_this_one(step, tmp_path, how, expected):
    taken = how.pop("taken", None)
    if taken is not None:
        (tmp_path / "s" / (".turn.%s.%d" % (NONCE, taken))).write_text("{}")
    found = step([status(RUNNING, restarts=1, nodes="n2")], phase="running", **how)
    assert found.name == expected
    if expected == "queued":
        assert [found.queue[key] for key in ("state", "node", "former")] == ["starting", "n2", "n1"]


def test_a_job_that_starts_waits_for_what_the_attempt_before_has_left_elsewhere(step, tmp_path):
    former = {"nonce": "f" * 32, "number": 0, "owner": {"host": "n3"}}
    assert step([status(RUNNING, nodes="n2")], former=former).queue["former"] == "n3"
    (tmp_path / "s" / (".turn.%s.0.left" % ("f" * 32))).write_text("")
    assert step([status(RUNNING, nodes="n2")], former=former).queue["former"] == ""
    assert step([status(PENDING)], former=former).queue["node"] == ""


def test_a_heartbeat_that_goes_on_outweighs_a_scheduler_that_knows_nothing(step, monkeypatch):
    monkeypatch.setattr(launcher_batch, "heartbeat_changes", lambda path, seconds: True)
    for jobs in ([], SILENT):
        assert step(jobs, phase="running").name == "elsewhere"


def test_the_end_of_a_job_is_told_in_its_schedulers_terms(step):
    end = step([ended("time_limit", nodes="n2", reason="TimeLimit", advice="Ask for longer.", signal=15)]).end
    assert end.reason == "time_limit"
    assert [end.facts[key] for key in ("job_id", "node", "advice")] == ["12", "n2", "Ask for longer."]
    assert describe_outcome("s", end) == (
        "job 12 of step s reached its time limit (Slurm: TIME_LIMIT, reason TimeLimit, node n2)")
    end = step([ended("failed", nodes="n2", exit_code=127)], phase="running").end
    assert describe_outcome("s", end) == (
        "job 12 of step s ended, and its supervisor has recorded nothing (Slurm: FAILED, node n2, exit code 127)")


@pytest.mark.parametrize("given, state", [
    (status(PENDING, held=True), "held"), (status(PENDING), "pending"), (status(PENDING, restarts=1), "requeued"),
    (status(RUNNING), "starting"),
])
def test_how_a_job_waits(step, given, state):
    queue = step([given]).queue
    assert (queue["state"], queue["job_id"]) == (state, "12")


def test_every_submission_has_a_name_of_its_own():
    assert job_name("pytorch", "6f1ed002ab55", NONCE, 0) == "ts-pytorch-6f1ed002-9c0a11d4"
    assert job_name("pytorch", "6f1ed002ab55", NONCE, 2) == "ts-pytorch-6f1ed002-9c0a11d4-r2"
