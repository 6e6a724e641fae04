# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find which installed Python distributions need which others, as their metadata has it. Pure.

https://packaging.python.org/en/latest/specifications/dependency-specifiers/
"""

from __future__ import annotations

import re
from typing import Iterable, Mapping, NamedTuple, Sequence

from ..definition.markers import applies
from ..definition.packages import canonical

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?[^;]*(?:;(.*))?\Z", re.DOTALL)


class _Need(NamedTuple):
    name: str
    extras: frozenset[str]
    marker: str


def needs(said: Mapping[str, Sequence[str]], variables: Mapping[str, str]) -> dict[str, list[str]]:
    """Find what each distribution needs of the others.

    Args:
        said: per canonical name, the ``Requires-Dist`` of its metadata; one that is not understood is left out.
        variables: what markers ask of the interpreter.

    Returns:
        canonical names by canonical name, sorted; only of what is installed. Of extras count those that another
        distribution asks for.
    """
    read = {name: [need for need in map(_parse, lines) if need and need.name in said] for name, lines in said.items()}
    asked: dict[str, set[str]] = {name: {""} for name in said}
    while True:
        chosen = {name: [need for need in found if _applies(need, asked[name], variables)]
                  for name, found in read.items()}
        before = sum(map(len, asked.values()))
        for need in (need for found in chosen.values() for need in found):
            asked[need.name] |= need.extras
        if sum(map(len, asked.values())) == before:
            return {name: sorted({need.name for need in found} - {name}) for name, found in chosen.items()}


def _parse(line: str) -> _Need | None:
    match = _REQUIREMENT.match(line)
    if match is None:
        return None
    extras = frozenset(canonical(word.strip()) for word in (match.group(2) or "").split(",") if word.strip())
    return _Need(canonical(match.group(1)), extras, match.group(3) or "")


def _applies(need: _Need, extras: Iterable[str], variables: Mapping[str, str]) -> bool:
    try:
        return any(applies(need.marker, dict(variables, extra=extra)) for extra in extras)
    except ValueError:
        return False
