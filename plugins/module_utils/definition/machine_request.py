# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Derive what is looked for on the machine before a release is built. Pure."""

from __future__ import annotations

from typing import Any, Mapping

from . import base, components, site_jobs, toolchain
from .site_data import Site, full_container_data


def request(
    site: Site, specified: Mapping[str, Any], definition: Mapping[str, Any], expanded: Mapping[str, Any],
    record: Mapping[str, Any], frozen: bool,
) -> dict[str, Any]:
    """Derive what the module site_preflight looks for: most of it as that takes it, ``mpi`` empty for none.

    ``expanded`` has what the variables of modules stand for, and is not read of a frozen release; ``record`` is the
    resolved release file as it is recorded, or empty. ``installs`` tells whether pip installs anything.
    """
    is_container = components.in_image(definition)
    tools = toolchain.describe(definition)
    # Nothing is built any more, and the site's modules may have gone since.
    without_modules = frozen and bool(tools["modules"])
    commands = [full_container_data(site, specified)["torchstack_container"]["command"]] if is_container else []
    named = definition if frozen else expanded
    return {
        "commands": [] if frozen else commands + components.commands(definition),
        "compilers": [] if without_modules or is_container else toolchain.typed_compilers(site["compilers"], tools),
        "mpi": {} if without_modules or is_container else _mpi(site, named["mpi"]),
        "python": _python(site, definition["base"], record if without_modules else {}),
        "installs": not is_container or (definition["base"].get("venv") or {}).get("lock", "") != "",
    }


def _mpi(site: Site, named: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the MPI that a release may be built with."""
    launcher = site["jobs"].get("launcher", site_jobs.LOCAL)
    return {
        "prefix": named["prefix"],
        "cc": named.get("cc", ""),
        "cxx": named.get("cxx", ""),
        "launcher": named.get("launcher", ""),
        "allow_path": named["allow_path"],
        "wheel": named.get("lock", "") != "",
        # Where ranks are started by it and on this machine, a launcher that cannot is known before hours of building.
        "start": launcher == site_jobs.LOCAL and not site["ranks"].get("launcher"),
    }


def _python(site: Site, stand: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the machine's Python: an overlay extends it.

    For a conda base it only runs py-rattler and makes the build's environments; of a container, only our modules.
    ``record`` is of a frozen release whose Python a module may have brought, which nothing loads any more.
    """
    if stand["kind"] != base.OVERLAY:
        return {"command": site["python"], "minimum": "3.8" if stand["kind"] == base.CONTAINER else "3.10",
                "headers": False}
    command = record["python"]["executable"] if record else stand.get("python") or site["python"]
    return {"command": command, "minimum": stand["minimum"], "headers": True}
