# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a rehearsal replaces of the site's own data, by comparing what Ansible makes of both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

WIDEST = 60
"""Characters of a value in the table; longer ones are cut."""

NOT_SET = "(not set)"


class Replaced(NamedTuple):
    """A variable of a host that has another value in the rehearsal."""

    host: str
    variable: str
    own: str
    here: str


def differences(own: Mapping[str, Mapping[str, Any]], here: Mapping[str, Mapping[str, Any]]) -> list[Replaced]:
    """What differs between the variables of hosts, by host and variable.

    Args:
        own: variables by host, of the site's own inventory.
        here: the same with the rehearsal's inventory over it.
    """
    found = []
    for host in sorted({*own, *here}):
        before, after = own.get(host, {}), here.get(host, {})
        if host not in own:
            found.append(Replaced(host, "(the host)", NOT_SET, "there"))
        for name in sorted({*before, *after}):
            if before.get(name, NOT_SET) != after.get(name, NOT_SET):
                found.append(Replaced(host, name, _shown(before.get(name, NOT_SET)), _shown(after.get(name, NOT_SET))))
    return found


def table_of(found: list[Replaced], own: str, over: str) -> str:
    """The differences as a table, under a line that names the inventories."""
    if not found:
        return "The rehearsal replaced nothing: %s changes no variable of %s." % (over, own)
    rows = [("variable", "the site's own", "in the rehearsal"), *((row.variable, row.own, row.here) for row in found)]
    hosts = ["host", *(row.host for row in found)]
    if len(set(hosts[1:])) > 1:
        rows = [(host + ": " + row[0], *row[1:]) for host, row in zip(hosts, rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    lines = ["  %-*s  %-*s  %s" % (widths[0], row[0], widths[1], row[1], row[2]) for row in rows]
    return "\n".join(["Replaced by the rehearsal (%s over %s):" % (over, own), *lines])


def _shown(value: Any) -> str:
    """A value on one line, cut where it is long."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    text = " ".join(text.split()) or '""'
    return text if len(text) <= WIDEST else text[: WIDEST - 4] + " ..."
