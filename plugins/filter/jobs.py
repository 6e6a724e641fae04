# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Filters over a site's data about jobs and ranks: what is wrong with it, in full, and where one step runs."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from ansible.errors import AnsibleFilterError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.late import Late

site_jobs = Late("definition.site_jobs")


def job_problems(
    data: object, schema: dict[str, Any], source: str = "", patterns: dict[str, Any] | None = None
) -> list[str]:
    """Everything that is wrong with the site's data, as one sentence each."""
    try:
        return site_jobs.problems(data, schema, source, patterns)
    except ValueError as error:
        raise AnsibleFilterError("job_problems: %s" % error) from error


def described_jobs(data: Any) -> dict[str, Any]:
    """The site's data in full, as ``release_context`` carries it."""
    if not isinstance(data, Mapping):
        raise AnsibleFilterError("described_jobs: the data is no mapping; use job_problems on it first.")
    return site_jobs.described(data)


def step_job(context: Any, step: str) -> dict[str, Any]:
    """The launcher of one step, with its options."""
    if not isinstance(context, Mapping):
        raise AnsibleFilterError("step_job: this is not release_context; the role release makes it.")
    return site_jobs.step_job(context, step)


class FilterModule:
    """The filters of this file, for Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"job_problems": job_problems, "described_jobs": described_jobs, "step_job": step_job}
