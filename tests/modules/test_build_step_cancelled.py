# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Cancelling a build of the machine itself, on request; one of a batch system is cancelled in its own tests.

It covers steps/cancel.
"""

from __future__ import annotations

import os

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import processes
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.files import write_json
from support.batch_steps import BatchSteps
from support.polling import eventually


@pytest.fixture(name="steps")
def some_steps(tmp_path):
    steps = BatchSteps(tmp_path / "steps", "local")
    yield steps
    steps.stop()


def test_a_build_is_cancelled_and_resumed(steps, tmp_path):
    gate = tmp_path / "gate"
    script = "echo part >> %s; until test -e %s; do sleep 0.1; done" % (tmp_path / "kept", gate)
    assert not steps.cancel()["changed"]
    steps.begin(script)
    eventually((tmp_path / "kept").exists, "the build")
    job = steps.read("job.json")
    assert steps.cancel(check=True)["changed"]
    assert processes.is_alive(job["pid"], job["start_time"])
    assert (steps.cancel()["changed"], steps.cancel()["changed"]) == (True, False)
    assert not processes.job_processes(job["nonce"])
    failed = steps.failure(steps.query)
    assert (failed["reason"], failed["msg"].startswith("Step s was cancelled on request.")) == ("cancelled", True)
    gate.write_text("")
    resumed = steps.run(script)
    assert (resumed["state"], (tmp_path / "kept").read_text()) == ("done", "part\npart\n")
    assert not steps.cancel()["changed"]


def test_a_build_of_another_host_is_not_cancelled_from_here(steps, tmp_path):
    steps.begin("sleep 600")
    job = steps.until("running") and steps.read("job.json")
    write_json(os.path.join(steps.state, "s", "job.json"), dict(job, host="login02", boot_id="elsewhere"))
    refused = steps.failure(steps.cancel)
    assert (refused["failed_step"], "login02" in refused["msg"]) == ("cancel", True)
    assert processes.is_alive(job["pid"], job["start_time"])


def test_it_is_cancelled_through_ansible(steps, run_module, tmp_path):
    options = {"name": "s", "state_dir": steps.state, "state": "cancelled"}
    assert not run_module("build_step", options).changed
    steps.begin("sleep 600")
    assert run_module("build_step", options, check=True).changed
    done = run_module("build_step", options)
    assert (done.changed, done["state"]) == (True, "cancelled")
