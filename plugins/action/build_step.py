# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The controller's side of build_step: start, then look again and again, and tell the operator how far it is.

Most looks are glances: a line of shell that prints the records and the end of the log, and costs the machine next to
nothing, which a module call does not. As soon as a glance is not plainly that of a running build, the module looks.
Nothing of the controller stays on the target between two looks. When the controller dies, its worker process notices
within a quarter of a second and stops looking.
"""

from __future__ import annotations

import os
import time

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.hpcml.torchstack.plugins.module_utils.processes import read_process
from ansible_collections.hpcml.torchstack.plugins.module_utils.progress import (
    ProgressPrinter,
    glance,
    glance_command,
    progress_line,
)

display = Display()

FIRST_INTERVAL = 0.3
LONGEST_INTERVAL = 5.0
INTERVAL_GROWTH = 1.6
NAP = 0.25
"""Seconds between two looks at the controller's main process."""

STALE_SECONDS = 15.0
"""A heartbeat this old is worth a look of the module: the supervisor writes one every five seconds."""

RECONNECTS = 5
"""Lost connections in a row, before the operator is told that the build goes on alone."""

PLAN_FACT = "torchstack_planned"
"""Name of the fact by which, in check mode, a step tells later ones and the summary what it would do."""


class ActionModule(ActionBase):
    """Starts a step and follows it."""

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp=None, task_vars=None):
        """See :class:`ansible.plugins.action.ActionBase`."""
        super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        for private in ("follow", "planned"):
            if private in arguments:
                raise AnsibleActionFail("build_step: the option %s is set by the action plugin only." % private)
        self.controller = os.getppid()
        fact = self.plan_so_far(task_vars or {}) if self._task.check_mode else {}
        planned = dict(fact.get("steps") or {})
        state_dir = str(arguments.get("state_dir"))
        if planned.get(state_dir):
            arguments["planned"] = planned[state_dir]
        first = self._execute_module(module_args=arguments, task_vars=task_vars)
        if self._task.check_mode and first.get("state"):
            if first["state"] == "planned":
                planned[state_dir] = sorted({*planned.get(state_dir, []), str(first["step"])})
            entry = {key: first.get(key) for key in ("step", "state", "digest", "planned_after")}
            plan = [*(fact.get("plan") or []), entry]
            return dict(first, ansible_facts={PLAN_FACT: {"run": self.run_identity(), "steps": planned, "plan": plan}})
        if first.get("state") != "running":
            self.show_tail(first)
            return first
        kept = {key: first[key] for key in ("attached", "resumed", "diff", "invocation") if key in first}
        result = self.follow(first, state_dir, task_vars)
        self.show_tail(result)
        warnings = [*first.get("warnings", []), *result.get("warnings", [])]
        return dict(result, **kept, **({"warnings": warnings} if warnings else {}))

    def follow(self, first, state_dir, task_vars):
        """Look at a running step until it ends.

        Args:
            first: the result of the call that started it.
            state_dir: the task's own.
            task_vars: as Ansible passes them.

        Returns:
            The last result, with the last progress seen.
        """
        name, started = first["step"], time.monotonic() - first["seconds"]
        directory, heartbeat, changed = os.path.dirname(first["log"]), None, time.monotonic()
        arguments = {"name": name, "state_dir": state_dir, "follow": first["nonce"]}
        printer = ProgressPrinter(name)
        interval, lost, progress, seen = FIRST_INTERVAL, 0, first["progress"], first
        while True:
            self.wait(interval)
            interval = min(interval * INTERVAL_GROWTH, LONGEST_INTERVAL)
            try:
                seconds = time.monotonic() - started
                seen_now = self.glance(directory, first["nonce"])
                if seen_now is not None:
                    job, found = seen_now
                    if job["heartbeat"] != heartbeat:
                        heartbeat, changed = job["heartbeat"], time.monotonic()
                    if time.monotonic() - changed < STALE_SECONDS:
                        lost = 0
                        seen = dict(seen, host=job["host"], pid=job["pid"])
                        progress = self.show(printer, dict(found or {}), progress, seconds)
                        continue
                result = self._execute_module(module_args=arguments, task_vars=task_vars)
            except AnsibleConnectionFailure as error:
                lost += 1
                if lost >= RECONNECTS:
                    raise AnsibleConnectionFailure("%s. %s" % (str(error).rstrip("."), self.goes_on(seen))) from error
                display.warning("%s: the connection was lost, the build goes on; trying again" % name)
                self.reconnect()
                continue
            lost = 0
            if result.get("failed") and "step" not in result:
                result["msg"] = "%s %s" % (result.get("msg", "The step cannot be followed."), self.goes_on(seen))
            if result.get("state") != "running":
                return dict({"progress": progress}, **result)
            seen = result
            progress = self.show(printer, result["progress"], progress, seconds)

    def glance(self, directory, nonce):
        """See :func:`.progress.glance`; None also where the target's shell could not say."""
        answer = self._low_level_execute_command(glance_command(directory))
        return glance(answer["stdout"], nonce) if answer["rc"] == 0 else None

    @staticmethod
    def show(printer, found, last, seconds):
        """Show the progress of a step when a line is due.

        Args:
            printer: decides that.
            found: what the log's end shows.
            last: the last progress seen.
            seconds: how long the step has been running.

        Returns:
            The last progress seen from now on.
        """
        if "percent" in found:
            last = dict(found, text=progress_line(printer.name, found, seconds))
        line = printer.line(last, seconds, time.monotonic())
        if line:
            display.display(line)
        return last

    @staticmethod
    def show_tail(result):
        """Print the last lines of a step that failed; in the task's result they would be one long line."""
        if result.get("failed") and result.get("log_tail"):
            display.display("\n".join(["%s: last lines of %s" % (result["step"], result["log"]), *result["log_tail"]]))

    def reconnect(self):
        """Forget a connection that broke."""
        try:
            self._connection.reset()
        except Exception as error:
            display.debug("build_step: resetting the connection: %s" % error)

    @staticmethod
    def goes_on(seen):
        """What an operator should know who can no longer see the build."""
        return "Step %s goes on without the controller on host %s (pid %s, log %s); run this again to attach to it." % (
            seen["step"], seen["host"], seen["pid"], seen["log"])

    def wait(self, seconds):
        """Sleep, unless the controller is gone."""
        end = time.monotonic() + seconds
        while True:
            if os.getppid() != self.controller:
                raise AnsibleActionFail("The controller is gone; the step goes on without it.")
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(NAP, left))

    def run_identity(self):
        """Identifies this run of the controller: facts may be cached from one run to the next."""
        process = read_process(self.controller)
        return "%d:%d" % (self.controller, process.start_time if process else 0)

    def plan_so_far(self, task_vars):
        """What this play's check mode has found: steps that would run, by state_dir, and every step in its order."""
        fact = (task_vars.get("ansible_facts") or {}).get(PLAN_FACT) or {}
        return fact if fact.get("run") == self.run_identity() else {}
