# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Filters over the toolchain of a release: what is wrong with it, in full, and what one step is run in."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

from ansible.errors import AnsibleFilterError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.late import Late

toolchains = Late("definition.toolchain")


def toolchain_problems(definition: object, source: str = "") -> list[str]:
    """Everything in ``toolchain`` that cannot be used, as one sentence each."""
    return toolchains.problems(definition, source)


def described_toolchain(definition: Any, module_init: str = "", module_path: Sequence[str] = ()) -> dict[str, Any]:
    """The toolchain in full, as ``release_context`` carries it."""
    if not isinstance(definition, Mapping):
        raise AnsibleFilterError("described_toolchain: the release file is no mapping; use release_problems first.")
    return toolchains.described(definition, module_init, module_path)


def step_toolchain(context: Any, step: str) -> dict[str, Any]:
    """What one step is run in."""
    if not isinstance(context, Mapping):
        raise AnsibleFilterError("step_toolchain: this is not release_context; the role release makes it.")
    return toolchains.of_step(context, step)


def toolchain_lists(toolchain: Any) -> list[dict[str, Any]]:
    """The lists of modules that single steps load and that are not that of all steps."""
    if not isinstance(toolchain, Mapping) or "steps" not in toolchain:
        raise AnsibleFilterError("toolchain_lists: this is no toolchain in full; use described_toolchain on it first.")
    return toolchains.step_lists(toolchain)


def typed_compilers(compilers: Any, toolchain: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The compilers that preflight looks for, those of the toolchain as typed there."""
    return toolchains.typed_compilers(compilers, toolchain)


class FilterModule:
    """The filters of this file, for Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "toolchain_problems": toolchain_problems,
            "described_toolchain": described_toolchain,
            "step_toolchain": step_toolchain,
            "toolchain_lists": toolchain_lists,
            "typed_compilers": typed_compilers,
        }
