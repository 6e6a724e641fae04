# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Tell roles what follows from the components of a release, and where and in what a step runs."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from ansible.errors import AnsibleFilterError

# Ansible loads all files of filters in the process of each task that uses one: what a filter needs, it imports itself.


def component_facts(definition: Any, site: Any = None) -> dict[str, Any]:
    """Gather what follows from the components that a release has."""
    from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import component_facts as facts

    return facts.component_facts(_mapping("component_facts", definition, "the release file is no mapping."), site)


def known_problems(definition: object) -> list[dict[str, str]]:
    """List the known problems of a release file as it is written."""
    from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import known_problems as problems

    return problems.read(_mapping("known_problems", definition, "the definition is no mapping."))


def runtime_problems(settings: object) -> list[str]:
    """Find run-time settings that cannot be used, as one sentence each."""
    from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import runtime_settings

    return runtime_settings.problems(settings)


def meaningless_variables(environment: object) -> list[str]:
    """List the build variables of Horovod whose value it ignores."""
    from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import component_checks

    return component_checks.meaningless_variables(environment)


def step_job(context: Any, step: str) -> dict[str, Any]:
    """Return the launcher of one step, with its options."""
    from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import site_jobs

    return site_jobs.step_job(_context("step_job", context), step)


def user_job(context: Any) -> dict[str, Any]:
    """Return the parts of a job script in which a user starts ranks."""
    from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import user_job as jobs

    return jobs.describe_job(_context("user_job", context))._asdict()


def module_words(context: Any, name: str, site: Any = None, built: Any = None) -> dict[str, Any]:
    """Return what the module of a release tells users of it."""
    from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import module_words as words

    return words.describe(_context("module_words", context), name, site or {}, built or {})


def step_subjects(definition: Any) -> dict[str, str]:
    """Return what each step of a release brings."""
    from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import step_subjects as subjects

    return subjects.step_subjects(_mapping("step_subjects", definition, "the release file is no mapping."))


def step_toolchain(context: Any, step: str) -> dict[str, Any]:
    """Return what one step is run in."""
    from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import toolchain

    return toolchain.step_toolchain(_context("step_toolchain", context), step)


def canonical_digest(data: Any) -> str:
    """Digest plain data in its canonical JSON form, the one that build steps are digested in."""
    from ansible_collections.hpcml.torchstack.plugins.module_utils.core import canonical, errors

    try:
        return canonical.digest_of(data)
    except errors.StackError as error:
        raise AnsibleFilterError("canonical_digest: %s" % error) from error


def _context(name: str, context: object) -> Mapping[str, Any]:
    return _mapping(name, context, "this is not release_context; the role release makes it.")


def _mapping(name: str, value: object, otherwise: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise AnsibleFilterError("%s: %s" % (name, otherwise))
    return value


class FilterModule:
    """The filters of this file, for Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return them by their names."""
        own = (
            component_facts, known_problems, meaningless_variables, runtime_problems, step_job, step_subjects,
            step_toolchain, user_job, module_words, canonical_digest)
        return {one.__name__: one for one in own}
