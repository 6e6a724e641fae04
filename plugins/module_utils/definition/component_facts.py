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

    ``left_out`` are names for people, ``torch_step`` and ``package_needs`` of steps, ``commands`` of the machine; to
    ``unknown_steps`` and ``unknown_modules`` nothing belongs. ``acceptance``: see
    :func:`.acceptance_plan.plan_acceptance`.
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
