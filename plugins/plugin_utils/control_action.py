# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run an action plugin that works on the control node alone, and turn its refusals into failures."""

from __future__ import annotations

from typing import Any, Iterable

from ansible.plugins.action import ActionBase
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError


class RefusedError(Exception):
    """Why the task fails, in sentences."""


def refuse(sentences: Iterable[str]) -> None:
    """Refuse the task by RefusedError, if there is anything to say."""
    said = " ".join(filter(None, sentences))
    if said:
        raise RefusedError(said)


class ControlAction(ActionBase):
    """Does its work in :meth:`find`, without a connection, in check mode too, and changes nothing."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """See :class:`ansible.plugins.action.ActionBase`."""
        result = super().run(tmp, task_vars)
        try:
            found = self.find(task_vars or {})
        except (RefusedError, ValueError) as error:
            return dict(result, failed=True, changed=False, msg=str(error))
        except StackError as error:
            return dict(result, failed=True, changed=False, **error.as_result())
        return dict(result, changed=False, **found)

    def find(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        """Return what the result says besides ``changed``; RefusedError, ValueError and StackError fail the task."""
        raise NotImplementedError
