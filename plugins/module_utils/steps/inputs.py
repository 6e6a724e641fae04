# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Compute what a step's result depends on, and its digest. Pure."""

from __future__ import annotations

import json
from typing import Any, Mapping

from ..core.canonical import digest_of
from ..core.redaction import redacted_data
from .own_place import placeless
from .records import SCHEMA
from .request import Request

PLANNED = "planned_after"
"""An input ``{"planned_after": "<step>"}`` stands for a value that only exists after that step."""


def step_facts(request: Request, needs: Mapping[str, str]) -> dict[str, Any]:
    """Collect everything that a step's result depends on, and nothing else.

    The step's name is not part of it, nor are the names of the steps it needs: only their results are, see
    :func:`need_value`. Time limits, launcher, cache and the place of the records are left out, because they do not
    change what is built. The order of modules and of ``creates`` counts, that of unset variables does not. The names of
    its secrets are part of it, their values are not.
    """
    facts: dict[str, Any] = {
        "schema": SCHEMA, "script": request.script, "chdir": request.chdir, "modules": request.modules,
        "module_init": request.module_init, "environment": request.environment, "unset": request.unset,
        "inputs": request.inputs, "creates": request.creates, "needs": sorted(needs.values()),
    }
    if request.produces:
        facts["produces"] = list(request.produces)
    if request.places:
        facts["places"] = request.places
    # Only then: the digests of steps from before there was a choice stay what they were.
    if not request.network:
        facts["network"] = False
    if request.setup:
        facts["setup"] = request.setup
    if request.secrets:
        facts["secrets"] = list(request.secrets)
    return facts


def step_record(request: Request, digest: str | None, needs: Mapping[str, str]) -> dict[str, Any]:
    """Write inputs.json: the facts, with every credential in ``inputs`` masked."""
    facts = step_facts(request, needs)
    return {"digest": digest, "facts": dict(facts, inputs=redacted_data(facts["inputs"])), "needs": dict(needs)}


def step_digest(request: Request, needs: Mapping[str, str]) -> str:
    """Compute the digest of a step: that of its facts without the place of its release, if they are plain data."""
    return digest_of(placeless(step_facts(request, needs), request.place))


def need_value(request: Request, result: str, ground: str) -> str:
    """Return what a step is judged by of one that it needs: what that one has made, and what it was made on.

    What produces does without the latter, as its result is of use elsewhere, too.
    """
    return result if request.produces or not ground else "%s on %s" % (result, ground)


def result_of(request: Request, results: Mapping[str, str]) -> str | None:
    """Return what others are judged by of this step, whose needs have results; None: not known before it runs."""
    if request.produces:
        return None
    if request.judged_by:
        return digest_of({"judged_by": sorted(results[name] for name in request.judged_by)})
    return step_digest(request, results)


def pending_input(inputs: object) -> str | None:
    """Find the step that an input waits for (see :data:`PLANNED`); None when all inputs are known."""
    if isinstance(inputs, dict):
        if set(inputs) == {PLANNED}:
            return str(inputs[PLANNED])
        inputs = list(inputs.values())
    if isinstance(inputs, (list, tuple)):
        return next((found for found in map(pending_input, inputs) if found is not None), None)
    return None


def describe_inputs(record: Mapping[str, Any] | None, script: str | None) -> str:
    """Write inputs and script of a step as one text, for a difference that people read."""
    parts = []
    if record is not None:
        facts = {key: value for key, value in record["facts"].items() if key not in ("script", "schema", "needs")}
        facts["needs"] = record["needs"]
        parts.append(json.dumps(facts, indent=2, sort_keys=True, ensure_ascii=False))
    if script is not None:
        parts.append(script.rstrip("\n"))
    return "".join(part + "\n" for part in parts)
