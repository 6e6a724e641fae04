# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Jobs as every batch system describes them."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch.scheduler import (
    ENDED,
    PENDING,
    RUNNING,
    JobStatus,
    advice_for,
    current_job,
    end_of_job,
    queue_of,
)

OVER = JobStatus("12", "ts-s", ENDED, end="done", exit_code=0)


def test_among_jobs_of_one_name_the_living_one_counts():
    alive = JobStatus("13", "ts-s", RUNNING)
    assert current_job([OVER, alive]) == alive
    assert current_job([OVER, OVER._replace(end="failed")]) == OVER
    assert current_job([]) is None


@pytest.mark.parametrize("job, requeues, state", [
    (JobStatus("1", "n", PENDING), 0, "pending"), (JobStatus("1", "n", PENDING, held=True), 1, "held"),
    (JobStatus("1", "n", PENDING), 1, "requeued"), (JobStatus("1", "n", PENDING, restarts=1), 0, "requeued"),
    (JobStatus("1", "n", RUNNING, nodes="n2"), 0, "starting"),
])
def test_how_a_job_waits(job, requeues, state):
    queue = queue_of(job, requeues, "n1")
    assert (queue["state"], queue["node"], queue["former"]) == (
        state, "n2" if state == "starting" else "", "n1" if state == "starting" else "")


def test_the_exit_code_says_something_only_where_the_script_ended_by_itself():
    assert end_of_job(OVER, "Slurm")["reason"] == "killed"
    assert end_of_job(OVER, "Slurm")["code"] == 0
    assert "code" not in end_of_job(OVER._replace(end="time_limit", signal=15), "Slurm")


def test_the_first_phrase_that_is_there_has_the_advice():
    advice = (("held", "Release it."), ("hel", "Never."))
    assert advice_for("JobHeldUser", advice) == "Release it."
    assert advice_for("Priority", advice, "Wait.") == "Wait."
