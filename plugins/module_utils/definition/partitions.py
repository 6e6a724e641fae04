# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Lay what a site says of one partition of its compute nodes over what it says of all, and check both. Pure.

A partition is any part of a site whose nodes are looked at, and on which releases are accepted, by itself.
"""

from __future__ import annotations

import re
from typing import Any, Collection, Iterator, Mapping

from ..core import schema
from ..core.lenient_json import mapping
from ..core.near_names import nearest
from . import gpu_architectures, patterns, site_jobs
from .acceptance_plan import plan_acceptance

PARTITIONS, PARTITION = "torchstack_partitions", "torchstack_partition"
"""The variable in a site's group_vars, and the one by which a command asks for one partition."""

ACCEPTANCE = "torchstack_acceptance"
HEALTH = "node_health_expected"
OVER = {"jobs": ("site_data", site_jobs.JOBS), "ranks": ("site_data", site_jobs.RANKS),
        "acceptance": ("site_acceptance", ACCEPTANCE), HEALTH: ("node_health", HEALTH)}
"""Keys of a partition by the entry point and the name of the variable over which they are laid."""


def keys(specified: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of one partition; ``specified`` has the entry points of the role release, and node_health."""
    found = {name: dict(option) for name, option in specified["site_partition"]["options"].items()}
    for name, (entry, variable) in OVER.items():
        found[name]["options"] = specified[entry]["options"][variable]["options"]
    return found


def text_patterns(place: str) -> dict[str, patterns.Rule]:
    """Return what texts of a partition must look like, by their paths below the place of the partition."""
    begin = site_jobs.JOBS + "."
    return {
        **{"%s.jobs.%s" % (place, path[len(begin):]): rule for path, rule in patterns.SITE.items()
           if path.startswith(begin)},
        place + ".compute_capability": patterns.CAPABILITY,
    }


def overlaid(site: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return ``jobs``, ``ranks`` and ``acceptance`` of a partition in full.

    Lists are replaced as a whole, mappings key by key. An option of the partition's jobs also wins over what the site
    says of single steps, which else would lead these to other nodes.
    """
    own = site["partitions"][name]
    return {
        "jobs": _jobs(site["jobs"] or {}, own.get("jobs") or {}),
        "ranks": {**(site["ranks"] or {}), **(own.get("ranks") or {})},
        "acceptance": _merged(site["acceptance"] or {}, own.get("acceptance") or {}),
    }


def _jobs(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    launcher = own.get("launcher", base.get("launcher", site_jobs.LOCAL))
    if launcher != base.get("launcher", site_jobs.LOCAL):
        # Options of another batch system mean nothing to this one.
        base = {"node": base.get("node")}

    def named(options: Any) -> dict[str, Any]:
        return site_jobs.named_alike(launcher, options or {})

    options = named(own.get("options"))
    steps = {step: {key: value for key, value in named(given).items() if key not in options}
             for step, given in (base.get("steps") or {}).items()}
    for step, given in (own.get("steps") or {}).items():
        steps[step] = {**steps.get(step, {}), **named(given)}
    return {
        "launcher": launcher, "options": {**named(base.get("options")), **options}, "steps": steps,
        "node": {**(base.get("node") or {}), **(own.get("node") or {})}}


def _merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(base)
    for key, value in own.items():
        both = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
        found[key] = _merged(found[key], value) if both else value
    return found


def describe(site: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the partitions of a site for one of its releases, by name, as ``release_context`` has them.

    Each has ``jobs``, ``ranks`` and ``acceptance`` as the context has those of the site, ``node_health_expected``, and
    two sentences, either of which may be empty: why it is ``optional``, and why it is ``left_out`` for this release.
    """
    found = {}
    for name, own in (site.get("partitions") or {}).items():
        laid = overlaid(site, name)
        found[name] = {
            **site_jobs.describe({site_jobs.JOBS: laid["jobs"], site_jobs.RANKS: laid["ranks"]}),
            "acceptance": laid["acceptance"], HEALTH: dict(own.get(HEALTH) or {}),
            "optional": own.get("optional") or "", "left_out": left_out(own, site["release"])}
    return found


def left_out(own: Mapping[str, Any], release: str) -> str:
    """Return why a release does without a partition; empty where it does not."""
    return str(mapping(own.get("left_out")).get(release) or "")


def problems(
    site: Mapping[str, Any], specified: Mapping[str, Any], definition: Mapping[str, Any], source: str, sound: bool
) -> list[str]:
    """Find everything that is wrong with a site's partitions, as one sentence each.

    ``sound`` tells whether nothing is wrong with what they are laid over: else only their own keys are judged.
    """
    given = site.get("partitions") or {}
    if not isinstance(given, Mapping):
        return schema.problems({PARTITIONS: given}, {PARTITIONS: {"type": "dict"}}, source)
    found = _name_problems(given)
    if found:
        return found
    one = keys(specified)
    rules = {name: {"type": "dict", "options": one} for name in given}
    texts = {path: rule for name in given for path, rule in text_patterns("%s.%s" % (PARTITIONS, name)).items()}
    if given:
        found = schema.problems({PARTITIONS: given}, {PARTITIONS: {"type": "dict", "options": rules}}, source, texts)
    for name in () if found else given:
        found += _sentence_problems(name, given[name])
        found += _overlay_problems(site, name, specified, definition, source) if sound else []
    return found + ([] if found else [*_asked_problems(site), *_nobody_problems(site)])


def _name_problems(given: Mapping[Any, Any]) -> list[str]:
    return [
        "'%s' has the key %r, which is not the name of a partition; names have letters, digits, dots, dashes and "
        "underscores, and stand in quotes where YAML reads a number." % (PARTITIONS, name)
        for name in given if not isinstance(name, str) or not re.fullmatch(patterns.LABEL["pattern"], name)]


def _sentence_problems(name: str, own: Mapping[str, Any]) -> list[str]:
    place, found = "%s.%s" % (PARTITIONS, name), []
    if "optional" in own and not own["optional"].strip():
        found.append("'%s.optional' is empty; say in a sentence why a release is published without it." % place)
    for release, why in (own.get("left_out") or {}).items():
        if not isinstance(release, str):
            found.append("'%s.left_out' has the key %s, which YAML reads as no text; put the name of the release in "
                         "quotes." % (place, release))
        elif not isinstance(why, str) or not why.strip():
            found.append("'%s.left_out.%s' is no sentence; say why this release does without the partition." % (
                place, release))
    return found


def _overlay_problems(
    site: Mapping[str, Any], name: str, specified: Mapping[str, Any], definition: Mapping[str, Any], source: str
) -> list[str]:
    """Find what is wrong with the jobs, ranks and acceptance of a partition, its own words first."""
    own, laid, rules = site["partitions"][name], overlaid(site, name), specified["site_data"]["options"]
    alone = {site_jobs.JOBS: {**(own.get("jobs") or {}), "launcher": laid["jobs"]["launcher"]},
             site_jobs.RANKS: own.get("ranks") or {}}
    together = {site_jobs.JOBS: laid["jobs"], site_jobs.RANKS: laid["ranks"]}
    place = "%s.%s" % (PARTITIONS, name)
    for data in (alone, together):
        found = site_jobs.problems(data, rules, source, patterns.SITE)
        if found:
            return [re.sub(r"\btorchstack_(jobs|ranks)\b", place + r".\1", text) for text in found]
    trouble = plan_acceptance(definition, laid["acceptance"])["problem"]
    return [
        "The acceptance could not be run on partition %s with what '%s.acceptance', %s and acceptance in the release "
        "file say together: %s" % (name, place, ACCEPTANCE, trouble)] if trouble else []


def _asked_problems(site: Mapping[str, Any]) -> list[str]:
    asked, given = site.get("partition") or "", site.get("partitions") or {}
    if not asked or asked in given:
        return []
    if not given:
        return ["%s is %s, and site %s names no partitions under %s; leave it out." % (
            PARTITION, asked, site["site"], PARTITIONS)]
    return ["%s is %s, which is no partition of site %s; %s" % (PARTITION, asked, site["site"], meant(asked, given))]


def _nobody_problems(site: Mapping[str, Any]) -> list[str]:
    """Find whether a release would be published that nobody has accepted anywhere."""
    given = (site.get("partitions") or {}).values()
    if not given or any(not (own.get("optional") or left_out(own, site["release"])) for own in given):
        return []
    if all(own.get("optional") for own in given):
        return ["Every partition under '%s' is optional, and releases would be published that no node has accepted; "
                "take 'optional' away from one." % PARTITIONS]
    return ["Every partition under '%s' is optional, or left out for release %s, which no node would accept; take one "
            "of them in." % (PARTITIONS, site["release"])]


def meant(name: str, known: Collection[str]) -> str:
    """Name the nearest of the known names, or all of them, as the end of a sentence."""
    near = nearest(name, known)
    return "did you mean '%s'?" % near if near else "there are %s." % ", ".join(sorted(known))


def release_problems(site: Mapping[str, Any], definition: Mapping[str, Any]) -> list[str]:
    """Find partitions for which a release has no code, as one sentence each.

    What else is wrong with them is for :func:`problems` to tell.
    """
    found = []
    architectures = (definition.get("cuda") or {}).get("architectures") or []
    for name, own in _entries(site.get("partitions")):
        model = str(mapping(own.get(HEALTH)).get("gpu_model") or "")
        capability = str(own.get("compute_capability") or gpu_architectures.capability_of(model))
        is_known = re.fullmatch(patterns.CAPABILITY["pattern"], capability)
        if not architectures or not is_known or left_out(own, site["release"]):
            continue
        if not gpu_architectures.covers(architectures, capability):
            found.append(
                "'cuda.architectures' is %s, which has no code for the GPUs of partition %s (%scompute capability %s); "
                "add %s, or say under %s.%s.left_out why this release does without them." % (
                    ", ".join(architectures), name, model.strip("*") + ", " if model else "", capability, capability,
                    PARTITIONS, name))
    return found


def left_out_problems(given: object, releases: Collection[str]) -> list[str]:
    """Find releases that a partition is left out for and that the site does not have, as one sentence each.

    Args:
        given: the variable.
        releases: the names of the site's releases; without any, nothing is known.
    """
    entries = _entries(given) if releases else ()
    return [
        "'%s.%s.left_out.%s': the site has no release file for %s; %s" % (
            PARTITIONS, name, release, release, meant(release, releases))
        for name, own in entries for release in mapping(own.get("left_out"))
        if isinstance(release, str) and release not in releases
    ]


def _entries(given: object) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the partitions that are what they should be, with their names."""
    for name, own in mapping(given).items():
        if isinstance(own, Mapping):
            yield name, dict(own)
