# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find names of variables that nobody reads, and the names that were probably meant. Pure."""

from __future__ import annotations

import re
from typing import Any, Collection, Iterable, Mapping

from ..core.near_names import NEAR, VERY_NEAR, nearest

PREFIX = "torchstack_"

SITE_DATA = ("site_data", "site_acceptance", "site_partitions", "site_container")
"""Entry points of the role release whose options are variables with many keys."""

NOT_VARIABLES = ("release_file", "site_partition")
"""Entry points of argument specifications whose options are keys of a file, or of a mapping."""


def declared(specifications: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the variables that roles declare under ``argument_specs``."""
    return {
        name for specification in specifications for entry, described in specification.items()
        if entry not in NOT_VARIABLES for name in described.get("options") or {}}


def used(values: Mapping[str, Any]) -> set[str]:
    """Find the variables that values of other ones speak of: a site's own."""
    return {
        word for name, value in values.items() for word in re.findall(r"[A-Za-z_]\w*", repr(value))
        if word in values and word != name}


def unknown(
    typed: Collection[str], inventory: Collection[str], known: Collection[str], roles: Collection[str]
) -> list[str]:
    """Write one sentence for each name that nobody reads, typed or of the ``inventory``.

    Names that begin with one of ``roles``, or with :data:`PREFIX`, are the collection's.
    """
    prefixes = (PREFIX, *(role + "_" for role in roles))
    found = []
    for name in sorted({*typed, *inventory} - set(known)):
        ours = name.startswith(prefixes)
        # What others keep in the inventory is their business, but what is typed is meant for this playbook.
        if not ours and name not in typed:
            continue
        near = nearest(name, known, NEAR if ours else VERY_NEAR)
        if ours or near:
            found.append("%s%s: there is no such variable%s" % (
                "" if name in typed else "In the inventory, ", name,
                "; did you mean %s?" % near if near else "; %s." % _list_of(name, roles)))
    return found


def unknown_in_environment(names: Iterable[str], known: Collection[str]) -> list[str]:
    """Write one sentence for each variable of the environment that looks like a slip.

    Others of that prefix are for programs of the collection, or come from modules of releases.
    """
    prefix, found = PREFIX.upper(), []
    short = sorted(name[len(prefix):] for name in known)
    for name in sorted(set(names) - set(known)):
        near = nearest(name[len(prefix):], short, VERY_NEAR) if name.startswith(prefix) else ""
        if near:
            found.append(
                "%s in the environment: there is no such variable; did you mean %s%s?" % (name, prefix, near))
    return found


def _list_of(name: str, roles: Collection[str]) -> str:
    role = max((role for role in roles if name.startswith(role + "_")), key=len, default="")
    return "%s has those that there are" % ("roles/%s/README.md" % role if role else "docs/how-to/add-a-site.md")
