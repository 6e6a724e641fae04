# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Filters over the known problems of a release file."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

from ansible.errors import AnsibleFilterError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.late import Late

problems = Late("definition.known_problems")


def known_problems(definition: object) -> list[dict[str, str]]:
    """The known problems of a release file as it is written."""
    if not isinstance(definition, Mapping):
        raise AnsibleFilterError("known_problems: the definition is no mapping.")
    return problems.of_definition(definition)


def problem_sentences(known: Sequence[Mapping[str, str]]) -> list[str]:
    """Each known problem as one line of text."""
    return problems.sentences([dict(entry) for entry in known])


class FilterModule:
    """The filters of this file, for Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"known_problems": known_problems, "problem_sentences": problem_sentences}
