# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Take the options of a build step from the context of its release, by the step's name. Pure.

A step that compiles, or imports what was compiled, runs in the toolchain of the release and in the site's jobs. All
others, such as those that fetch, run on the machine itself, without modules.
"""

from __future__ import annotations

import os
from typing import Any, Mapping

from . import bundles, components, site_jobs, toolchain

FETCHES = "-source"
"""How the name of a component's step ends that only fetches, and so runs outside of the toolchain."""

OF_PYTORCH = ("pytorch", "pytorch-install")
"""Steps of a component that compile only where the release file has ``pytorch.source``: a wheel is just installed."""

ONLY_IN_JOBS = ("bytecode",)
"""The steps that run in the site's jobs, without the toolchain."""

_PACKAGE = "package-"


def filled_options(given: Mapping[str, Any], context: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in the options of build_step that a task leaves to the context of its release.

    What the task gives wins, key by key; its ``environment`` and ``unset`` come on top of the context's. Where it gives
    ``launcher``, the site's jobs have no say. ``compilers``, no option of the module, come over ``environment``, and
    those that the toolchain types for the step over both.
    """
    options = {key: value for key, value in given.items() if key != "compilers"}
    if "records" in context:
        options.setdefault("state_dir", os.path.join(context["records"], "steps"))
    name = str(given.get("name"))
    key = toolchain_key(context.get("definition") or {}, name)
    asked = toolchain.step_toolchain(context, key) if key else {}
    compilers = {**given["compilers"], **asked.get("compilers", {})} if given.get("compilers") else {}
    options["environment"] = {**asked.get("environment", {}), **(given.get("environment") or {}), **compilers}
    options["unset"] = [*(given.get("unset") or []), *asked.get("unset", [])]
    options.setdefault("modules", asked.get("modules", []))
    # Without modules it would have the module system touched.
    init = (context.get("toolchain") or {}).get("module_init")
    if asked.get("setup"):
        options.setdefault("setup", asked["setup"])
    if (options["modules"] or options.get("setup")) and init:
        options.setdefault("module_init", init)
    system = (context.get("toolchain") or {}).get("module_system") or "auto"
    if options["modules"] and system != "auto":
        options.setdefault("module_system", system)
    if "launcher" not in given and (key or name in ONLY_IN_JOBS):
        job = site_jobs.step_job(context, key or name)
        options["launcher"] = job["launcher"]
        options["launcher_options"] = {**job["options"], **(given.get("launcher_options") or {})}
    return options


def toolchain_key(definition: Mapping[str, Any], step: str) -> str:
    """Find the name by which a release file's toolchain and a site's jobs speak of a step.

    A package's steps are ``package-<name>``, that with ``-fetch`` and ``-wheel``; a bundle's begin with ``bundle-``.
    Empty for one on the machine itself.
    """
    if step in OF_PYTORCH and not (definition.get("pytorch") or {}).get("source"):
        return ""
    if any(step in row.steps for row in components.COMPONENTS):
        return "" if step.endswith(FETCHES) else step
    if not step.startswith((_PACKAGE, bundles.STEP)):
        return ""
    # The name of a package itself may end like that of a step.
    if step in bundles.steps(definition):
        return step
    if step.endswith("-fetch"):
        return ""
    return step[:-len("-wheel")] if step.endswith("-wheel") else step
