# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Slurm's answers, as Slurm 22.05.8 has given them, and what is made of them.

It covers commands, slurm, slurm_script and slurm_states.
"""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch import scheduler
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch.commands import Answer
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch.slurm import (
    CLEARED,
    Slurm,
    exit_codes,
    parse_accounting,
    parse_details,
    parse_queue,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch.slurm_script import batch_script, output_pattern
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch.slurm_states import (
    advice_on_refusal,
    advice_on_waiting,
    end_of,
    is_held,
    state_of,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError

QUEUE = """\
17|PENDING|gpu|N/A||ts-a|PartitionInactive
21|PENDING|main|N/A||ts-b|ReqNodeNotAvail, UnavailableNodes:n1
20|PENDING|main|N/A||ts-c|Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions
9|COMPLETED|main|2026-11-21T12:52:42|n1|ts-d|None
12|FAILED|main|2026-11-21T12:52:42||ts-e|BadConstraints
3|PENDING|main|2026-11-21T13:17:16||ts-f|BeginTime
"""

TIMEOUT = (
    "JobId=1 JobName=ts-s-970fe818-316f4f81 UserId=build(1001) GroupId=build(1001) MCS_label=N/A Priority=4294901759 "
    "Nice=0 Account=(null) QOS=(null) JobState=TIMEOUT Reason=TimeLimit Dependency=(null) Requeue=1 Restarts=2 "
    "BatchFlag=1 Reboot=0 ExitCode=0:15 RunTime=00:00:29 TimeLimit=00:01:00 DerivedExitCode=0:0 "
    "Command=/steps/it's here/batch.sh WorkDir=/ StdErr=/steps/ExitCode=9 Power= \n"
)

ACCOUNTING = """\
1|COMPLETED|0:0|compute|c1|ts-one-f7bab117-2c5257e2
6|NODE_FAIL|0:0|compute|c1|ts-two-13828309-5d43a363
7|COMPLETED|0:0|compute|c2|ts-two-13828309-d0d08497
8|CANCELLED by 2001|0:0|compute|c1|ts-three-620c8cb7-696fa2c1
"""


class Answers(Slurm):
    """Slurm with recorded answers, by the first word of the command."""

    def __init__(self, **answers):
        super().__init__()
        self.asked = []
        self.commands.ask = self.answer
        self.commands.submit = self.answer
        self.commands.program = lambda name: name if name in answers else None
        self.answers = answers

    def answer(self, *words, keep=(), secrets=()):
        self.asked.append(words)
        answer = self.answers[words[0]]
        if callable(answer):
            answer = answer(*words)
        return answer if isinstance(answer, Answer) else Answer(0, answer, "")


def test_the_lines_of_squeue():
    rows = parse_queue(QUEUE)
    assert [row.job_id for row in rows] == ["17", "21", "20", "9", "12", "3"]
    assert rows[1].reason == "ReqNodeNotAvail, UnavailableNodes:n1"
    assert (rows[3].nodes, rows[3].start, rows[3].partition, rows[3].name) == (
        "n1", "2026-11-21T12:52:42", "main", "ts-d")
    assert parse_queue("slurmctld is slow\n\n") == []


def test_the_details_of_a_job_are_not_taken_from_its_paths():
    details = parse_details(TIMEOUT)
    assert (details["ExitCode"], details["Restarts"], details["JobState"]) == ("0:15", "2", "TIMEOUT")


@pytest.mark.parametrize("text, expected", [
    ("0:0", (0, None)), ("3:0", (3, None)), ("0:15", (None, 15)), ("0:53", (None, 53)), ("", (None, None)),
    ("garbage", (None, None)), ("\u00b2:0", (None, None)), ("9" * 5000 + ":0", (None, None)),
])
def test_exit_codes(text, expected):
    assert exit_codes(text) == expected


def test_the_accounting_knows_how_jobs_ended_and_the_youngest_counts():
    jobs = parse_accounting(ACCOUNTING)
    assert [job.job_id for job in jobs] == ["8", "7", "6", "1"]
    assert [job.end for job in jobs] == ["cancelled", "done", "node_failed", "done"]
    assert (jobs[0].native_state, jobs[0].nodes) == ("CANCELLED by 2001", "c1")
    assert parse_accounting("1|COMPLETED\n") == []
    (blank,) = parse_accounting("1| |0:0|p|n|x\n")
    assert (blank.job_id, blank.native_state, blank.end) == ("1", " ", "")


def test_a_job_that_waits_has_its_place_and_its_time():
    slurm = Answers(
        squeue=lambda *words: "1\n3\n" if "--states=PENDING" in words else QUEUE.splitlines()[-1] + "\n",
        scontrol="JobId=3 Restarts=1 ExitCode=0:0 \n",
    )
    (job,) = slurm.find("ts-f")
    assert (job.state, job.position, job.of, job.restarts) == (scheduler.PENDING, 2, 2, 1)
    assert (job.estimated_start, job.reason, job.exit_code) == ("2026-11-21T13:17:16Z", "BeginTime", None)
    assert "--name=ts-f" in slurm.asked[0]


def test_a_job_that_ended_is_described_by_its_queue_while_that_remembers_it():
    slurm = Answers(squeue="1|TIMEOUT|main|2026-11-21T13:14:17|n1|ts-s|TimeLimit\n", scontrol=TIMEOUT, sacct=ACCOUNTING)
    (job,) = slurm.find("ts-s")
    assert (job.state, job.end, job.signal, job.nodes) == (scheduler.ENDED, "time_limit", 15, "n1")
    assert "longer walltime" in job.advice
    assert [words[0] for words in slurm.asked] == ["squeue", "scontrol"]


@pytest.mark.parametrize("accounting, expected", [
    ({}, []),
    ({"sacct": Answer(1, "Slurm accounting storage is disabled\n", "")}, []),
    ({"sacct": Answer(1, "", "sacct: error: Problem talking to the database: Connection refused\n")}, []),
    ({"sacct": ACCOUNTING.splitlines()[1] + "\n"}, ["6"]),
], ids=["not-installed", "disabled", "down", "knows-it"])
def test_what_the_queue_does_not_know_the_accounting_may(accounting, expected):
    assert [job.job_id for job in Answers(squeue="", **accounting).find("ts-two")] == expected


SILENT = [
    "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n",
    "squeue: error: Munge encode failed: Failed to connect to \"/run/munge/munge.socket.2\": Connection refused\n"
    "slurm_load_jobs error: Protocol authentication error\n",
    "slurm_load_jobs error: Socket timed out on send/recv operation\n",
]


@pytest.mark.parametrize("words", SILENT, ids=["down", "munge", "busy"])
def test_a_scheduler_that_does_not_answer_is_never_one_without_jobs(words):
    with pytest.raises(StackError) as caught:
        Answers(squeue=Answer(1, "", words), sacct="").find("x")
    assert caught.value.failed_step == "scheduler"
    assert words.split()[-1] in caught.value.message


def test_an_answer_that_was_lost_is_no_refusal():
    said = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n"
    with pytest.raises(StackError) as caught:
        Answers(sbatch=Answer(1, "", said)).submit("/s/batch.sh", {}, [])
    assert caught.value.failed_step == "scheduler"


@pytest.mark.parametrize("complaint, said, advice", [
    ("sbatch: error: invalid partition specified: gpuu\n"
     "sbatch: error: Batch job submission failed: Invalid partition name specified\n",
     "Slurm has refused the job: invalid partition specified: gpuu; Batch job submission failed: Invalid partition "
     "name specified.", "sinfo -s"),
    ("sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified\n",
     "Invalid account", "Correct account"),
    ("sbatch: error: Memory specification can not be satisfied\n"
     "sbatch: error: Batch job submission failed: Requested node configuration is not available\n",
     "Memory specification", "No node has so many"),
    ("sbatch: error: Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)\n",
     "time limit", "shorter walltime"),
    ("sbatch: error: Batch job submission failed: Required partition not available (inactive or drain)\n",
     "inactive or drain", "takes no jobs"),
    ("sbatch: error: something new\n", "something new", "Correct launcher_options"),
])
def test_a_refusal_is_told_in_slurms_words_with_what_to_do(complaint, said, advice):
    with pytest.raises(StackError) as caught:
        Answers(sbatch=Answer(1, "", complaint)).submit("/s/batch.sh", {}, [])
    assert caught.value.failed_step == "submit"
    assert said in caught.value.message
    assert advice in caught.value.remedy
    assert advice_on_refusal(complaint) == caught.value.remedy


@pytest.mark.parametrize("output", ["4711\n", "4711;cluster1\n", "A message of the site's sbatch filter\n4711\n"])
def test_the_identifier_of_an_accepted_job(output):
    assert Answers(sbatch=output).submit("/s/batch.sh", {}, []) == "4711"


def test_a_state_that_nobody_has_heard_of_is_not_the_end_of_a_job():
    assert state_of("HIBERNATING") == scheduler.RUNNING
    for word in ("COMPLETING", "CONFIGURING", "SUSPENDED", "RUNNING"):
        assert state_of(word) == scheduler.RUNNING
    for word in ("PENDING", "REQUEUED", "REQUEUE_HOLD"):
        assert state_of(word) == scheduler.PENDING
    assert end_of("OUT_OF_MEMORY") == "out_of_memory"


def test_what_can_be_done_about_a_job_that_waits():
    assert is_held("PENDING", "JobHeldUser")
    assert is_held("PENDING", "launch failed requeued held")
    assert not is_held("PENDING", "Priority")
    assert "scontrol release 7" in advice_on_waiting("7", "PENDING", "JobHeldUser")
    assert "ask the site" in advice_on_waiting("7", "PENDING", "JobHeldAdmin")
    assert "sinfo -R" in advice_on_waiting("7", "PENDING", parse_queue(QUEUE)[2].reason)
    assert advice_on_waiting("7", "PENDING", "Priority") == ""


def test_the_batch_script_carries_everything_and_its_own_directives_last():
    options = {
        "account": "proj1", "partition": "gpu", "qos": "long", "walltime": "1-02:00:00", "nodes": 1, "cores": 64,
        "memory": "240G", "gpus": 4, "directives": ["--constraint=a100"], "requeue": 2, "requeue_on": ["preempted"],
    }
    lines = batch_script("ts-s-1-2", options, "/s/log", ["/usr/bin/python3", "-I", "/s/it's.zip"]).splitlines()
    assert lines[:2] == ["#!/bin/sh", "#SBATCH --constraint=a100"]
    directives = [line[8:] for line in lines if line.startswith("#SBATCH ")]
    assert directives == [
        "--constraint=a100", "--account=proj1", "--partition=gpu", "--qos=long", "--time=1-02:00:00", "--nodes=1",
        "--mem=240G", "--gpus-per-node=4", "--ntasks-per-node=1", "--cpus-per-task=64", "--requeue", "--export=ALL",
        "--job-name=ts-s-1-2", "--chdir=/", "--output=/s/log", "--open-mode=append",
    ]
    assert lines[-2:] == ["umask 022", "exec /usr/bin/python3 -I '/s/it'\"'\"'s.zip'"]


@pytest.mark.parametrize(("options", "said"), [
    ({"cores": 64, "tasks": 4}, ["--ntasks-per-node=4", "--cpus-per-task=16"]),
    ({"cores": 2, "tasks": 4}, ["--ntasks-per-node=4", "--cpus-per-task=1"]),
    ({"tasks": 4}, ["--ntasks-per-node=4"]),
    ({"tasks": 1}, []),
], ids=str)
def test_tasks_share_the_cores_of_a_node(options, said):
    assert [line[8:] for line in batch_script("n", options, "/s/log", ["true"]).splitlines() if "task" in line] == said


def test_a_site_s_features_and_kinds_of_gpus_are_asked_for_as_sbatch_reads_them():
    options = {
        "constraint": "a100&hbm80g", "reservation": "rollout", "licenses": "scratch:1", "memory_per_gpu": "60G",
        "hint": "nomultithread", "exclusive": True, "gpu_type": "l40s", "gpus": 8,
    }
    lines = batch_script("n", options, "/s/log", ["true"]).splitlines()
    assert [line[8:] for line in lines if line.startswith("#SBATCH ")][:7] == [
        '--constraint="a100&hbm80g"', "--reservation=rollout", "--licenses=scratch:1", "--mem-per-gpu=60G",
        "--hint=nomultithread", "--exclusive", "--gpus-per-node=l40s:8",
    ]
    assert "#SBATCH --exclusive=user" in batch_script("n", {"exclusive": "user"}, "/s/log", ["true"])
    assert "exclusive" not in batch_script("n", {"exclusive": False}, "/s/log", ["true"])


@pytest.mark.parametrize("options", [{}, {"requeue": 0}, {"requeue": 1, "requeue_on": ["time_limit"]}], ids=str)
def test_slurm_puts_a_job_back_only_where_the_site_says_so(options):
    assert "--no-requeue" in batch_script("n", options, "/s/log", ["true"])


def test_the_log_is_named_as_slurm_reads_it():
    assert output_pattern("/s/log") == "/s/log"
    assert output_pattern("/100% it's \"a\" $b/log") == '"/100%% it\'s \\"a\\" $b/log"'
    for path in ("/a\\b/log", "/a\nb/log"):
        with pytest.raises(StackError):
            output_pattern(path)


def test_no_variable_of_slurm_reaches_a_command_but_where_its_configuration_is(monkeypatch):
    for name in ("SBATCH_PARTITION", "SLURM_JOB_ID", "SQUEUE_FORMAT", "SACCT_FORMAT", "SLURM_CONF", "X"):
        monkeypatch.setenv(name, "1")
    left = {name for name in Slurm().commands.environment() if name.startswith(CLEARED) or name == "X"}
    assert left == {"SLURM_CONF", "X"}


def test_a_job_is_submitted_without_the_caller_s_secrets_but_those_that_its_step_names(monkeypatch):
    for name in ("HF_TOKEN", "GITHUB_TOKEN", "SLURM_JWT", "X"):
        monkeypatch.setenv(name, "1")
    slurm = Slurm()
    given = []
    slurm.commands._run = lambda words, environment, *others: given.append(environment) or Answer(0, "4711\n", "")
    slurm.submit("/s/batch.sh", {}, [], ["HF_TOKEN"])
    slurm.find("x")
    assert {"HF_TOKEN", "SLURM_JWT", "X"} <= set(given[0]) and "GITHUB_TOKEN" not in given[0]
    assert not {"HF_TOKEN", "GITHUB_TOKEN"} & set(given[1])


def test_a_missing_command_is_named(tmp_path):
    with pytest.raises(StackError) as caught:
        Slurm(str(tmp_path)).find("x")
    assert (caught.value.failed_step, str(tmp_path) in caught.value.message) == ("scheduler", True)
