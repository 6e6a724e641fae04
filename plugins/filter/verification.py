# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Replace the words in braces in the rules of a verification by places and versions of the release."""

from __future__ import annotations

import re
from typing import Any, Callable, Mapping

from ansible.errors import AnsibleFilterError

WORD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.]*)\}")

AS_WRITTEN = frozenset(["pattern", "value", "reason"])
"""Keys whose text means itself: a regular expression, a Python expression, and words for people."""


def filled_rules(rules: Any, words: Mapping[str, Any], definition: Mapping[str, Any]) -> Any:
    """Return the rules with every ``{word}`` replaced.

    ``definition``: the resolved release file; ``{horovod.version}`` is what it says there. A word that stands for a
    list of texts, as ``{cuda.libraries}`` does, makes one rule for each of them.
    """

    def known(word: str) -> Any:
        value = words.get(word)
        if value in (None, ""):
            value = definition
            for key in word.split("."):
                value = value.get(key) if isinstance(value, Mapping) else None
        return value

    def each(rule: Any) -> list[Any]:
        texts = {key: text for key, text in rule.items() if key not in AS_WRITTEN and isinstance(text, str)}
        for word in {word: None for text in texts.values() for word in WORD.findall(text)}:
            value = known(word)
            if isinstance(value, (list, tuple)):
                return [
                    {key: text.replace("{%s}" % word, str(one)) if key in texts else text for key, text in rule.items()}
                    for one in value]
        return [rule]

    def meaning(match: re.Match[str]) -> str:
        value = known(match.group(1))
        if not isinstance(value, (str, int)):
            raise AnsibleFilterError(
                "filled_rules: nobody knows what %s stands for in %r. Known are %s, and texts of the release file by "
                "their keys, such as {pytorch.version}."
                % (match.group(0), match.string, ", ".join("{%s}" % known for known in sorted(words))))
        return str(value)

    def filled(value: Any) -> Any:
        if isinstance(value, str):
            return WORD.sub(meaning, value)
        if isinstance(value, Mapping):
            return {key: inner if key in AS_WRITTEN else filled(inner) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [
                filled(rule) for inner in value for rule in (each(inner) if isinstance(inner, Mapping) else [inner])]
        return value

    return filled(rules)


def module_process(module: Mapping[str, Any], loaded: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables that the modulefile of a release sets, as far as they do not depend on the user.

    ``loaded``: what the modules set that it loads before itself; their directories come behind its own.
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
