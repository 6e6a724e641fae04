# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a step's directory keeps of its job in a batch system: the intent to submit it, and what came of that.

``job.json`` belongs to the supervisor as soon as there is one. What whoever submits has to say stands in a record of
its own, so that neither ever overwrites the other's word.
"""

from __future__ import annotations

from .job import read_record
from .step import StepFiles

SUBMISSION = "submission.json"
"""The last submission of the step: ``nonce``, ``job_name``, ``requeues`` (how often the job was submitted again), and
``job_id``, which is null from before the submission until its answer."""

SCRIPT = "batch.sh"
"""The batch script of that submission."""


def job_name(step: str, digest: str, nonce: str, requeues: int) -> str:
    """The name of a job, which no other submission has: ``ts-pytorch-6f1ed002-9c0a11d4``, then ``...-r1``."""
    return "ts-%s-%s-%s%s" % (step, digest[:8], nonce[:8], "-r%d" % requeues if requeues else "")


def submission_of(files: StepFiles, job: dict) -> dict | None:
    """The record of the job's last submission, or of the intent; None where it was not to be submitted yet."""
    if job["launcher"] == "local":
        return None
    record = read_record(files.path(SUBMISSION))
    return record if record is not None and record["nonce"] == job["nonce"] else None
