# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Describe the easyconfig of a release that EasyBuild installs, and compare two modules."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from ansible.errors import AnsibleFilterError


def easyconfig_parameters(description: Mapping[str, Any], base: Mapping[str, Any], release: str) -> dict[str, Any]:
    """Return what the easyconfig of a container says, as literals of Python."""
    from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import easyconfig

    try:
        return easyconfig.parameters(description, base, release)
    except (KeyError, TypeError, AttributeError) as error:
        raise AnsibleFilterError("easyconfig_parameters: no description of a module, or no container.") from error


def module_differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Find what EasyBuild's module does otherwise than the release's own, as one sentence each."""
    from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import easyconfig

    return easyconfig.differences(ours, theirs)


class FilterModule:
    """The filters of this file, for Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"easyconfig_parameters": easyconfig_parameters, "module_differences": module_differences}
