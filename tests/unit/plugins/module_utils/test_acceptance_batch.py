# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""An acceptance as a job: what is asked, that it is asked once, and how the answer comes back."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils import acceptance_batch, acceptance_login
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance_records import Files, Run
from ansible_collections.hpcml.torchstack.plugins.module_utils.errors import StackError

JOB = {"launcher": "slurm", "options": {"python": sys.executable, "walltime": "00:15:00"}}
RUN = Run(acceptance_login.find_account(""), ["/usr/bin/env"], 600)
OTHER = RUN._replace(account=RUN.account._replace(name="tester", home="/home/tester", other=True))
PROGRAM = "import os, sys; print('rank', sys.argv[1:], sorted(os.environ))\n"


@pytest.fixture()
def files(tmp_path):
    return Files.below(str(tmp_path), "r1")


@pytest.fixture()
def question(tmp_path):
    return {
        "module": "", "module_system": "none", "module_init": [os.devnull], "modulepaths": {}, "python": sys.executable,
        "environment": {"PATH": "/usr/bin:/bin"}, "environment_keep": [], "launcher": ["env"], "ranks": 1,
        "imports": [], "checks": [], "where_possible": [], "prefix": str(tmp_path), "subject": "sha256:1",
    }


def perform(asked, **variables):
    """What the job of the step does."""
    os.makedirs(asked["state_dir"], exist_ok=True)
    script = "set -euo pipefail\n" + asked["script"]
    environment = {"PATH": "/usr/bin:/bin", "SECRET": "s", **variables}
    subprocess.run(["/bin/bash", "-c", script], env=environment, stdout=subprocess.DEVNULL, check=True)


def test_the_same_question_is_asked_until_it_is_judged(files, question):
    first = acceptance_batch.ask(files, question, RUN, PROGRAM, JOB)
    assert acceptance_batch.ask(files, question, RUN, PROGRAM, JOB) == first
    moved = acceptance_batch.ask(files, question, RUN, PROGRAM, dict(JOB, options={"python": "/usr/bin/python3"}))
    assert moved["inputs"] == first["inputs"], "another queue or interpreter is not another question"
    other = acceptance_batch.ask(files, dict(question, ranks=2), RUN, PROGRAM, JOB)
    assert other["inputs"]["nonce"] != first["inputs"]["nonce"]


def test_a_plan_writes_nothing(files, question):
    planned = acceptance_batch.planned(files, question, RUN, PROGRAM, JOB)
    assert planned["inputs"]["nonce"] == "planned" and not os.path.exists(files.state)


def test_the_answer_of_the_job_is_judged_once_and_recorded(files, question):
    asked = acceptance_batch.ask(files, question, RUN, PROGRAM, JOB)
    perform(asked, SLURM_JOB_ID="7")
    # No rank has reported: the verdict is the one of ranks that never came.
    with pytest.raises(StackError) as caught:
        acceptance_batch.judge(files, question, RUN, PROGRAM, 0)
    assert caught.value.failed_step == "ranks"
    record = files.last()
    assert record["passed"] is False and record["started"] and record["seconds"] >= 0
    with open(files.log, encoding="utf-8") as stream:
        assert "rank ['%s" % asked["state_dir"] in stream.read()
    with pytest.raises(StackError, match="No compute node was asked this"):
        acceptance_batch.judge(files, question, RUN, PROGRAM, 0)
    assert acceptance_batch.ask(files, question, RUN, PROGRAM, JOB)["inputs"] != asked["inputs"]


def test_the_ranks_of_a_job_know_their_job_and_nothing_else_of_the_rollout(files, question):
    perform(acceptance_batch.ask(files, question, RUN, PROGRAM, JOB), SLURM_JOB_ID="7", PBS_JOBID="8")
    with pytest.raises(StackError):
        acceptance_batch.judge(files, question, RUN, PROGRAM, 0)
    with open(files.log, encoding="utf-8") as stream:
        shown = stream.read()
    assert "'SLURM_JOB_ID'" in shown and "SECRET" not in shown and "PBS_JOBID" not in shown


def test_an_answer_that_does_not_come_is_a_file_system_that_is_not_shared(files, question):
    asked = acceptance_batch.ask(files, question, RUN, PROGRAM, JOB)
    with pytest.raises(StackError, match="what it wrote is not seen here after 0 seconds"):
        acceptance_batch.judge(files, question, RUN, PROGRAM, 0)
    assert files.last() is None, "nobody knows how it went"
    assert acceptance_batch.ask(files, question, RUN, PROGRAM, JOB)["inputs"] != asked["inputs"]


def test_a_supervisor_that_was_killed_leaves_a_verdict(files, question):
    asked = acceptance_batch.ask(files, question, RUN, PROGRAM, JOB)
    perform(asked)
    output = os.path.join(asked["state_dir"], "output." + asked["inputs"]["nonce"])
    with open(output, "r+", encoding="utf-8") as stream:
        lines = [line for line in stream if not line.startswith("@torchstack-job exit")]
        stream.seek(0)
        stream.truncate()
        stream.writelines(lines)
    with pytest.raises(StackError):
        acceptance_batch.judge(files, question, RUN, PROGRAM, 0)
    assert files.last()["passed"] is False


def test_the_step_of_another_account_is_in_its_home_and_its_own(files, question):
    asked = acceptance_batch.ask(files, question, OTHER, PROGRAM, JOB)
    assert asked["state_dir"].startswith("/home/tester/.torchstack/acceptance/r1-")
    assert "HOME=/home/tester" in asked["script"] and "sudo" not in asked["script"]
    elsewhere = Files.below("/elsewhere", "r1")
    planned = acceptance_batch.planned(elsewhere, question, OTHER, PROGRAM, JOB)
    assert planned["state_dir"] != asked["state_dir"]


@pytest.mark.parametrize(("job", "said"), [
    ({"launcher": "local", "options": {}}, "There is no batch system for the acceptance: its launcher is local."),
    ({}, "There is no batch system for the acceptance: its launcher is not given."),
    (dict(JOB, options={"walltime": "00:10:30"}), "may take 00:10:30, which is too short for acceptance_timeout, 600"),
])
def test_a_job_that_cannot_hold_the_acceptance_is_refused(job, said):
    acceptance_batch.check_job(JOB, 600)
    with pytest.raises(StackError, match=said):
        acceptance_batch.check_job(job, 600)
