# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Start a step from the controller, follow it to its end, and tell the operator how far it is.

It is polled by a line of shell that prints the records and the end of the log, and costs the machine next to nothing,
which a module call does not. When the module has to be called, and what is told, is decided in :mod:`.follow`. Nothing
of the controller stays on the target between two polls. When the controller dies, its worker process notices within a
quarter of a second and ends there and then: a result that nobody takes, and that is larger than a pipe, would keep it
waiting for ever.
"""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Mapping

from ansible import constants
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.processes import read_process
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.text import printable
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition.step_options import filled_options
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.follow import Follow
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.needs import took_over
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.poll import parse_snapshot, poll_command
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.progress import OFTEN, SELDOM
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.lock_places import mismatch
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.private_options import refuse_private

display = Display()

POLL_INTERVAL = 0.25
"""Seconds between two checks of the controller's main process."""

RECONNECTS = 5
"""Lost connections in a row, before the operator is told that the build goes on alone."""

PRIVATE = ("follow", "planned", "unchanged")
"""The module's options that no task sets."""

QUERY_OPTIONS = ("name", "state_dir", "launcher", "launcher_options")
"""The task's options that a query of its job needs."""

BRIEF_CALLBACK = "hpcml.torchstack.steps"
"""What prints a line for each step and event, and so wants few while a step runs."""

PLAN_FACT = "torchstack_planned"
"""Name of the fact by which, in check mode, a step tells later ones and the summary what it would do."""

LOCKS_FACT = "release_lock_files"
"""Name of the fact with the paths of the release's locks, which the role release sets."""


def said_once(result, task_vars):
    """Return the result of a failure with its whole message, which ends with the remedy; see :func:`.in_short`.

    It begins with the lock that is not what was fetched, which only the control node has in files.
    """
    if "told" not in result:
        return result
    lock = mismatch(result["told"], (task_vars.get(LOCKS_FACT) or {}).values())
    message = "%s\n%s" % (lock, result["told"]) if lock else result["told"]
    return {key: value for key, value in dict(result, msg=message).items() if key not in ("told", "remedy")}


