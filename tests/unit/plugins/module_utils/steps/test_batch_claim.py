# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Supervisors of one attempt on several nodes: whose turn it is (batch_claim and turn_records)."""

from __future__ import annotations

import json
import os

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.processes import Here, here
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps import batch_claim, turn_records
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.batch_claim import (
    Turn,
    own_job_id,
    own_restarts,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.files import step_files

from .step_records import job_record

NONCE = "n" * 32
AWAY = Here("n2", "another boot")


@pytest.fixture(name="turn")
def turns(tmp_path, monkeypatch):
    """Make turns of supervisors, each on a machine and of a job."""
    monkeypatch.setattr(batch_claim, "WATCH_SECONDS", 0.05)
    monkeypatch.setattr(batch_claim, "HEARTBEAT_SECONDS", 0.05)
    step = step_files(str(tmp_path), "s")
    (tmp_path / "s").mkdir()
    job = job_record(nonce=NONCE, limits={"grace": 0.05}, launcher="slurm", options={"requeue": 1}, pid=1)
    job.write(step)
    return lambda job_id, place=None, **more: Turn(step, job._replace(**more), place or here(), job_id)


def test_the_first_one_builds_and_a_second_job_leaves_it_in_peace(turn):
    first, second = turn("12"), turn("13")
    assert first.take()
    assert not second.take(), "the first one lives, on this very machine"
    assert (first.number, first.lost(), first.restarts()) == (0, False, 0)
    assert [claim.owner.job_id for claim in first.claims()] == ["12"]


def test_who_has_left_is_followed_at_once(turn, tmp_path):
    first, second = turn("12", AWAY), turn("13")
    assert first.take()
    first.leave()
    assert second.take()
    assert (second.number, first.lost(), second.lost()) == (1, True, False)


def test_a_job_that_was_started_again_takes_over_from_its_first_start(turn):
    first, second = turn("12", AWAY), turn("12")
    assert first.take()
    assert second.take(), "after the first one has had its time to leave"
    assert first.lost()
    assert (second.restarts(), second.excess()) == (1, None)
    second.requeues = 1
    assert second.excess().as_json() == {
        "reason": "requeued", "count": 2, "limit": 1, "scheduler": "slurm", "job_id": "12",
    }


def test_one_of_an_earlier_boot_of_this_machine_is_not_waited_for(turn, monkeypatch):
    first, second = turn("12", Here(here().host, "an earlier boot")), turn("12")
    assert first.take()
    monkeypatch.setattr(batch_claim.time, "sleep", lambda seconds: pytest.fail("it waits"))
    assert second.take()


def test_a_former_supervisor_is_waited_for_as_long_as_it_shows_that_it_lives(turn, monkeypatch):
    first, second, checks = turn("12", AWAY), turn("12"), []
    assert first.take()

    def later(seconds):
        checks.append(seconds)
        if len(checks) % 4 == 0:
            monkeypatch.setattr(batch_claim, "utc", lambda now: "check %d" % len(checks))
            first.show_life()
        if len(checks) == 200:
            first.leave()

    monkeypatch.setattr(batch_claim.time, "sleep", later)
    assert second.take()
    assert len(checks) == 200
    first = turn("13", AWAY, nonce="o" * 32)
    assert first.take()
    third = turn("14", nonce="p" * 32, former=turn_records.still_there(first.files, "o" * 32))
    checks.clear()
    assert third.take(), "what the attempt before has left is waited for too, and is dead here"
    assert len(checks) >= batch_claim.MAX_MISSED_HEARTBEATS * batch_claim.CHECKS_PER_HEARTBEAT


def test_who_is_asked_to_end_while_it_waits_does_not_build(turn, monkeypatch):
    first, second = turn("12", AWAY), turn("12")
    assert first.take()
    monkeypatch.setattr(batch_claim.signal, "sigpending", lambda: {batch_claim.signal.SIGTERM})
    assert not second.take()


def test_a_job_that_was_submitted_again_takes_over(turn):
    first, second = turn("12", AWAY), turn("13")
    second.requeues = 1
    assert first.take()
    assert second.take()


@pytest.mark.parametrize("beats", [True, False])
def test_another_job_takes_over_only_from_one_whose_heartbeat_has_stopped(turn, monkeypatch, beats):
    monkeypatch.setattr(batch_claim, "heartbeat_changes", lambda path, seconds: beats)
    first, second = turn("12", AWAY), turn("13")
    assert first.take()
    assert second.take() is not beats
    assert first.lost() is not beats


def test_a_dead_supervisor_of_this_machine_is_followed(turn, tmp_path):
    first, second = turn("12"), turn("13")
    assert first.take()
    claim = tmp_path / "s" / (".turn.%s.0" % NONCE)
    claim.write_text(json.dumps(dict(json.loads(claim.read_text()), pid=2 ** 22 + 1)))
    assert second.take()


def test_a_turn_that_somebody_else_was_faster_to_take_is_judged_again(turn, tmp_path, monkeypatch):
    """Another one takes the turn between the check and the claim."""
    first, second = turn("12", AWAY), turn("13")
    real = second._claim

    def slower(number):
        assert first.take()
        first.leave()
        monkeypatch.setattr(second, "_claim", real)
        return second._claim(number)

    monkeypatch.setattr(second, "_claim", slower)
    assert second.take()
    assert (first.number, second.number) == (0, 1)


def test_a_link_that_was_made_although_the_answer_says_otherwise_counts(turn, monkeypatch):
    """NFS repeats a request whose answer was lost, and then finds the link there."""
    real = os.link

    def answered_late(source, target):
        real(source, target)
        raise FileExistsError(17, "File exists", source, target)

    monkeypatch.setattr(os, "link", answered_late)
    first = turn("12")
    assert first.take()
    assert first.number == 0


def test_what_earlier_starts_said_of_their_end_is_removed(turn, tmp_path):
    (tmp_path / "s" / "exit").write_text("{}")
    only = turn("12")
    assert only.take()
    only.clean_up()
    assert not (tmp_path / "s" / "exit").exists()
    only.leave()
    assert (tmp_path / "s" / (".turn.%s.0%s" % (NONCE, turn_records.LEFT))).exists()


def test_a_job_knows_its_own_identifier():
    slurm, pbs = ("SLURM_JOB_ID", "SLURM_RESTART_COUNT"), ("PBS_JOBID",)
    assert own_job_id({"SLURM_JOB_ID": "12"}, slurm) == "12"
    assert own_job_id({"PBS_JOBID": "12.server"}, pbs) == "12.server"
    assert own_job_id({}, pbs) is None
    assert own_job_id({"PBS_JOBID": "12.server"}, ()) is None
    assert own_restarts({"SLURM_JOB_ID": "12"}, slurm) == 0
    assert own_restarts({"SLURM_JOB_ID": "12", "SLURM_RESTART_COUNT": "3"}, slurm) == 3
    assert own_restarts({"SLURM_RESTART_COUNT": "3"}, slurm) is None
    assert own_restarts({"PBS_JOBID": "12.server"}, pbs) is None
