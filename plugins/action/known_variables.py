# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Refuses variables that nobody reads, as they are typed and as the inventory has them; runs on the control node."""

from __future__ import annotations

from typing import Any

from ansible_collections.hpcml.torchstack.plugins.plugin_utils import given_variables
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.control_action import ControlAction, refuse


class ActionModule(ControlAction):
    """Looks at names only, and only at those that somebody gave: what tasks have set meanwhile is none of them."""

    def find(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        """See :meth:`ControlAction.find`."""
        given = given_variables.Given(self._loader, str(task_vars.get("inventory_hostname", "")))
        others = [str(name) for name in self._task.args.get("others") or []]
        refuse(given.unknown_names(given_variables.specifications(), others))
        return {}
