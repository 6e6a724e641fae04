# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Gather what follows from the components that a release has. Pure."""

from __future__ import annotations

from typing import Any, Mapping

from . import components, left_over
from .acceptance_plan import plan_acceptance
from .toolchain import unknown_steps


def component_facts(definition: Mapping[str, Any], site: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Gather what follows from the components.

    Args:
        definition: a resolved release file; empty for a release of which nothing is known.
        site: what the site asks of every acceptance.

    Returns:
        ``left_out`` (names for people), ``commands`` of the machine, ``torch_step`` and ``package_needs`` (names of
        steps), ``acceptance`` (see :func:`.acceptance_plan.plan_acceptance`), and what nothing belongs to:
        ``unknown_steps`` and ``unknown_modules``.
    """
    return {
        "left_out": components.left_out(definition),
        "commands": components.commands(definition),
        "torch_step": components.torch_step(definition),
        "package_needs": components.package_needs(definition),
        "acceptance": plan_acceptance(definition, site),
        "unknown_steps": unknown_steps(definition),
        "unknown_modules": left_over.unknown_modules(definition),
    }
