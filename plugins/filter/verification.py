# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A filter over the rules of a verification: the words in braces that stand for places and versions of the release."""

from __future__ import annotations

import re
from typing import Any, Callable, Mapping

from ansible.errors import AnsibleFilterError

WORD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.]*)\}")

AS_WRITTEN = frozenset(["pattern", "value", "reason"])
"""Keys whose text means itself: a regular expression, a Python expression, and words for people."""


def filled_rules(rules: Any, words: Mapping[str, Any], definition: Mapping[str, Any]) -> Any:
    """The rules with every ``{word}`` replaced.

    Args:
        rules: plain data, as in a release file.
        words: what stands for what.
        definition: the resolved release file; ``{horovod.version}`` is what it says there.
    """

    def meaning(match: re.Match[str]) -> str:
        word = match.group(1)
        value = words.get(word)
        if value is None:
            value = definition
            for key in word.split("."):
                value = value.get(key) if isinstance(value, Mapping) else None
        if not isinstance(value, (str, int)):
            raise AnsibleFilterError(
                "filled_rules: nobody knows what %s stands for in %r. Known are %s, and texts of the release file by "
                "their keys, such as {pytorch.version}."
                % (match.group(0), match.string, ", ".join("{%s}" % known for known in sorted(words)))
            )
        return str(value)

    def filled(value: Any) -> Any:
        if isinstance(value, str):
            return WORD.sub(meaning, value)
        if isinstance(value, Mapping):
            return {key: inner if key in AS_WRITTEN else filled(inner) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [filled(inner) for inner in value]
        return value

    return filled(rules)


class FilterModule:
    """The filter of this file, for Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"filled_rules": filled_rules}
