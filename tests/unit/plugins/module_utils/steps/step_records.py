# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Records of build steps for tests, with only what a test is about."""

from __future__ import annotations

from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.outcome import Outcome
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.records import JobRecord

STARTED = "2026-11-20T00:00:00Z"

JOB = {
    "boot_id": "boot-1", "digest": "d1", "heartbeat": STARTED, "host": "login01", "launcher": "local", "nonce": "n1",
    "phase": "running", "pid": 7, "start_time": 70, "started": STARTED,
}
"""What a ``job.json`` has at least."""


def job_record(**changes):
    """Make the record of a job by keys of job.json."""
    return JobRecord.from_json(dict(JOB, **changes))


def outcome(reason, nonce="", **facts):
    """Make an outcome by keys of the file ``exit``."""
    return Outcome.from_json(dict(facts, reason=reason, nonce=nonce))