class ActionModule(ActionBase):
    """Starts a step and follows it."""

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        arguments = self.arguments()
        self.controller = os.getppid()
        fact = self.plan_so_far(task_vars or {}) if self._task.check_mode else {}
        planned = dict(fact.get("steps") or {})
        state_dir = str(arguments.get("state_dir"))
        if planned.get(state_dir):
            arguments["planned"] = planned[state_dir]
        first = self._execute_module(module_args=arguments, task_vars=task_vars)
        self.end_without_controller()
        if self._task.check_mode and first.get("state"):
            if first["state"] == "planned":
                known = {key: first.get(key) for key in ("result", "ground")}
                planned[state_dir] = {**planned.get(state_dir, {}), str(first["step"]): known}
            entry = {key: first.get(key) for key in ("step", "state", "digest", "planned_after", "taken_over")}
            plan = [*(fact.get("plan") or []), entry]
            return dict(first, ansible_facts={PLAN_FACT: {"run": self.run_identity(), "steps": planned, "plan": plan}})
        if first.get("state") == "running" and not boolean(arguments.get("wait", True)):
            return dict(first, changed=not first.get("attached"))
        if first.get("state") != "running":
            self.show_cancelled(first)
            self.show_taken_over(first)
            return said_once(first, task_vars or {})
        kept = {key: first[key] for key in ("attached", "resumed", "diff", "invocation") if key in first}
        query = {key: arguments[key] for key in QUERY_OPTIONS if key in arguments}
        result = self.follow(first, dict(query, follow=first["nonce"]), task_vars)
        self.show_taken_over(result)
        warnings = [*first.get("warnings", []), *result.get("warnings", [])]
        return said_once(dict(result, **kept, **({"warnings": warnings} if warnings else {})), task_vars or {})

    def arguments(self):
        """Return the module's options: those of the task, and what it leaves to the context of its release."""
        arguments = dict(self._task.args)
        refuse_private("build_step", arguments, PRIVATE)
        context = arguments.pop("context", None)
        for name, value in (("context", context), ("compilers", arguments.get("compilers"))):
            if value is not None and not isinstance(value, Mapping):
                raise AnsibleActionFail("build_step: %s is no mapping." % name)
        return filled_options(arguments, context or {}) if context or "compilers" in arguments else arguments

    def follow(self, first, arguments, task_vars):
        """Follow a step from its first result to its last one, which has the last progress seen, too."""
        brief = constants.DEFAULT_STDOUT_CALLBACK == BRIEF_CALLBACK and not display.verbosity
        directory, lost = os.path.dirname(first["log"]), 0
        follow = Follow(first, time.monotonic(), SELDOM if brief else OFTEN)
        while True:
            self.show(follow)
            self.wait(follow.next_interval())
            try:
                snapshot = self.poll(directory, follow)
                due = follow.see(snapshot, time.monotonic())
                if snapshot is not None:
                    lost = 0
                if not due:
                    continue
                unchanged = follow.unchanged(time.monotonic())
                result = self._execute_module(module_args=dict(arguments, unchanged=unchanged), task_vars=task_vars)
            except AnsibleConnectionFailure as error:
                lost += 1
                if lost >= RECONNECTS:
                    raise AnsibleConnectionFailure("%s. %s" % (str(error).rstrip("."), follow.whereabouts())) from error
                display.warning("%s: the connection was lost, the build goes on; trying again" % follow.name)
                self.reconnect()
                continue
            lost = 0
            unanswered = result.get("failed") and result.get("failed_step") == "scheduler"
            if unanswered and follow.unanswered(time.monotonic()):
                display.warning("%s: %s Asking again later." % (follow.name, result["msg"]))
                continue
            if result.get("failed") and (unanswered or "step" not in result):
                result["msg"] = "%s %s" % (result.get("msg", "The step cannot be followed."), follow.whereabouts())
            if result.get("state") != "running":
                return dict({"progress": follow.progress}, **result)
            follow.learn(result, time.monotonic())

    def poll(self, directory, follow):
        """Poll the step, see :func:`.parse_snapshot`; None also where the target's shell could not say."""
        answer = self._low_level_execute_command(poll_command(directory, follow.log_start))
        return parse_snapshot(answer["stdout"], follow.nonce) if answer["rc"] == 0 else None

    @staticmethod
    def show(follow):
        """Tell the operator what there is to tell."""
        for line in follow.lines(time.monotonic(), datetime.date.today().isoformat()):
            display.display(printable(line))

    @staticmethod
    def show_cancelled(result):
        """Say that a job has been cancelled, as the log of a long play would not show it."""
        if result.get("state") == "cancelled" and result.get("changed"):
            words = [result["step"] + " ", "job %s" % result["job_id"] if result.get("job_id") else "", "cancelled,"]
            display.display(" ".join([*filter(None, words), "log", result["log"]]))

    @staticmethod
    def show_taken_over(result):
        """Say of whom a step has what it produces, as it would be seen only with -v."""
        if result.get("changed") and result.get("state") == "cached":
            display.display("%s  %s" % (result["step"], took_over(result.get("taken_over") or {})))

    def reconnect(self):
        """Forget a connection that broke."""
        try:
            self._connection.reset()
        except Exception as error:
            display.debug("build_step: resetting the connection: %s" % error)

    def wait(self, seconds):
        """Sleep, and end this process as soon as the controller is gone."""
        end = time.monotonic() + seconds
        while True:
            self.end_without_controller()
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(POLL_INTERVAL, left))

    def end_without_controller(self):
        """End this process where its controller is gone; the step goes on without both."""
        if os.getppid() != self.controller:
            try:
                self.cleanup(force=True)
            finally:
                os._exit(1)

    def run_identity(self):
        """Identify this run of the controller: facts may be cached from one run to the next."""
        process = read_process(self.controller)
        return "%d:%d" % (self.controller, process.start_time if process else 0)

    def plan_so_far(self, task_vars):
        """Return what this play's check mode has found: steps that would run, by state_dir, and all in order."""
        fact = (task_vars.get("ansible_facts") or {}).get(PLAN_FACT) or {}
        return fact if fact.get("run") == self.run_identity() else {}
