# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Compose ``release_context``, from which every role after the role release takes its defaults. Pure."""

from __future__ import annotations

from typing import Any, Mapping

from ..core.schema import copy_plain
from . import base, components, module_variables, modulefile, partitions, runtime_settings, site_jobs, toolchain
from .site_data import Site, full_container_data, jobs_and_ranks

MPI_OF_AN_IMAGE = {"provider": "image", "prefix": "", "bin": "", "cc": "", "cxx": "", "launcher": ""}


def describe_place(site: Site, records: Mapping[str, Any], digest: str = "") -> dict[str, Any]:
    """Describe where a release lies and in which state it is; the rest of the context is its resolved release file.

    ``digest`` is of all that is asked for; empty where only the records are known. In the result ``builds`` has what
    releases produced from the same inputs, and ``downloads`` the same of what was fetched (what a mirror has need not
    be kept a second time); ``afterwards`` has records of what comes after the freeze, ``freezing`` tells that a freeze
    was interrupted and is to be completed, and ``subject`` is what acceptances belong to.
    """
    prefix = "%s/%s" % (site["root"], site["release"])
    freezing, builds = records.get("freezing"), site["builds"]
    # A freeze that began and was interrupted: nothing is built again unless something else is asked for.
    interrupted = bool(freezing) and freezing["digest"] == (digest or freezing["digest"]) if freezing else False
    builds = {"": site["root"] + "/.torchstack/builds", "none": ""}.get(builds, builds)
    return {
        "root": site["root"],
        "prefix": prefix,
        "records": prefix + "/.torchstack",
        "builds": builds,
        "downloads": "" if site["mirror"] else builds,
        "afterwards": "%s/.torchstack/%s" % (site["root"], site["release"]),
        "frozen": bool(records.get("frozen")) or interrupted,
        "freezing": interrupted,
        "thawed": bool(records.get("thawed")),
        # Before the freeze is recorded, what it will record.
        "subject": records.get("subject") or digest or records["record"]["digest"],
    }


def expand(site: Site, definition: Mapping[str, Any], modules: Mapping[str, Any]) -> module_variables.Expanded:
    """Replace variables of modules in a release file; ``modules`` has module_environment's answers, or nothing."""
    variables = toolchain.set_by_modules(modules["purged"], modules["loaded"]) if modules else {}
    return module_variables.expand(definition, variables, site["file"])


def resolve_release(
    site: Site, specified: Mapping[str, Any], definition: Mapping[str, Any], series: Mapping[str, str], digest: str,
    modules: Mapping[str, Any], preflight: Mapping[str, Any], image_bytes: int = 0,
) -> dict[str, Any]:
    """Compose the resolved release file: what is asked for, and what was found on the machine.

    ``specified`` are the entry points in the meta/argument_specs.yml of the role release, ``preflight`` is the result
    of the module site_preflight.
    """
    is_container = components.in_image(definition)
    expanded = expand(site, definition, modules)
    described = base.describe(
        definition, site["root"], site["release"], preflight["python"], site["conda_channels"], site["conda_mirrors"],
        full_container_data(site, specified) if is_container else None, image_bytes)
    mpi = MPI_OF_AN_IMAGE if is_container else describe_mpi(described, preflight["mpi"])
    settings = runtime_settings.merge(site["runtime_settings"], definition.get("runtime") or {})
    module = modulefile.describe(
        described, mpi, settings, expanded.definition.get("module") or {},
        (definition.get("mpi") or {}).get("prefix", ""), toolchain.describe(definition)["modules"])
    seen = (preflight.get("facts") or {}).get("compilers") or {}
    resolved = {
        "release": site["release"],
        "site": site["site"],
        "digest": digest,
        "tools": described["tools"],
        "base": described,
        "python": preflight["python"],
        "compilers": preflight["compilers"],
        # Which they are, as their own first lines say: after an update of the system the names are the same.
        "compiler_versions": {name: compiler.get("banner", "") for name, compiler in seen.items()},
        "mpi": mpi,
        "series": series,
        "module": module,
        "runtime_settings": settings,
        "definition": expanded.definition,
        "written": expanded.written,
    }
    # Without parts that are one object, which YAML would write as references.
    return dict(copy_plain(resolved))


def describe_mpi(described: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the MPI that is built with: the machine's, or that of a wheel, inside the release."""
    if found["provider"] != "wheel":
        return dict(found)
    prefix = described["prefix"]
    commands = {"cc": "mpicc", "cxx": "mpicxx", "launcher": "mpiexec"}
    return {
        "provider": "wheel", "prefix": prefix, "bin": prefix + "/bin",
        **{key: "%s/bin/%s" % (prefix, name) for key, name in commands.items()}}


def compose(
    site: Site, opened: Mapping[str, Any], place: Mapping[str, Any], rollout: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Compose the context; ``rollout`` has what only a rollout knows: ``mirror`` and ``modules_environment``.

    Where the site names partitions, ``partitions`` has for each what takes the place of keys of the context.
    """
    own = dict(rollout or {})
    if rollout is not None:
        own["proxy"] = site["proxy"]
    if site.get("partitions"):
        own["partitions"] = partitions.describe(site)
    return copy_plain({
        **opened, **place, **site_jobs.describe(jobs_and_ranks(site)), **own, "acceptance": site["acceptance"],
        "toolchain": toolchain.describe(
            opened.get("definition") or {}, site["module_init"], site["module_path"], site["module_system"])})
