# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Jobs of Flux as the adapter sees them, by the recorded answers of a real one; see tests/flux/record.py."""

from __future__ import annotations

import json
import pathlib

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch.commands import Answer
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch.flux import Flux, parse_jobs
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch.flux_states import end_of, f58, is_held, start_of
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch.scheduler import (
    ENDED,
    PENDING,
    RUNNING,
    current_job,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError

RECORDS = json.loads((pathlib.Path(__file__).parents[4] / "flux" / "records" / "0.88.0.json").read_text())


def replay(scenario):
    """A Flux that gives the answers of a scenario, to the very commands to which they were given."""
    flux, left = Flux(), list(RECORDS[scenario])

    def run(words, *_how):
        exchange = left.pop(0)
        assert [word for word in words if not word.startswith("/")] == [
            word for word in exchange["command"] if not word.startswith("@")]
        return Answer(exchange["status"], exchange["output"], exchange["complaint"])

    flux.commands._run = run
    return flux


def found(scenario):
    return current_job(replay(scenario).find("ts-" + ("cancelled" if scenario == "running" else scenario)))


@pytest.mark.parametrize(("scenario", "end", "code", "signal", "native"), [
    ("done", "done", 0, None, "COMPLETED"),
    ("failed", "failed", 3, None, "FAILED, returncode 3"),
    ("signalled", "failed", None, 9, "FAILED, returncode 137"),
    ("no-log", "failed", 73, None, "FAILED, returncode 73"),
    ("impossible", "never_started", None, None, "FAILED, exception alloc"),
])
def test_how_a_job_ended_by_itself(scenario, end, code, signal, native):
    job = found(scenario)
    assert (job.state, job.end, job.exit_code, job.signal, job.native_state) == (ENDED, end, code, signal, native)
    assert job.nodes == ("" if end == "never_started" else "n0")


@pytest.mark.parametrize(("scenario", "end", "reason", "advice"), [
    ("time-limit", "time_limit", "resource allocation expired", "longer walltime"),
    ("cancelled", "cancelled", "", ""),
    ("node-lost", "node_failed", "node failure on n2 (rank 2)", "'flux resource drain'"),
    ("impossible", "never_started", "unsatisfiable request: need 1 node(s) with 4096 cores each", "flux resource list"),
    ("no-log", "failed", "", "could not open the log"),
])
def test_how_flux_ended_a_job_and_what_to_do(scenario, end, reason, advice):
    job = found(scenario)
    assert (job.state, job.end) == (ENDED, end)
    assert reason in job.reason and advice in job.advice
    assert bool(advice) == bool(job.advice)


def test_a_held_job_says_how_it_is_released():
    job = found("held")
    assert (job.state, job.held, job.reason, job.position) == (PENDING, True, "urgency 0", None)
    assert job.advice == "It is held: 'flux job urgency %s default' lets it go on." % job.job_id


def test_a_job_that_depends_on_another_names_it():
    job = found("depends")
    assert (job.state, job.held) == (PENDING, False)
    assert job.reason == "depends on after-success=" + found("held").job_id


def test_a_job_in_a_queue_that_is_stopped_says_so_and_has_its_place():
    job = found("stopped")
    assert (job.state, job.position, job.of, job.partition) == (PENDING, 2, 2, "short")
    assert job.reason == "short: Scheduling is stopped: maintenance"


def test_a_running_job_is_on_its_nodes():
    job = found("running")
    assert (job.state, job.nodes, job.held, job.end) == (RUNNING, "n0", False, "")


@pytest.mark.parametrize(("scenario", "words", "advice"), [
    ("refused-queue", "Flux has refused the job: Invalid queue 'nosuch' specified.", "Correct queue"),
    ("refused-time", "requested duration (30m) exceeds policy limit of 10m for queue short", "a shorter walltime"),
    ("refused-disabled", "job submission to short is disabled: maintenance", "choose another queue"),
    ("refused-constraint", "--requires='a100&(b': Unclosed parenthesis in position 5", "Correct constraint"),
    ("refused-option", "unrecognized arguments: --no-such-option", "Correct launcher_options"),
])
def test_a_refusal_is_told_in_the_words_of_flux(scenario, words, advice):
    with pytest.raises(StackError) as caught:
        replay(scenario).submit("/ts.sh", {}, ())
    assert caught.value.failed_step == "submit"
    assert words in caught.value.message and advice in caught.value.remedy


def test_the_identifier_of_a_submitted_job_is_in_ascii():
    assert replay("accepted").submit("/ts.sh", {}, ()).startswith("f")
    flux = Flux()
    flux.commands._run = lambda *_words: Answer(0, "the site says hello\n\u019286FTkLv9\n", "")
    assert flux.submit("/ts.sh", {}, ()) == "f86FTkLv9"


@pytest.mark.parametrize(("scenario", "call"), [
    ("silent-find", lambda flux: flux.find("f23")), ("silent-cancel", lambda flux: flux.cancel("f23")),
    ("silent-submit", lambda flux: flux.submit("/ts.sh", {}, ())),
])
def test_a_flux_that_does_not_answer_is_never_an_answer(scenario, call):
    with pytest.raises(StackError) as caught:
        call(replay(scenario))
    assert (caught.value.failed_step, "Flux did not answer" in caught.value.message) == ("scheduler", True)
    assert "flux uptime" in caught.value.remedy


@pytest.mark.parametrize("answer", [
    Answer(0, "", ""), Answer(0, "{}", ""), Answer(0, '{"jobs": null}', ""), Answer(0, "[]", ""), Answer(-9, "", ""),
    Answer(1, '{"jobs": []}', "flux-jobs: ERROR: [Errno 71] Protocol error"),
    Answer(0, '{"jobs": [', ""),
])
def test_an_answer_that_is_cut_short_is_not_one_without_jobs(answer):
    flux = Flux()
    flux.commands._run = lambda *_words: answer
    with pytest.raises(StackError) as caught:
        flux.find("ts-any")
    assert caught.value.failed_step == "scheduler"


def test_a_command_that_broke_off_may_have_submitted():
    flux = Flux()
    said = "Traceback (most recent call last):\n  File \"py-runner.py\", line 15\nAttributeError: module '_thread'"
    flux.commands._run = lambda *_words: Answer(1, "", said)
    with pytest.raises(StackError) as caught:
        flux.submit("/ts.sh", {}, ())
    assert caught.value.failed_step == "scheduler"


def test_a_job_that_flux_does_not_know_is_none_and_cancelling_what_is_over_is_no_error():
    assert replay("unknown").find("ts-unknown") == []
    for scenario in ("cancel-over", "cancel-unknown"):
        assert [item["status"] for item in RECORDS[scenario]] == [1]
        replay(scenario).cancel(RECORDS[scenario][0]["command"][-1])
    replay("cancel-waiting").cancel(RECORDS["cancel-waiting"][0]["command"][-1])


def test_a_refused_cancellation_is_an_error():
    flux = Flux()
    flux.commands._run = lambda *_words: Answer(
        1, "", "flux-cancel: ERROR: f23: guests can only raise exceptions on their own jobs")
    with pytest.raises(StackError) as caught:
        flux.cancel("f23")
    assert caught.value.failed_step == "cancel" and "guests can only" in caught.value.message


def test_the_caller_s_python_and_job_do_not_reach_the_commands(monkeypatch):
    for name in ("PYTHONPATH", "PYTHONHOME", "FLUX_JOB_ID", "FLUX_CONNECTOR_PATH", "FLUX_URI"):
        monkeypatch.setenv(name, "x")
    environment = Flux().commands.environment()
    assert [name for name in environment if name.startswith(("PYTHON", "FLUX"))] == ["FLUX_URI"]


@pytest.mark.parametrize(("number", "text"), [
    # As RFC 19 of Flux and its own command write them.
    (0, "f1"), (1, "f2"), (57, "fz"), (58, "f21"), (285195894784, "f8VWnWSj"), (1219770712064, "fZ3PxjXM"),
])
def test_identifiers_are_written_as_flux_writes_them(number, text):
    assert f58(number) == text


def test_identifiers_of_records_are_those_that_flux_wrote_itself():
    for scenario in ("done", "failed", "held", "node-lost"):
        for job in parse_jobs(RECORDS[scenario][0]["output"]):
            assert f58(job["id"]) == job["jobid"]


def test_what_the_scheduler_expects_and_what_the_site_holds():
    job = {"state": "SCHED", "urgency": 16, "priority": 16, "annotations": {"sched": {"t_estimate": 1795500909.8}}}
    assert (start_of(job), is_held(job)) == ("2026-11-24T06:15:09Z", False)
    assert is_held({"state": "DEPEND", "urgency": 0}), "it would be held afterwards, too"
    assert is_held(dict(job, priority=0)) and start_of(dict(job, annotations={})) == ""


@pytest.mark.parametrize(("exception", "end"), [
    ({"occurred": True, "severity": 0, "type": "exec", "note": "node failure on n2 (rank 2)"}, "node_failed"),
    ({"occurred": True, "severity": 0, "type": "node-failure", "note": ""}, "node_failed"),
    ({"occurred": True, "severity": 0, "type": "prolog", "note": "prolog exited with code 1"}, "boot_failed"),
    ({"occurred": True, "severity": 2, "type": "node-failure", "note": "node failure on n2 (shell rank 1)"}, "failed"),
    ({"occurred": True, "severity": 0, "type": "exec", "note": "shell exited"}, "failed"),
    ({"occurred": False}, "failed"),
])
def test_only_a_fatal_exception_says_why_a_job_failed(exception, end):
    job = {"state": "INACTIVE", "result": "FAILED", "returncode": 1, "t_run": 1.0, "exception": exception}
    assert end_of(job).end == end
