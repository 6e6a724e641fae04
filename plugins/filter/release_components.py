# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Filters over the components of a release file: what is wrong between them, and what follows from which are there."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

from ansible.errors import AnsibleFilterError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.late import Late

components = Late("definition.components")
left_over = Late("definition.left_over")
module_references = Late("definition.module_variables")
release_module = Late("definition.modulefile")
runtime_settings = Late("definition.runtime_settings")
toolchains = Late("definition.toolchain")


def component_problems(definition: object, source: str = "", lines: Mapping[str, int] | None = None) -> list[str]:
    """Everything in the components of a release file that contradicts itself, as one sentence each."""
    return components.problems(definition, source, lines)


def component_facts(definition: Any, site: Any = None) -> dict[str, Any]:
    """What follows from the components that a release has.

    Args:
        definition: a resolved release file; empty for a release of which nothing is known.
        site: what the site asks of every acceptance.
    """
    if not isinstance(definition, Mapping):
        raise AnsibleFilterError("component_facts: the release file is no mapping; use release_problems on it first.")
    return {
        "left_out": components.left_out(definition),
        "commands": components.commands(definition),
        "torch_step": components.torch_step(definition),
        "package_needs": components.package_needs(definition),
        "acceptance": components.accepted(definition, site),
        "unknown_steps": toolchains.strangers(definition),
        "unknown_modules": left_over.unknown_modules(definition),
    }


def expanded_release(definition: Any, modules: Any = None, source: str = "") -> dict[str, Any]:
    """A resolved release file with what the variables of its modules stand for.

    Args:
        definition: a resolved release file.
        modules: two answers of module_environment, ``purged`` and ``loaded``; without, no variable is known.
        source: the file that the sentences name.
    """
    if not isinstance(definition, Mapping):
        raise AnsibleFilterError("expanded_release: the release file is no mapping; use release_problems on it first.")
    variables = toolchains.set_by_modules(modules["purged"], modules["loaded"]) if modules else {}
    return module_references.expand(definition, variables, source)._asdict()


def as_written(record: Any) -> dict[str, Any]:
    """A recorded release with its release file as it was written."""
    if not isinstance(record, Mapping):
        raise AnsibleFilterError("as_written: the record of the release is no mapping.")
    definition = module_references.restored(record.get("definition") or {}, record.get("written") or {})
    return dict(record, definition=definition)


def modules_environment(modules: Any) -> dict[str, str]:
    """Two answers of module_environment as the environment of a task."""
    return toolchains.task_environment(modules["purged"], modules["loaded"]) if modules else {}


def release_runtime(settings: Any, runtime: Mapping[str, Any]) -> list[dict[str, str]]:
    """The run-time settings of one release."""
    return runtime_settings.of_release(settings, runtime)


def release_runtime_problems(settings: Any, runtime: Mapping[str, Any], module: Mapping[str, Any]) -> list[str]:
    """What is wrong with what a release file says of run-time settings, as one sentence each."""
    found = runtime_settings.release_problems(settings, runtime)
    return found or release_module.problems(module, runtime_settings.of_release(settings, runtime))


def release_modulefile(
    base: Mapping[str, Any], mpi: Mapping[str, Any], settings: Sequence[Mapping[str, str]], own: Mapping[str, Any],
    mpi_prefix: str = "", toolchain: Sequence[str] = (),
) -> dict[str, Any]:
    """The description of a release's modulefile."""
    return release_module.description(base, mpi, settings, own, mpi_prefix, toolchain)


class FilterModule:
    """The filters of this file, for Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "component_problems": component_problems,
            "component_facts": component_facts,
            "expanded_release": expanded_release,
            "as_written": as_written,
            "modules_environment": modules_environment,
            "release_runtime": release_runtime,
            "release_runtime_problems": release_runtime_problems,
            "release_modulefile": release_modulefile,
        }
