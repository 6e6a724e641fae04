# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read which variables a host was given, and find those that nobody reads; on the control node."""

from __future__ import annotations

import functools
import os
import pathlib
import re
from typing import Any, Iterable

from ansible import context
from ansible.inventory.manager import InventoryManager
from ansible.utils.vars import load_extra_vars
from ansible.vars.manager import VariableManager
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import variable_names
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import release_file

TOP = pathlib.Path(__file__).parents[2]
_ENVIRONMENT = re.compile(r"\bTORCHSTACK_[A-Z_]+\b")
#: Of the tests, and of the command that makes the checkout's environment.
OTHERS = frozenset({"TORCHSTACK_PYTHONS"})


@functools.lru_cache(maxsize=None)
def specifications() -> dict[str, dict[str, Any]]:
    """Read what each role of the collection says of its variables."""
    return {
        path.parents[1].name: release_file.entry_points(path.parents[1])
        for path in sorted(release_file.ROLES.glob("*/meta/argument_specs.yml"))
    }


def read_by_sites() -> set[str]:
    """Names in the environment that a site of the collection reads, which mean something for another one."""
    texts = (path.read_text(encoding="utf-8") for path in TOP.glob("inventories/*/group_vars/*.yml"))
    return {name for text in texts for name in _ENVIRONMENT.findall(text)}


def inventories() -> list[str]:
    """List the inventories of the run."""
    return list(context.CLIARGS.get("inventory") or []) if context.CLIARGS else []


class Given:
    """What inventories and command line give to a host: what tasks have set meanwhile is none of it.

    The inventories are read once more: the one of the run knows no difference between the two.

    Attributes:
        sources: the inventories.
        variables: with those of the command line, as they are written.
        typed: names of the command line.
        groups: of the host, those that contain others first.
    """

    def __init__(self, loader: Any, host: str) -> None:
        self.loader, self.host = loader, host
        self.sources = inventories()
        self.typed = set(load_extra_vars(loader))
        self.variables, self.groups = self._of(self.sources)

    def _of(self, sources: list[str]) -> tuple[dict[str, Any], list[str]]:
        inventory = InventoryManager(loader=self.loader, sources=sources)
        found = inventory.get_host(self.host)
        if found is None:
            return {}, ["all"]
        groups = sorted(found.get_groups(), key=lambda group: (group.depth, group.priority, group.name))
        manager = VariableManager(loader=self.loader, inventory=inventory)
        return dict(manager.get_vars(host=found, include_hostvars=False)), [group.name for group in groups]

    def unknown_names(self, roles: dict[str, dict[str, Any]], others: Iterable[str]) -> list[str]:
        """Write one sentence for each name that nobody reads.

        Args:
            roles: see :func:`specifications`.
            others: further names that are known.
        """
        known = {*variable_names.declared(roles.values()), *others}
        # Of several inventories the later one may replace what used a variable of the earlier one.
        for source in self.sources:
            known |= variable_names.used(self._of([source])[0])
        read = set(_ENVIRONMENT.findall(repr(self.variables))) | OTHERS | read_by_sites()
        return [
            *variable_names.unknown(self.typed, set(self.variables), known, sorted(roles)),
            *variable_names.unknown_in_environment(os.environ, read),
        ]
