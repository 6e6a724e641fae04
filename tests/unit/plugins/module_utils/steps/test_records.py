# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The records on disk: their keys, and those of other versions."""

from __future__ import annotations

import json

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.files import step_files
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.inputs import step_record
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.records import (
    BatchStart,
    JobRecord,
    Limits,
    Stamp,
    StepInputs,
    StepRecords,
    Submission,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.request import check_request

from .step_records import JOB, job_record, outcome


@pytest.fixture(name="files")
def step_directory(tmp_path):
    files = step_files(str(tmp_path), "s")
    (tmp_path / "s").mkdir()
    return files


def keys_of(path):
    with open(path, encoding="utf-8") as stream:
        return list(json.load(stream))


ANNOUNCED = [
    "attempt", "boot_id", "cache", "child_pid", "child_start_time", "digest", "former", "foundation", "ground",
    "heartbeat", "host", "last_nonce", "launcher", "limits", "log_offset", "needs", "nonce", "options", "phase", "pid",
    "result", "secrets", "start_time", "started",
]


def test_the_record_of_a_job_has_the_keys_that_other_versions_know(files):
    job = job_record(launcher="slurm")
    job.write(files)
    assert keys_of(files.job) == ANNOUNCED
    job._replace(begun=job.started).beat(files)
    assert keys_of(files.job) == sorted([*ANNOUNCED, "begun"])
    job._replace(begun=job.started, batch=BatchStart("12", None, 0)).write(files)
    assert keys_of(files.job) == sorted([*ANNOUNCED, "begun", "job_id", "restarts", "turn"])


def test_a_record_is_written_again_as_it_was_read_with_keys_of_a_later_version(files):
    limits = {"timeout": 5.0, "no_output_timeout": 0, "grace": 1, "hang_signal": "none", "on_hang": {"kill": ["true"]}}
    record = dict(job_record(limits=limits, job_id="12", restarts=1, turn=2).as_json(), later={"a": [1]})
    job = JobRecord.from_json(record)
    assert job.as_json() == record
    assert (job.batch, job.limits) == (BatchStart("12", 1, 2), Limits(**limits))


def test_a_record_of_an_earlier_version_has_what_it_lacks_by_default():
    job = job_record()
    assert (job.attempt, job.former, job.options, job.batch, job.limits.on_hang) == (1, None, {}, None, {})
    stamp = Stamp.from_json({"digest": "d", "nonce": "n", "needs": {}, "later": 1})
    assert (stamp.result, stamp.ground, stamp.taken_over) == ("d", "", None)
    assert Stamp.from_json({"digest": "d", "result": "r", "ground": None}).ground is None


@pytest.mark.parametrize("missing", ["nonce", "digest", "launcher"])
def test_a_record_without_what_every_version_writes_is_none(files, missing):
    with open(files.job, "w", encoding="utf-8") as stream:
        json.dump({key: value for key, value in JOB.items() if key != missing}, stream)
    with pytest.raises(StackError) as caught:
        StepRecords.read(files)
    assert caught.value.path == files.job


def test_a_submission_belongs_to_one_attempt(files):
    job = job_record(launcher="slurm")
    Submission("n1", "ts-s-d1-n1", None, 0, files.batch_script, job.started).write(files)
    assert keys_of(files.submission) == ["job_id", "job_name", "nonce", "requeues", "script", "submitted"]
    assert Submission.read(files, job).job_name == "ts-s-d1-n1"
    assert Submission.read(files, job._replace(nonce="n2")) is None
    assert Submission.read(files, job._replace(launcher="local")) is None


def test_an_end_and_a_stamp_count_for_the_attempt_that_wrote_them():
    job, older = job_record(), outcome("exit", "n0", code=1)
    assert StepRecords(Stamp("d1", "n0"), job, older).end is None
    assert not StepRecords(Stamp("d1", "n0"), job, older).succeeded
    assert StepRecords(Stamp("d1", "n1"), job, outcome("done", "n1")).end.reason == "done"
    assert StepRecords(Stamp("d1", "n1"), job, None).succeeded
    assert StepRecords(None, None, older).end is None


def test_the_supervisor_reads_what_it_needs_of_the_inputs(files, tmp_path):
    request = check_request({
        "name": "s", "state_dir": str(tmp_path), "script": "", "chdir": "/src", "creates": ["a/b", "/c"],
        "produces": ["w.whl", "a/../b"], "secrets": ["HF_TOKEN"], "network": False,
    })
    with open(files.inputs, "w", encoding="utf-8") as stream:
        json.dump(step_record(request, "d", {}), stream)
    inputs = StepInputs.read(files)
    assert inputs == (request.created_paths, request.produced_paths, False, False, ["HF_TOKEN"])
    assert inputs.created == ["/src/a/b", "/c", "/src/w.whl", "/src/b"]
