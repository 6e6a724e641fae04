# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Have the facts of a report gathered on the target, and make its page on the control node, which has the libraries."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.hpcml.torchstack.plugins.module_utils.report import page
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.private_options import refuse_private


class ActionModule(ActionBase):
    """Gathers, and renders only what the page that is there was not made from."""

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """See :class:`ansible.plugins.action.ActionBase`."""
        super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        refuse_private("release_report", arguments, ("page",))
        gathered = self._execute_module(module_args=arguments, task_vars=task_vars)
        made_from = gathered.pop("page_made_from", None)
        templates = arguments.get("templates")
        if gathered.get("failed") or made_from is None or not templates:
            return gathered
        digest = page.digest_of(gathered["facts"], templates)
        if digest == made_from:
            return gathered
        rendered = page.render_page(gathered["facts"], templates, digest)
        written = self._execute_module(module_args=dict(arguments, page=rendered), task_vars=task_vars)
        return written if written.get("failed") else dict(gathered, changed=gathered["changed"] or written["changed"])
