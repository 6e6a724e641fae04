# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What PBS's states, exit statuses and refusals mean: judged on the recorded answers of a real one."""

from __future__ import annotations

import json
import pathlib

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch import scheduler
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch.pbs import parse_jobs
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch.pbs_states import (
    SPECIAL,
    End,
    advice_on_end,
    advice_on_refusal,
    advice_on_waiting,
    describe_state,
    end_of,
    is_held,
    nodes_of,
    start_of,
    state_of,
)

OLDEST, *NEWER = sorted((pathlib.Path(__file__).parents[4] / "pbs" / "records").iterdir())


def exchanges_of(scenario, version):
    """What was recorded; a newer version has records where it answers otherwise."""
    path = version / (scenario + ".json")
    return json.loads((path if path.exists() else OLDEST / path.name).read_text())["exchanges"]


@pytest.fixture(name="recorded", params=[OLDEST, *NEWER], ids=lambda version: version.name)
def recorded_job(request):
    """A job as qstat showed it at a moment of a scenario."""

    def find(scenario, moment):
        exchanges = exchanges_of(scenario, request.param)
        texts = [item["stdout"] for item in exchanges if item["moment"] == moment and '"Jobs"' in item["stdout"]]
        (job,) = parse_jobs(texts[-1]).values()
        return job

    return find


@pytest.mark.parametrize(
    ("scenario", "moment", "state"),
    [
        ("done", "running", scheduler.RUNNING),
        ("done", "finished", scheduler.ENDED),
        ("cancelled", "exiting", scheduler.RUNNING),
        ("held", "held", scheduler.PENDING),
        ("queued", "queued", scheduler.PENDING),
        ("not_started", "queued", scheduler.PENDING),
        ("requeued", "requeued", scheduler.PENDING),
        ("requeued", "running again", scheduler.RUNNING),
        ("preempted", "suspended", scheduler.RUNNING),
        ("preempted", "requeued", scheduler.PENDING),
        ("node_down", "rerunnable", scheduler.PENDING),
    ],
)
def test_recorded_states(recorded, scenario, moment, state):
    assert state_of(recorded(scenario, moment)) == state


@pytest.mark.parametrize(
    ("scenario", "moment", "end"),
    [
        ("done", "finished", End("done", 0, None)),
        ("failed", "finished", End("failed", 3, None)),
        ("log_missing", "finished", End("failed", 73, None)),
        ("signalled", "finished", End("failed", None, 9)),
        ("walltime", "finished", End("time_limit", None, None)),
        ("walltime_obeyed", "finished", End("time_limit", None, None)),
        ("queued", "finished", End("cancelled", None, None)),
        ("held_by_the_site", "finished", End("cancelled", None, None)),
        ("cancelled", "finished", End("cancelled", None, 15)),
        ("cancelled_obeyed", "finished", End("cancelled", 0, None)),
        ("cancelled_by_force", "finished", End("cancelled", None, 9)),
        ("requeued", "finished", End("done", 0, None)),
        ("node_down", "not rerunnable", End("node_failed", None, None)),
    ],
)
def test_recorded_ends(recorded, scenario, moment, end):
    assert end_of(recorded(scenario, moment)) == end


def test_a_job_that_the_scheduler_deleted_to_make_room_was_preempted(recorded):
    assert end_of(recorded("preempted", "deleted")).end == "preempted"


def test_a_job_that_was_deleted_after_it_was_put_back_was_cancelled(recorded):
    job = recorded("preempted", "requeued, finished")
    assert job["Exit_status"] == -11, "of the run before"
    assert end_of(job).end == "cancelled"


def test_the_exit_status_of_an_earlier_run_is_not_told_of_a_job_that_waits_or_runs(recorded):
    assert recorded("requeued", "requeued")["Exit_status"] == -11, "and in 23.06.06 also when it runs again"
    for moment in ("requeued", "running again"):
        assert "Exit_status" not in describe_state(recorded("requeued", moment))


def test_the_words_are_those_of_pbs(recorded):
    assert describe_state(recorded("walltime", "finished")) == (
        "job_state F, substate 93, Exit_status -29 (it ran longer than its walltime)"
    )
    assert describe_state(recorded("held", "held")) == "job_state H (held)"


def test_who_can_lift_a_hold_is_told(recorded):
    assert is_held(recorded("held", "held"))
    assert "qrls 1.s" in advice_on_waiting("1.s", recorded("held", "held"))
    assert "ask the site" in advice_on_waiting("1.s", recorded("held_by_the_site", "held"))
    assert not is_held(recorded("queued", "queued"))


