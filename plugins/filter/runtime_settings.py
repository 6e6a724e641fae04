# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Filters over a site's run-time settings: what is wrong with them, and what a modulefile makes of them."""

from __future__ import annotations

from typing import Any, Callable

from ansible.errors import AnsibleFilterError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.late import Late

runtime_settings = Late("definition.runtime_settings")


def runtime_problems(settings: object) -> list[str]:
    """Every setting that cannot be used, as one sentence."""
    return runtime_settings.problems(settings)


def runtime_setenv(settings: Any) -> dict[str, str]:
    """The settings as the ``setenv`` of a modulefile's description."""
    found = runtime_settings.problems(settings) or runtime_settings.modulefile_problems(settings)
    if found:
        raise AnsibleFilterError("runtime_setenv: " + " ".join(found))
    return runtime_settings.setenv(settings)


class FilterModule:
    """The filters of this file, for Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"runtime_problems": runtime_problems, "runtime_setenv": runtime_setenv}
