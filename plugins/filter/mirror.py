# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Filters over the directory of a mirror: what steps get from it instead of the network."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

from ansible_collections.hpcml.torchstack.plugins.module_utils.core.late import Late

mirror_use = Late("mirror.mirror_use")


def mirror_environment(directory: str) -> dict[str, str]:
    """The variables by which pip, and the steps themselves, use a mirror and nothing else."""
    return mirror_use.environment(directory)


def mirror_context(directory: str, definition: Mapping[str, Any], channels: Sequence[str] = ()) -> dict[str, Any]:
    """What roles have to know of a mirror; empty where there is none."""
    return mirror_use.context(directory, definition, channels)


class FilterModule:
    """The filters of this file, for Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"mirror_environment": mirror_environment, "mirror_context": mirror_context}
