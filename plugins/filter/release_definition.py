# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Filters over a resolved release file: the digests of its patch series, and how two of them differ."""

from __future__ import annotations

import os
from typing import Any, Callable

from ansible.errors import AnsibleFilterError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.late import Late

components = Late("definition.components")
errors = Late("core.errors")
series = Late("patches.series")


def series_digests(definition: dict[str, Any], roles: str) -> dict[str, str]:
    """The digest of every patch series, by its name in ``components.SERIES``.

    Args:
        definition: a resolved release file.
        roles: the directory of the roles; a series lies in ``<role>/files/series/<series>``.
    """
    digests = {}
    for name, (keys, role) in components.SERIES.items():
        settings: Any = definition
        for key in keys:
            settings = settings.get(key) if isinstance(settings, dict) else None
        if isinstance(settings, dict) and settings.get("series"):
            directory = os.path.join(roles, role, "files", "series", str(settings["series"]))
            try:
                digests[name] = series.load_series(directory).digest
            except errors.StackError as error:
                raise AnsibleFilterError("series_digests: %s" % error.as_result()["msg"]) from error
    return digests


def changed_keys(before: object, after: object, level: str = "") -> list[str]:
    """The dotted paths at which two mappings differ; keys that only the first has at its top level do not count."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return [] if before == after else [level]
    changed: list[str] = []
    for key in [*after, *(key for key in before if level and key not in after)]:
        path = "%s.%s" % (level, key) if level else str(key)
        if (key in before) != (key in after):
            changed.append(path)
        else:
            changed += changed_keys(before[key], after[key], path)
    return changed


class FilterModule:
    """The filters of this file, for Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"series_digests": series_digests, "changed_keys": changed_keys}
