# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Filters over the base of a release file: what is wrong with it, and what later roles work from."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

from ansible.errors import AnsibleFilterError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.late import Late

bases = Late("definition.base")


def base_problems(definition: object, source: str = "") -> list[str]:
    """Everything in ``base`` that contradicts the rest of the release file, as one sentence each."""
    return bases.problems(definition, source)


def described_base(
    definition: Mapping[str, Any], root: str, release: str, python: Mapping[str, Any],
    channels: Sequence[str] = (), mirrors: Mapping[str, str] | None = None, site: Mapping[str, Any] | None = None,
    image_bytes: int = 0,
) -> dict[str, Any]:
    """The base of a resolved release file, as every role after the base's own takes it."""
    try:
        return bases.described(definition, root, release, python, channels, mirrors, site, image_bytes)
    except (KeyError, TypeError) as error:
        raise AnsibleFilterError("described_base: the release file is not resolved, or no Python was found.") from error


class FilterModule:
    """The filters of this file, for Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"base_problems": base_problems, "described_base": described_base}
