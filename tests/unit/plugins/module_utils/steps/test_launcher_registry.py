# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""By which launcher a step's former job is looked for."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.launcher_registry import launcher_of

from .step_records import job_record


@pytest.mark.parametrize("then, name, now, asked", [
    ({}, "pbs", {"bin": "/opt/pbs/bin"}, "/opt/pbs/bin"),
    ({"bin": "/typo"}, "pbs", {"bin": "/opt/pbs/bin"}, "/opt/pbs/bin"),
    ({"bin": "/opt/pbs/bin"}, "pbs", {}, "/opt/pbs/bin"),
    ({"bin": "/opt/pbs/bin"}, "slurm", {"bin": "/opt/slurm/bin"}, "/opt/pbs/bin"),
    ({"bin": "/opt/pbs/bin"}, "local", None, "/opt/pbs/bin"),
])
def test_a_job_is_asked_for_by_the_commands_that_are_named_now_if_they_are_of_its_batch_system(then, name, now, asked):
    job = job_record(launcher="pbs", options={**then, "queue": "debug"})
    launcher = launcher_of(job, name, now)
    assert launcher.options == {"bin": asked, "queue": "debug"}
    assert launcher.scheduler.name == "pbs"