def test_a_job_that_can_never_run_is_told_from_one_that_waits(recorded):
    assert "can never start" in advice_on_waiting("1.s", recorded("queued", "queued"))
    assert advice_on_waiting("1.s", recorded("not_started", "queued")) == ""
    assert "starts nothing" in advice_on_waiting("1.s", recorded("refused", "queue not started"))


def test_every_special_exit_status_has_an_end_and_a_meaning():
    for status, (end, meaning) in SPECIAL.items():
        assert -30 <= status < 0 and end in scheduler.ENDS and meaning
        assert end_of({"job_state": "F", "substate": 93, "Exit_status": status}).end == end


@pytest.mark.parametrize(
    ("job", "end"),
    [
        ({"substate": 92}, "done"),
        ({"substate": 93}, "node_failed"),
        ({"substate": 93, "Exit_status": 255}, "failed"),
        ({"substate": 93, "Exit_status": 256}, "failed"),
        ({"substate": 93, "Exit_status": -99}, "failed"),
        ({"substate": 93, "Exit_status": "odd"}, "node_failed"),
    ],
)
def test_ends_that_were_not_recorded(job, end):
    assert end_of({"job_state": "F", **job}).end == end


def test_a_state_of_another_version_is_a_job_that_goes_on():
    assert state_of({"job_state": "Z"}) == scheduler.RUNNING
    assert describe_state({"job_state": "Z"}) == "job_state Z"


def test_a_moved_job_waits_until_it_is_over_elsewhere():
    assert state_of({"job_state": "M", "substate": 94}) == scheduler.PENDING
    assert state_of({"job_state": "M", "substate": 92}) == scheduler.ENDED


@pytest.mark.parametrize(
    ("moment", "advice"),
    [
        ("unknown queue", "qstat -Q"),
        ("closed queue", "takes no jobs"),
        ("unknown resource", "list resource"),
        ("malformed resource", "the words say which"),
        ("over the limit", "qstat -Qf"),
        ("too many jobs", "as many jobs"),
        ("no access", "another queue"),
        ("long name", "job name"),
    ],
)
def test_each_recorded_refusal_has_an_advice(moment, advice):
    exchanges = exchanges_of("refused", OLDEST)
    (words,) = [item["stderr"] for item in exchanges if item["moment"] == moment and item["command"][0] == "qsub"]
    assert advice in advice_on_refusal(words)


def test_an_identifier_that_the_server_gives_out_twice_is_not_laid_to_the_step():
    """A server that was killed after it was started anew, and before its first job since then, counts anew."""
    advice = advice_on_refusal("qsub: Job with requested ID already exists")
    assert "run this again" in advice and "launcher_options" not in advice


def test_ends_that_the_log_explains_have_no_advice():
    assert advice_on_end(End("failed", 2, None)) == ""
    assert advice_on_end(End("done", 0, None)) == ""
    assert "log" in advice_on_end(End("failed", 73, None))


@pytest.mark.parametrize(("exec_host", "nodes"), [
    ("nid1/0", "nid1"), ("nid1/0*64+nid2/0*64", "nid1,nid2"), ("nid2/0*4+nid1/0*4+nid2/1*4", "nid2,nid1"), (None, ""),
])
def test_the_nodes_of_a_job_are_named_without_their_slots(exec_host, nodes):
    assert nodes_of({"exec_host": exec_host} if exec_host else {}) == nodes


@pytest.mark.parametrize(("estimated", "start"), [
    ({"start_time": "Sat Nov  7 14:20:00 2026"}, "2026-11-07T14:20:00Z"),
    ({"start_time": "Sat Nov 21 04:20:00 2026", "exec_vnode": "(n:ncpus=1)"}, "2026-11-21T04:20:00Z"),
    ({"start_time": "UNKNOWN"}, ""), ({"start_time": 0}, ""), ({}, ""), (None, ""),
])
def test_an_expected_start_is_told_as_the_records_tell_times(estimated, start):
    assert start_of({"estimated": estimated}) == start


@pytest.mark.parametrize("job", [
    {"job_state": {}}, {"job_state": []}, {"job_state": "F", "Exit_status": []}, {"job_state": "F", "Exit_status": {}},
    {"job_state": "F", "Exit_status": "271"},
])
def test_a_malformed_answer_is_described_and_not_stumbled_over(job):
    assert state_of(job) in ("running", "ended", "pending", "RUNNING", "ENDED", "PENDING")
    assert describe_state(job).startswith("job_state ")
    assert end_of(job).exit_code is None
