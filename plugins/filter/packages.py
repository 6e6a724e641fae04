# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check the packages and files of a release file, plan what is done for each, and fill in their variables."""

from __future__ import annotations

import re
from typing import Any, Callable, Mapping

from ansible.errors import AnsibleFilterError


def package_problems(definition: object, source: str = "") -> list[str]:
    """Find entries of ``packages`` and ``bundles`` that contradict themselves, others or the rest."""
    from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import bundles, packages

    return [*packages.package_problems(definition, source), *bundles.problems(definition, source)]


def planned_packages(entries: object, bundles: object = ()) -> list[dict[str, Any]]:
    """Return the entries, and after them the bundles, with their defaults, build steps and what they install."""
    from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import bundles as of_bundles
    from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import packages

    planned = packages.planned_packages(_mappings(entries))
    return [*planned, *of_bundles.planned_bundles(_mappings(bundles), planned)]


def planned_files(
    entries: object, base: Mapping[str, Any], words: Mapping[str, Any], definition: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the site's own files with their places below the base, see :func:`.site_files.planned_files`."""
    from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import site_files

    found = site_files.problems({**definition, site_files.KEY: entries})
    if found:
        raise AnsibleFilterError("planned_files: %s" % " ".join(found))
    return site_files.planned_files(entries, base, words, definition)


def _mappings(entries: object) -> list[dict[str, Any]]:
    """Return a list as it is. Raises AnsibleFilterError: it is none of mappings."""
    if not isinstance(entries, (list, tuple)) or not all(isinstance(entry, dict) for entry in entries):
        raise AnsibleFilterError("planned_packages: the entries are no list of mappings.")
    return list(entries)


def filled_variables(environment: object, words: object) -> dict[str, Any]:
    """Return build variables with the words in braces of their values replaced: ``-L{base}/lib``.

    ``words``: what stands for what; other braces are left as they are written.
    """
    if not isinstance(environment, Mapping) or not isinstance(words, Mapping):
        raise AnsibleFilterError("filled_variables: the variables and the words have to be mappings.")

    def filled(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return re.sub(r"(?<!\$)\{(\w+)\}", lambda found: str(words.get(found.group(1), found.group(0))), value)

    return {name: filled(value) for name, value in environment.items()}


class FilterModule:
    """The filters of this file, for Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "package_problems": package_problems, "planned_packages": planned_packages,
            "filled_variables": filled_variables, "planned_files": planned_files}
