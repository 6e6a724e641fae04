# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Replace the words in braces in the rules of a verification by places and versions of the release."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from ansible.errors import AnsibleFilterError


def filled_rules(rules: Any, words: Mapping[str, Any], definition: Mapping[str, Any]) -> Any:
    """Return the rules with every ``{word}`` replaced, see :func:`.verification_rules.filled`."""
    from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import verification_rules

    try:
        return verification_rules.filled(rules, words, definition)
    except ValueError as error:
        raise AnsibleFilterError("filled_rules: %s" % error) from error


def module_process(module: Mapping[str, Any], loaded: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables that the modulefile of a release sets, as far as they do not depend on the user.

    Args:
        module: the description of the modulefile.
        loaded: what the modules set that it loads before itself; their directories come behind its own.
    """
    found = dict(loaded or {})
    paths: dict[str, list[str]] = {}
    for entry in module.get("prepend") or []:
        paths.setdefault(entry["name"], []).extend(entry["values"])
    for name, values in paths.items():
        behind = [found[name]] if found.get(name) else []
        found[name] = ":".join([*(value for value in values if "${" not in value), *behind])
    # Of files of which the first one that is there counts, a rollout makes sure of the first.
    for entry in module.get("first_file") or []:
        found.update(dict.fromkeys(entry["variables"], entry["candidates"][0]))
    # That of PYTHONUSERBASE says where each user's own packages are, and none of those takes part.
    found.update({name: value for name, value in (module.get("setenv") or {}).items() if "${" not in str(value)})
    return found


class FilterModule:
    """The filters of this file, for Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"filled_rules": filled_rules, "module_process": module_process}
