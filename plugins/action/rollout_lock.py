# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Name the process that rolls out to the module, and judge processes of the control node, which only this side can."""

from __future__ import annotations

import multiprocessing
import os
from typing import Any

from ansible import context
from ansible.plugins.action import ActionBase
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import rollout_lock as lock

#: A lock can pass from one dead holder to the next while we judge; more often than this it is not one of those.
ROUNDS = 5


def main_process() -> int:
    """Return the process id of ansible-playbook: the worker's parent, or its own where there are no workers."""
    parent = multiprocessing.parent_process()
    return os.getpid() if parent is None or parent.pid is None else parent.pid


def running() -> str:
    """Return the playbooks on the command line."""
    arguments = context.CLIARGS.get("args") if context.CLIARGS else None
    names = [arguments] if isinstance(arguments, str) else [str(name) for name in arguments or ()]
    return " ".join(names) or "ansible"


class ActionModule(ActionBase):
    """Runs the module, and once more when the holder it met turns out to be a dead process of this machine."""

    TRANSFERS_FILES = False
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        holder = lock.describe_process(main_process(), running())
        place = lock.this_place()
        dead: list[str] = []
        for _round in range(ROUNDS):
            arguments = dict(self._task.args, holder=holder, dead=dead)
            answer = self._execute_module(module_args=arguments, task_vars=task_vars)
            other = answer.get("holder") or {}
            token = other.get("token", "")
            if not answer.get("would_block") or token in dead or lock.judge(other, place) != lock.DEAD:
                break
            dead.append(token)
        result.update(answer)
        return result
