# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Give steps the variables by which they fetch from a mirror instead of the network."""

from __future__ import annotations

from typing import Any, Callable


def mirror_environment(directory: str) -> dict[str, str]:
    """Return the variables by which pip, and the steps themselves, use a mirror and nothing else."""
    from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror import environment as steps_environment

    return steps_environment.environment(directory)


class FilterModule:
    """The filters of this file, for Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"mirror_environment": mirror_environment}
