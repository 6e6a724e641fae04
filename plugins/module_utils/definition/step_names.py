# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find names of steps that no release has, in a release file's toolchain and in a site's jobs. Pure."""

from __future__ import annotations

from typing import Any, Collection, Iterable, Mapping

from ..core.near_names import nearest
from . import bundles, components, site_jobs, step_options


def of_components(definition: Mapping[str, Any]) -> set[str]:
    """Return the steps of the components, packages and bundles that a release has."""
    return {*(step for row in components.present(definition) for step in row.steps), *bundles.steps(definition)}


def of_any_component(definition: Mapping[str, Any]) -> set[str]:
    """Return the same with the steps of components that a release does without."""
    return of_components(definition) | {step for row in components.COMPONENTS for step in row.steps}


def of_jobs(definitions: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the steps that run in a site's jobs, of any of its releases."""
    found = {site_jobs.PREFLIGHT, *site_jobs.OF_RANKS, *step_options.ONLY_IN_JOBS}
    for definition in definitions:
        found |= {step for step in of_components(definition) if step_options.toolchain_key(definition, step)}
    return found


def job_problems(
    jobs: object, definitions: Collection[Mapping[str, Any]], place: str = site_jobs.JOBS
) -> list[str]:
    """Find names under ``torchstack_jobs.steps`` that are no step of any release of the site, as one sentence each.

    Args:
        jobs: the variable.
        definitions: the release files of the site; without any, nothing is known.
        place: where it stands, for the sentences.
    """
    steps = jobs.get("steps") if isinstance(jobs, Mapping) else None
    if not isinstance(steps, Mapping) or not definitions:
        return []
    known = of_jobs(definitions)
    return [
        "'%s.steps.%s': no release of the site has a step '%s' that runs in a job; %s" % (
            place, name, name, _meant(name, known))
        for name in steps if isinstance(name, str) and name not in known
    ]


def partition_problems(given: object, definitions: Collection[Mapping[str, Any]]) -> list[str]:
    """Find the same under the jobs of each partition of the site; ``given`` is the variable."""
    entries = given.items() if isinstance(given, Mapping) else ()
    return [
        sentence for name, own in entries if isinstance(own, Mapping)
        for sentence in job_problems(own.get("jobs"), definitions, "torchstack_partitions.%s.jobs" % name)]


def toolchain_problems(definition: object, source: str = "") -> list[str]:
    """Find names under ``toolchain.steps`` that no component has, as one sentence each.

    A step of a component that this release does without only means nothing, which its plan says.
    """
    toolchain = definition.get("toolchain") if isinstance(definition, Mapping) else None
    steps = toolchain.get("steps") if isinstance(toolchain, Mapping) else None
    if not isinstance(definition, Mapping) or not isinstance(steps, Mapping):
        return []
    known = {site_jobs.PREFLIGHT, *of_any_component(definition)}
    return [
        "'toolchain.steps.%s'%s: there is no step '%s'; %s" % (
            name, " in %s" % source if source else "", name, _meant(name, known))
        for name in steps if isinstance(name, str) and name not in known
    ]


def _meant(name: str, known: Collection[str]) -> str:
    near = nearest(name, known)
    return "did you mean '%s'?" % near if near else "there are %s." % ", ".join(sorted(known))
