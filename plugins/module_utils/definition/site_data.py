# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check what a site says about itself, as far as a rollout depends on it. Pure."""

from __future__ import annotations

from typing import Any, Mapping, TypedDict

from ..batch import registry
from ..core import schema
from . import (
    amd_gpus,
    base,
    components,
    container,
    gpu_nodes,
    modulefile,
    partitions,
    patterns,
    runtime_settings,
    site_jobs,
)
from .acceptance_plan import plan_acceptance
from .packages import texts

_BEGINS_A_PATH = ("/", "~", "$")
"""What a directory begins with, as Ansible reads it."""


class Site(TypedDict):
    """A site's data, as the variables of the role release have them (``release_<key>``)."""

    root: str
    release: str
    """the name of the release"""
    site: str
    file: str
    """the name of the release file, for sentences"""
    python: str
    """the interpreter to build on, where the release file names none; may be empty"""
    account: str
    """the project that jobs are charged to; empty where the site takes it from the environment, which has none"""
    builds: str
    mirror: str
    proxy: dict[str, str]
    conda_channels: list[str]
    conda_mirrors: dict[str, str]
    runtime_settings: list[dict[str, str]]
    module_init: str
    module_path: list[str]
    module_system: str
    compilers: list[dict[str, Any]]
    jobs: dict[str, Any]
    ranks: dict[str, Any]
    acceptance: dict[str, Any]
    partitions: dict[str, Any]
    """parts of its compute nodes, on each of which releases are accepted; empty for all of them as one"""
    partition: str
    """the only one that a command is about; empty for each"""
    images: str
    container: dict[str, Any]
    topology: dict[str, Any]


def jobs_and_ranks(site: Site) -> dict[str, Any]:
    """Return what the site says about jobs and ranks, under the names that its group_vars have."""
    return {site_jobs.JOBS: site["jobs"], site_jobs.RANKS: site["ranks"]}


def container_data(site: Site) -> dict[str, Any]:
    """Return what the site says about containers, under the names that its group_vars have."""
    found = {"torchstack_images": site["images"], "torchstack_container": site["container"]}
    return {**found, **({gpu_nodes.TOPOLOGY: site["topology"]} if site["topology"] else {})}


def full_container_data(site: Site, specified: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same with every default."""
    return schema.resolved(container_data(site), specified["site_container"]["options"])


def problems(
    site: Site, specified: Mapping[str, Any], definition: Mapping[str, Any], submits: bool = True
) -> list[str]:
    """Find everything that is wrong with a site's data, as one sentence each.

    ``specified`` are the entry points in the meta/argument_specs.yml of the role release, ``definition`` is empty where
    only the records are known, ``submits`` tells whether jobs would be submitted. Raises ValueError: the schema is
    wrong.
    """
    source = "the data of site %s" % site["site"]
    of_jobs = site_jobs.problems(jobs_and_ranks(site), specified["site_data"]["options"], source, patterns.SITE)
    gpus = 0 if of_jobs else registry.asked_gpus(
        site["jobs"].get("launcher", site_jobs.LOCAL), site["jobs"].get("options") or {})
    is_container = components.in_image(definition)
    found = [*(_container_problems(site, specified, source, gpus) if is_container else []), *of_jobs]
    if site["builds"] not in ("", "none") and not str(site["builds"]).startswith("/"):
        found.append(
            "torchstack_cache of site %s is '%s'. Name a directory from / on, or none; of the local site, "
            "TORCHSTACK_CACHE says it." % (site["site"], site["builds"]))
    for name, paths in (("torchstack_root", [site["root"]]), ("torchstack_module_path", texts(site["module_path"]))):
        found += [
            "%s of site %s has '%s'. Name it from / on." % (name, site["site"], path)
            for path in paths if isinstance(path, str) and path and not path.startswith(_BEGINS_A_PATH)]
    of_acceptance = _acceptance_problems(site, specified, definition, source)
    found += of_acceptance
    found += partitions.problems(site, specified, definition, source, sound=not (of_jobs or of_acceptance))
    charged = of_jobs or site["jobs"].get("launcher", site_jobs.LOCAL) == site_jobs.LOCAL or site["account"] != ""
    if submits and not charged:
        found.append(
            "Jobs of site %s are charged to a project, and none is named. Set TORCHSTACK_ACCOUNT to it, and run the "
            "same command again." % site["site"])
    return found


def _container_problems(site: Site, specified: Mapping[str, Any], source: str, gpus: int) -> list[str]:
    """Find what is wrong with a site's data about containers and, where nothing is, about its nodes with GPUs."""
    data, keys = container_data(site), specified["site_container"]["options"]
    found = schema.problems(data, keys, source)
    if not found:
        full = schema.resolved(data, keys)
        found = [
            *container.site_problems(full, site["root"], source), *_tool_problems(site, full["torchstack_container"])]
    return found or gpu_nodes.problems(site["topology"], gpus)


def _tool_problems(site: Site, described: Mapping[str, Any]) -> list[str]:
    """Find an EasyBuild that would make modules for another module system than users have."""
    tool = (described.get("easybuild") or {}).get("modules_tool")
    wanted = {"lmod": "Lmod", "environment-modules": "EnvironmentModules"}.get(site["module_system"], tool)
    if described.get("method") != "easybuild" or tool == wanted:
        return []
    return ["'torchstack_container.easybuild.modules_tool' is %s, and torchstack_module_system of site %s is %s; say %s"
            " there, and the module_syntax that it reads." % (tool, site["site"], site["module_system"], wanted)]


def _acceptance_problems(
    site: Site, specified: Mapping[str, Any], definition: Mapping[str, Any], source: str
) -> list[str]:
    asked = {"torchstack_acceptance": site["acceptance"]}
    found = schema.problems(asked, specified["site_acceptance"]["options"], source)
    trouble = "" if found else plan_acceptance(definition, site["acceptance"])["problem"]
    return found + ([
        "The acceptance could not be run with what torchstack_acceptance of site %s and acceptance in the release file "
        "say together: %s" % (site["site"], trouble)] if trouble else [])


def release_problems(site: Site, definition: Mapping[str, Any], frozen: bool) -> list[str]:
    """Find what of a release does not go together with its site, as one sentence each."""
    found = runtime_settings.problems(site["runtime_settings"])
    if not found and not frozen:
        runtime = definition.get("runtime") or {}
        own = runtime_settings.release_problems(site["runtime_settings"], runtime) or modulefile.problems(
            definition.get("module") or {}, runtime_settings.merge(site["runtime_settings"], runtime))
        found = ["%s: %s" % (site["file"], " ".join(own))] if own else []
    found += [] if frozen else partitions.release_problems(site, definition)
    kind = definition["base"]
    found += [] if frozen else amd_gpus.site_problems(definition, site["topology"], site["site"])
    if kind["kind"] == base.CONDA and kind["specs"] and not (kind["channels"] or site["conda_channels"]):
        found.append(
            "%s has specs and names no channel under base.channels, and site %s has none either. Name one there, or "
            "give release_conda_channels in the site's group_vars (of the local site: TORCHSTACK_CONDA_CHANNELS)." % (
                site["file"], site["site"]))
    return found
