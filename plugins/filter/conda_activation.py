# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Render a module's description as the scripts by which conda activates a prefix."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from ansible.errors import AnsibleFilterError


def conda_activation(module: Any, prefix: str) -> dict[str, str]:
    """Return the scripts by their paths below ``etc/conda``, see :func:`.conda_activation.scripts`."""
    from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles import conda_activation as activation
    from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles import (
        conda_command,
        description,
        description_checks,
    )

    if not isinstance(module, Mapping):
        raise AnsibleFilterError("conda_activation: the description of the module is no mapping.")
    normal = description.normalise(module)
    faults = conda_command.faults(module) or description_checks.find_faults(normal)
    if faults:
        raise AnsibleFilterError("conda_activation: %s" % faults[0])
    found = activation.scripts(normal, prefix)
    if conda_command.is_wanted(module):
        found.update(conda_command.files("%s/%s" % (normal["name"], normal["version"]), prefix))
    return found


class FilterModule:
    """The filters of this file, for Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return them by their names."""
        return {"conda_activation": conda_activation}
