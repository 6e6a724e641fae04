# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Refuse, in a task, the options by which an action plugin talks to its module."""

from __future__ import annotations

from typing import Any, Iterable, Mapping

from ansible.errors import AnsibleActionFail


def refuse_private(module: str, arguments: Mapping[str, Any], private: Iterable[str]) -> None:
    """Fail the task if it has an option that only the action plugin of a module sets."""
    for name in private:
        if name in arguments:
            raise AnsibleActionFail("%s: the option %s is set by the action plugin only." % (module, name))
