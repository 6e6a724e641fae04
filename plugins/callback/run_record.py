# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Write what became of a playbook's steps, and what failed, into a file that programs read."""

from __future__ import annotations

DOCUMENTATION = r"""
name: run_record
type: aggregate
short_description: A record of the steps and failures of a run
version_added: 0.2.0
author:
  - The hpcml.torchstack contributors (@hpcml)
description:
  - Writes a file of JSON with each build step that ran or was taken over, and each failure with its task, step, part,
    host and message.
  - It is written anew after each of them, so that a run that was killed leaves what it knew. C(finished) is true only
    once the play is over.
  - A failure that C(rescue) has caught is recorded with C(rescued). What C(ignore_errors) passes over is not.
  - C(task) is the task that began last, and C(lock) the lock of the release that is rolled out.
  - C(bin/matrix) has it enabled, and sums up by it; C(bin/torchstack) finds by it what it shows of a rollout.
requirements:
  - enabled as C(hpcml.torchstack.run_record) in C(callbacks_enabled)
options:
  path:
    description: The file. Without it nothing is written.
    type: path
    env:
      - name: TORCHSTACK_RUN_RECORD
"""

import json
import time
from typing import Any

from ansible.plugins.callback import CallbackBase
from ansible_collections.hpcml.torchstack.plugins.callback.steps import sentence_of, without_role
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.files import write_atomic
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.lenient_json import text

FORMAT = 1
LOCK = "hpcml.torchstack.rollout_lock"
UNREACHABLE = "connection"
"""The part of a failure whose host does not answer."""


def rescued(task: Any) -> bool:
    """Tell whether a task stands in a block, or below one, whose ``rescue`` goes on after its failure."""
    child, parent = task, task._parent
    while parent is not None:
        if getattr(parent, "rescue", None):
            caught = {one._uuid for one in [*parent.rescue, *parent.always]}
            if child._uuid not in caught:
                return True
        child, parent = parent, parent._parent
    return False


class CallbackModule(CallbackBase):
    """Writes the record; prints nothing."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "hpcml.torchstack.run_record"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self.record: dict[str, Any] = {
            "format": FORMAT, "finished": False, "steps": [], "failures": [], "task": None, "lock": None}

    def write(self) -> None:
        """Write what is known now."""
        path = self.get_option("path")
        if path:
            write_atomic(path, (json.dumps(self.record, indent=1) + "\n").encode("utf-8"), 0o600)

    @staticmethod
    def found(result: Any) -> dict[str, Any]:
        """Return the result of a task, on every ansible-core."""
        return dict(result.result if hasattr(result, "result") else result._result)

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """See :class:`ansible.plugins.callback.CallbackBase`, as for all below."""
        self.write()

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        """Record what is done now, and since when, in seconds since 1970."""
        self.record["task"] = {"name": without_role(task.get_name().strip()), "since": time.time()}
        self.write()

    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        """Record a handler as a task."""
        self.v2_playbook_on_task_start(task, False)

    def v2_runner_on_ok(self, result: Any) -> None:
        """Record a build step that ran, would run, or was taken over, and the lock that was taken."""
        found = self.found(result)
        if result._task.action == LOCK and found.get("acquired"):
            self.record["lock"] = text(found.get("path"))
            self.write()
        if "step" in found and "digest" in found and found.get("changed"):
            self.record["steps"].append({
                "step": text(found["step"]), "state": text(found.get("state")), "seconds": found.get("seconds"),
                "host": result._host.get_name()})
            self.write()

    def v2_runner_item_on_ok(self, result: Any) -> None:
        """Record a build step of a loop."""
        self.v2_runner_on_ok(result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Record a failure; of a loop each item has its own."""
        if not ignore_errors and not (self.found(result).get("results") and result._task.loop):
            self.fail(result, text(self.found(result).get("failed_step")))

    def v2_runner_item_on_failed(self, result: Any) -> None:
        """Record the failure of one item."""
        if not result._task.ignore_errors:
            self.fail(result, text(self.found(result).get("failed_step")))

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Record a host that does not answer."""
        if not result._task.ignore_unreachable:
            self.fail(result, UNREACHABLE)

    def fail(self, result: Any, part: str) -> None:
        """Record a failure."""
        found = self.found(result)
        self.record["failures"].append({
            "task": without_role(result._task.get_name().strip()), "step": text(found.get("step")), "part": part,
            "host": result._host.get_name(), "message": "\n".join(sentence_of(found)), "log": text(found.get("log")),
            "rescued": part != UNREACHABLE and rescued(result._task)})
        self.write()

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Say that the run is over."""
        self.record["finished"] = True
        self.write()
