# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""An acceptance as a job: what is asked, that it is asked once, and how the answer comes back."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import batch_run as acceptance_batch
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import login as acceptance_login
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import verdict as acceptance_verdict
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance.records import Files, Run
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError

JOB = {"launcher": "slurm", "options": {"python": sys.executable, "walltime": "00:15:00"}}
RUN = Run(acceptance_login.find_account(""), ["/usr/bin/env"], 600)
OTHER = RUN._replace(account=RUN.account._replace(name="tester", home="/home/tester", other=True))


def program(main):
    """Pack a program that imports nothing of the collection."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as bundle:
        bundle.writestr("__main__.py", main)
    return packed.getvalue()


PROGRAM = program("import os, sys; print('rank', sys.argv[1:], sorted(os.environ))\n")
CONCLUDE = acceptance_verdict.conclude


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
    """What the job of the step does; what it prints."""
    os.makedirs(asked["state_dir"], exist_ok=True)
    script = "set -euo pipefail\n" + asked["script"]
    environment = {"PATH": "/usr/bin:/bin", "SECRET": "s", **variables}
    done = subprocess.run(["/bin/bash", "-c", script], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


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
        acceptance_batch.judge(files, question, RUN, PROGRAM, 0, CONCLUDE)
    assert caught.value.failed_step == "ranks"
    record = files.last()
    assert record["passed"] is False and record["started"] and record["seconds"] >= 0
    with open(files.log, encoding="utf-8") as stream:
        assert "rank ['%s" % asked["state_dir"] in stream.read()
    with pytest.raises(StackError, match="No compute node was asked this"):
        acceptance_batch.judge(files, question, RUN, PROGRAM, 0, CONCLUDE)
    assert acceptance_batch.ask(files, question, RUN, PROGRAM, JOB)["inputs"] != asked["inputs"]


def test_the_ranks_of_a_job_know_their_job_and_nothing_else_of_the_rollout(files, question):
    perform(acceptance_batch.ask(files, question, RUN, PROGRAM, JOB), SLURM_JOB_ID="7", PBS_JOBID="8")
    with pytest.raises(StackError):
        acceptance_batch.judge(files, question, RUN, PROGRAM, 0, CONCLUDE)
    with open(files.log, encoding="utf-8") as stream:
        shown = stream.read()
    assert "'SLURM_JOB_ID'" in shown and "SECRET" not in shown and "PBS_JOBID" not in shown


def test_an_answer_that_does_not_come_is_a_file_system_that_is_not_shared(files, question):
    asked = acceptance_batch.ask(files, question, RUN, PROGRAM, JOB)
    with pytest.raises(StackError, match="what it wrote is not seen here after 0 seconds"):
        acceptance_batch.judge(files, question, RUN, PROGRAM, 0, CONCLUDE)
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
        acceptance_batch.judge(files, question, RUN, PROGRAM, 0, CONCLUDE)
    assert files.last()["passed"] is False


def test_the_step_of_another_account_is_in_its_home_and_its_own(files, question):
    asked = acceptance_batch.ask(files, question, OTHER, PROGRAM, JOB)
    assert asked["state_dir"].startswith("/home/tester/.torchstack/acceptance/r1-")
    assert "HOME=/home/tester" in asked["script"] and "sudo" not in asked["script"]
    elsewhere = Files.below("/elsewhere", "r1")
    planned = acceptance_batch.planned(elsewhere, question, OTHER, PROGRAM, JOB)
    assert planned["state_dir"] != asked["state_dir"]


@pytest.mark.parametrize(("job", "said"), [
    ({"launcher": "local", "options": {}}, "There is no batch system for the step acceptance: its launcher is local."),
    ({}, "There is no batch system for the step acceptance: its launcher is not given."),
    (dict(JOB, options={"walltime": "00:10:30"}), "may take 00:10:30, which is too short for acceptance_timeout, 600"),
])
def test_a_job_that_cannot_hold_the_acceptance_is_refused(job, said):
    acceptance_batch.check_job(JOB, 600)
    with pytest.raises(StackError, match=said):
        acceptance_batch.check_job(job, 600)


def test_the_step_shows_how_far_the_ranks_are_and_nothing_else_of_what_they_print(files, question):
    main = "for n in (1, 2, 63): print('0: [%2d/63] round %d' % (n, n), flush=True)\nprint('secret')\n"
    asked = acceptance_batch.ask(files, question, RUN, program(main), JOB)
    shown = perform(asked).splitlines()
    assert shown[0].startswith("What the ranks print is in ")
    assert shown[1:] == ["[ 1/63] round 1", "[ 2/63] round 2", "[63/63] round 63"]


def test_another_question_of_the_same_release_has_files_and_a_step_of_its_own(files, question):
    sweep = Files.below(os.path.dirname(os.path.dirname(files.state)), "r1", "sweep")
    assert (sweep.state, sweep.stem) == (files.state, "sweep") and sweep.record.endswith("/r1/sweep.json")
    asked = [acceptance_batch.ask(kind, question, RUN, PROGRAM, JOB) for kind in (files, sweep)]
    assert [os.path.basename(one["state_dir"]) for one in asked] == ["acceptance", "sweep"]
    for one in asked:
        perform(one)
    seen = []

    def conclude(*given):
        seen.append(given)
        return {"passed": True}

    assert acceptance_batch.judge(sweep, question, RUN, PROGRAM, 0, conclude) == {"passed": True}
    assert seen[0][:3] == (sweep, question, RUN.account) and "rank ['" in seen[0][3]
    with pytest.raises(StackError, match="1 ranks were asked for, 0 reported"):
        acceptance_batch.judge(files, question, RUN, PROGRAM, 0, CONCLUDE)


def test_the_ranks_are_asked_all_of_the_question_but_what_is_for_whoever_starts_them(files, question):
    asked = acceptance_batch.ask(files, dict(question, rounds=[[0, 1]]), RUN, PROGRAM, JOB)
    directory = os.path.join(files.state, "acceptance", "asked." + asked["inputs"]["nonce"])
    with open(os.path.join(directory, "question.json"), encoding="utf-8") as stream:
        given = json.load(stream)
    assert given.pop("patience") > 0
    assert given == dict(question, rounds=[[0, 1]])
