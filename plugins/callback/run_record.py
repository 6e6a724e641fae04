# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Write what a playbook's steps became, what was changed, found, said and failed, into a file that programs read."""

from __future__ import annotations

DOCUMENTATION = r"""
name: run_record
type: aggregate
short_description: A record of what a run did, found and said
version_added: 0.2.0
author:
  - The hpcml.torchstack contributors (@hpcml)
description:
  - Writes a file of JSON with each build step that ran or was taken over, and each failure with its task, step, part,
    host and message.
  - It is written anew after each of them, so that a run that was killed leaves what it knew. C(finished) is true only
    once the play is over.
  - A failure that C(rescue) has caught is recorded with C(rescued). What C(ignore_errors) passes over is not.
  - C(changed) are other tasks that changed something, or would in check mode; C(messages) is what
    M(ansible.builtin.debug) says. Neither has anything of a task with C(no_log).
  - C(results) is what modules of this collection found that look at, publish or retire a release, also where they
    failed; the RETURN of each module explains it.
  - C(hosts) counts the tasks of each host, once the play is over.
  - C(task) is the task that began last, and C(lock) the lock of the release that is rolled out.
  - C(bin/matrix) has it enabled, and sums up by it; C(bin/torchstack) finds by it what it shows of a rollout, and what
    it prints with C(--json).
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

from ansible import context
from ansible.plugins.callback import CallbackBase
from ansible_collections.hpcml.torchstack.plugins.callback.steps import SAYS, rescued, sentence_of, without_role
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.files import write_atomic
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.lenient_json import kept, text, texts

FORMAT = 1
LOCK = "hpcml.torchstack.rollout_lock"
COLLECTION = "hpcml.torchstack."
RESULTS: dict[str, tuple[str, ...]] = {
    "acceptance_run": ("passed", "reason", "summary", "record"),
    "modulefile_publish": (
        "actions", "release", "module", "version", "states", "default", "previous_default", "notice", "users_load"),
    "release_compare": ("equivalent", "counts", "differences"),
    "release_drift": ("drifted", "releases", "summary"),
    "release_event": ("told", "not_told"),
    "release_in_use": ("host", "in_use", "process_count", "processes", "held_count", "held", "unseen"),
    "release_mirror": ("fetched", "kept", "bytes", "written", "remarks", "missing"),
    "release_notice": ("since", "facts", "path"),
    "release_report": ("path",),
    "release_retire": ("stage", "record", "planned", "removal", "module", "notice"),
    "release_thaw": ("open", "thaw", "paths", "who", "why", "since", "put", "difference", "difference_total"),
    "site_lint": ("problems", "releases"),
    "system_drift": ("passed", "findings", "looked_at", "not_looked_at", "summary"),
}
"""Modules whose result is what a run is about, and what is kept of it."""

UNREACHABLE = "connection"
"""The part of a failure whose host does not answer."""


def of_items(result: Any, found: dict[str, Any]) -> bool:
    """Tell whether a result is of all items of a loop together, each of which has told its own."""
    return bool(found.get("results") and result._task.loop)


class CallbackModule(CallbackBase):
    """Writes the record; prints nothing."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "hpcml.torchstack.run_record"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self.record: dict[str, Any] = {
            "format": FORMAT, "finished": False, "check": False, "steps": [], "changed": [], "results": [],
            "messages": [], "failures": [], "hosts": {}, "task": None, "lock": None}

    def write(self) -> None:
        """Write what is known now."""
        path = self.get_option("path")
        if path:
            content = json.dumps(self.record, indent=1, default=str)
            write_atomic(path, (content + "\n").encode("utf-8"), 0o600)

    @staticmethod
    def found(result: Any) -> dict[str, Any]:
        """Return the result of a task, on every ansible-core."""
        return dict(result.result if hasattr(result, "result") else result._result)

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """See :class:`ansible.plugins.callback.CallbackBase`, as for all below."""
        self.record["check"] = bool(context.CLIARGS.get("check"))
        self.write()

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        """Record what is done now, and since when, in seconds since 1970."""
        self.record["task"] = {"name": without_role(task.get_name().strip()), "since": time.time()}
        self.write()

    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        """Record a handler as a task."""
        self.v2_playbook_on_task_start(task, False)

    def v2_runner_on_ok(self, result: Any) -> None:
        """Record what was changed, by whom, and of a task without a loop what else it has to say."""
        found = self.found(result)
        is_step = "step" in found and "digest" in found
        if found.get("changed") and not is_step:
            self.record["changed"].append(self.of(result))
        if not of_items(result, found):
            self.keep(result, found)
        if found.get("changed"):
            self.write()

    def v2_runner_item_on_ok(self, result: Any) -> None:
        """Record what one item of a loop has to say; what was changed is told of all items together."""
        self.keep(result, self.found(result))

    @staticmethod
    def of(result: Any) -> dict[str, Any]:
        """Say whose result it is."""
        return {"task": without_role(result._task.get_name().strip()), "host": result._host.get_name()}

    def keep(self, result: Any, found: dict[str, Any], failed: bool = False) -> None:
        """Record a build step that ran, would run, or was taken over, the lock that was taken, and what was found."""
        action = result._task.action
        if action == LOCK and found.get("acquired"):
            self.record["lock"] = text(found.get("path"))
        elif action in SAYS and "msg" in found and not failed:
            self.record["messages"].append({**self.of(result), "lines": [
                line for entry in texts(found["msg"]) for line in entry.splitlines()]})
        elif "step" in found and "digest" in found and found.get("changed") and not failed:
            self.record["steps"].append({
                "step": text(found["step"]), "state": text(found.get("state")), "seconds": found.get("seconds"),
                "host": result._host.get_name()})
        elif action.startswith(COLLECTION) and kept(found, *RESULTS.get(action[len(COLLECTION):], ())):
            module = action[len(COLLECTION):]
            self.record["results"].append({
                **self.of(result), "module": module, "failed": failed, "data": kept(found, *RESULTS[module])})
        else:
            return
        self.write()

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Record a failure; of a loop each item has its own."""
        found = self.found(result)
        if of_items(result, found):
            return
        self.keep(result, found, failed=True)
        if not ignore_errors:
            self.fail(result, text(found.get("failed_step")))

    def v2_runner_item_on_failed(self, result: Any) -> None:
        """Record the failure of one item."""
        self.keep(result, self.found(result), failed=True)
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
        """Say that the run is over, and count."""
        self.record["finished"] = True
        for host in sorted(stats.processed):
            counts = stats.summarize(host)
            self.record["hosts"][host] = {
                "ok": counts["ok"], "changed": counts["changed"], "unreachable": counts["unreachable"],
                "failed": counts["failures"]}
        self.write()
