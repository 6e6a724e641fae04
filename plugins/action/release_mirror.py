# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Fetch a mirror in portions, from the controller's side, and tell the operator how far it is."""

from __future__ import annotations

import time
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror.index import Item, format_bytes
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.private_options import refuse_private

display = Display()

ROUNDS = 3
"""How often something more may be needed once what was found first is there: a CUDA build says so only then."""


class ActionModule(ActionBase):
    """Plans, fetches portion by portion, and has the list written."""

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """See :class:`ansible.plugins.action.ActionBase`."""
        super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        refuse_private("release_mirror", arguments, ("phase", "files"))
        if arguments.get("state", "present") != "present":
            return without(self._execute_module(module_args=arguments, task_vars=task_vars), "there")

        def call(phase: str, files: list[dict[str, Any]]) -> dict[str, Any]:
            return self._execute_module(module_args=dict(arguments, phase=phase, files=files), task_vars=task_vars)

        fetched: list[dict[str, Any]] = []
        start = time.monotonic()
        for _round in range(ROUNDS):
            plan = call("plan", [])
            if plan.get("failed") or plan.get("planned_after"):
                return without(plan, "there")
            if self._task.check_mode:
                return without(self.with_difference(plan, plan["fetched"]), "there")
            if not plan["fetched"]:
                break
            answer = self.fetch(call, plan["fetched"], fetched, start)
            if answer.get("failed"):
                return dict(answer, fetched=fetched)
        last = call("finish", plan["there"])
        if last.get("failed"):
            return last
        result = dict(plan, fetched=fetched, written=last["written"], changed=bool(fetched) or last["changed"])
        result["kept"] -= len(fetched)
        return without(self.with_difference(result, fetched), "there")

    @staticmethod
    def fetch(call: Any, files: list[dict[str, Any]], fetched: list[dict[str, Any]], start: float) -> dict[str, Any]:
        """Fetch files, and show a line after each portion; ``start`` is the task's, of the monotonic clock."""
        left, before = list(files), len(fetched)
        answer: dict[str, Any] = {}
        while left:
            answer = call("fetch", left)
            if answer.get("failed"):
                return answer
            fetched += answer["fetched"]
            left = left[len(answer["fetched"]):]
            if left:
                display.display(progress(len(fetched) - before, len(files), fetched, left[0], time.monotonic() - start))
        return answer

    def with_difference(self, result: dict[str, Any], files: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the result with its files as a difference, where that is asked for."""
        if not self._task.diff or not files:
            return result
        lines = sorted(Item(**entry).described for entry in files)
        return dict(result, diff={"before": "", "after": "".join(line + "\n" for line in lines)})


def without(result: dict[str, Any], key: str) -> dict[str, Any]:
    """Return a result without something that is only for this plugin."""
    return {name: value for name, value in result.items() if name != key}


def progress(done: int, total: int, fetched: list[dict[str, Any]], following: dict[str, Any], seconds: float) -> str:
    """One line for the operator: ``mirror  [12/45]  26 %  1 min  38.2 MB, next numpy 2.4.6``."""
    parts = ["mirror", "[%d/%d]" % (done, total), "%d %%" % (100 * done // total)]
    parts.append("%d min" % (seconds // 60) if seconds >= 60 else "%d s" % seconds)
    size = following["size"]
    parts.append("%s, next %s %s%s" % (
        format_bytes(sum(entry["size"] for entry in fetched)), following["name"], following["version"],
        " (%s)" % format_bytes(size) if size >= 0 else ""))
    return "  ".join(parts)
