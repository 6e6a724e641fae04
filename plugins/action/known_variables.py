# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Refuses variables that nobody reads, as they are typed and as the inventory has them; runs on the control node."""

from __future__ import annotations

import os
import pathlib
import re
from typing import Any

from ansible import context
from ansible.inventory.manager import InventoryManager
from ansible.utils.vars import load_extra_vars
from ansible.vars.manager import VariableManager
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import variable_names
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import release_file
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.control_action import ControlAction, refuse

TOP = pathlib.Path(__file__).parents[2]
_ENVIRONMENT = re.compile(r"\bTORCHSTACK_[A-Z_]+\b")
#: Of the tests, and of the command that makes the checkout's environment.
OTHERS = frozenset({"TORCHSTACK_PYTHONS"})


def specifications() -> dict[str, dict[str, Any]]:
    """Read what each role of the collection says of its variables."""
    return {
        path.parents[1].name: release_file.entry_points(path.parents[1])
        for path in sorted(release_file.ROLES.glob("*/meta/argument_specs.yml"))}


def read_by_sites() -> set[str]:
    """Names in the environment that a site of the collection reads, which mean something for another one."""
    texts = (path.read_text(encoding="utf-8") for path in TOP.glob("inventories/*/group_vars/*.yml"))
    return {name for text in texts for name in _ENVIRONMENT.findall(text)}


class ActionModule(ControlAction):
    """Looks at names only, and only at those that somebody gave: what tasks have set meanwhile is none of them."""

    def find(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        """See :meth:`ControlAction.find`."""
        host = str(task_vars.get("inventory_hostname", ""))
        sources = list(context.CLIARGS.get("inventory") or []) if context.CLIARGS else []
        given = self.variables(host, sources)
        roles = specifications()
        known = {*variable_names.declared(roles.values()), *(str(name) for name in self._task.args.get("others") or [])}
        # Of several inventories the later one may replace what used a variable of the earlier one.
        for source in sources:
            known |= variable_names.used(self.variables(host, [source]))
        read = set(_ENVIRONMENT.findall(repr(given))) | OTHERS | read_by_sites()
        sentences = [
            *variable_names.unknown(set(load_extra_vars(self._loader)), set(given), known, sorted(roles)),
            *variable_names.unknown_in_environment(os.environ, read)]
        refuse(sentences)
        return {}

    def variables(self, host: str, sources: list[str]) -> dict[str, Any]:
        """Return the variables of a host from inventories and command line, without those that tasks have set.

        The inventories are read once more: the one of the run knows no difference between the two.
        """
        inventory = InventoryManager(loader=self._loader, sources=sources)
        found = inventory.get_host(host)
        if found is None:
            return {}
        manager = VariableManager(loader=self._loader, inventory=inventory)
        return dict(manager.get_vars(host=found, include_hostvars=False))
