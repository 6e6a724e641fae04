# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Steps that a batch system runs, by what the module calls; in this process, or in one that can be killed."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys

from ansible_collections.hpcml.torchstack.plugins.module_utils.core import processes
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps import (
    batch_claim,
    batch_submission,
    job_state,
    launcher_batch,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.cancel import cancel
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.files import step_files
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.json_record import read_record
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.status import query
from ansible_collections.hpcml.torchstack.plugins.modules import build_step

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.polling import eventually

HEARTBEAT = 0.5
CACHE = 2.0
WATCH = CACHE + 3 * HEARTBEAT
"""Times of the product that are shortened: these file systems show everything at once."""

QUICK = {
    job_state: (("HEARTBEAT_SECONDS = 5.0", HEARTBEAT), ("CACHE_SECONDS = 60.0", CACHE)),
    # A busy machine may delay a process for longer than so short a heartbeat.
    batch_claim: (("MAX_MISSED_HEARTBEATS = 6", 120),),
}
"""What is another time in the supervisors that are sent out, by the module that has it."""


def quicken(monkeypatch):
    """Shorten the product's patience, in this process and in the supervisors that it sends out."""
    for module, changes in QUICK.items():
        loader = module.__spec__.loader
        text = loader.get_source(module.__name__)
        for right, wrong in changes:
            assert text.count(right) == 1
            text = text.replace(right, "%s = %s" % (right.partition(" ")[0], wrong))
        monkeypatch.setattr(loader, "get_source", lambda name, text=text: text)
    for module, name, seconds in patience():
        monkeypatch.setattr(module, name, seconds)


def patience():
    """What is shortened in a process that starts steps."""
    return (
        (launcher_batch, "WATCH_SECONDS", WATCH), (launcher_batch, "RECONCILE_SECONDS", 3.0),
        (batch_submission, "RECONCILE_SECONDS", 3.0),
        (launcher_batch, "RECORD_SECONDS", 1.0), (batch_claim, "WATCH_SECONDS", WATCH),
        (job_state, "HEARTBEAT_SECONDS", HEARTBEAT),
    )


class BatchSteps:
    """Steps below one directory.

    Args:
        state: the directory.
        launcher: ``slurm`` or ``pbs``.
        **options: what every step asks its batch system for.
    """

    def __init__(self, state, launcher, **options):
        self.state, self.launcher, self.options = str(state), launcher, options
        self.controllers = []

    def parameters(self, script, name="s", options=None, **given):
        defaults = {key: spec.get("default") for key, spec in build_step.ARGUMENTS.items()}
        asked = {
            "name": name, "state_dir": self.state, "script": script, "grace": 1, "launcher": self.launcher,
            "launcher_options": {**self.options, **(options or {})},
        }
        return {**defaults, **asked, **given}

    def begin(self, script, name="s", options=None, **given):
        return build_step.present(self.parameters(script, name, options, **given), False, False)

    def controller(self, script, name="s", options=None, before=(), **given):
        """Begin a step in a process of its own, whose answer is :meth:`answer_of` it."""
        parameters = self.parameters(script, name, options, **given)
        process = subprocess.Popen(
            [*before, sys.executable, __file__, json.dumps(parameters)], stdout=subprocess.PIPE, text=True,
            env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)), start_new_session=True,
        )
        self.controllers.append(process)
        return process

    def answer_of(self, controller):
        self.controllers.remove(controller)
        return json.loads(controller.communicate()[0])

    def query(self, name="s"):
        return query(step_files(self.state, name), self.read("job.json", name)["nonce"])

    def finish(self, name="s"):
        """Follow the job to its end."""
        def ended():
            result = self.query(name)
            return result if result["state"] != "running" else None

        return eventually(ended, "the end of step " + name, 240)

    def run(self, script, name="s", options=None, **given):
        result = self.begin(script, name, options, **given)
        return result if result["state"] != "running" else self.finish(name)

    def failure(self, call, *arguments, **given):
        try:
            result = call(*arguments, **given)
        except StackError as error:
            return error.as_result()
        raise AssertionError("it did not fail: %s" % (result,))

    def cancel(self, name="s", check=False):
        return cancel(step_files(self.state, name), check)

    def read(self, record, name="s"):
        return read_record(os.path.join(self.state, name, record))

    def until(self, phase, name="s"):
        """Wait until the supervisor has announced itself, or the queue shows the job."""
        return eventually(lambda: (self.read("job.json", name) or {}).get("phase") == phase, phase)

    def log(self, name="s"):
        path = os.path.join(self.state, name, "log")
        if not os.path.exists(path):
            return ""
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()

    def stop(self):
        """End the controllers that are left; jobs end with their cluster."""
        for process in self.controllers:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        for name in os.listdir(self.state) if os.path.isdir(self.state) else []:
            nonce = (self.read("job.json", name) or {}).get("nonce")
            if nonce:
                processes.stop_processes(lambda nonce=nonce: processes.job_processes(nonce), 0, lambda: None)


def main(parameters):
    """Begin a step and print the answer, as a controller's module does."""
    for module, name, seconds in patience():
        setattr(module, name, seconds)
    try:
        answer = build_step.present(parameters, False, False)
    except StackError as error:
        answer = dict(error.as_result(), failed=True)
    print(json.dumps(answer))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
