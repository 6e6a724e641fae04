# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Filters over the packages of a release file: what is wrong with them, and what is done for each."""

from __future__ import annotations

from typing import Any, Callable

from ansible.errors import AnsibleFilterError
from ansible_collections.hpcml.torchstack.plugins.module_utils import packages


def package_problems(definition: object, source: str = "") -> list[str]:
    """Every entry of ``packages`` that contradicts itself, another one or the rest of the release, as one sentence."""
    return packages.package_problems(definition, source)


def planned_packages(entries: object) -> list[dict[str, Any]]:
    """The entries with their defaults, their build steps and what they install."""
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise AnsibleFilterError("planned_packages: the entries are no list of mappings.")
    return packages.planned_packages(entries)


class FilterModule:
    """The filters of this file, for Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"package_problems": package_problems, "planned_packages": planned_packages}
