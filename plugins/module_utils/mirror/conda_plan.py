# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Plan the packages of a conda base: those that a mirror has, and those to fetch."""

from __future__ import annotations

from typing import Any, Iterable, Mapping

from ..definition.base import CONDA
from . import conda_channel
from .contents import Contents
from .index import Item
from .lack import Lack
from .plan import Plan
from .requirements import (
    FILE,
    Need,
)


def plan_conda(wanted: Iterable[conda_channel.Wanted], contents: Contents, may_fetch: bool) -> Plan:
    """Plan packages that a solver or an explicit list named."""
    found = Plan([], [], [], [])
    all_wanted = list(wanted)
    contents.read_ahead(conda_channel.package_path(one.package) for one in all_wanted)
    for one in all_wanted:
        package = one.package
        path = conda_channel.package_path(package)
        need = Need(
            FILE, package.name, "%s %s" % (package.version, package.build), "base", (package.sha256,), url=package.url)
        offer = Item(path, package.sha256, one.size, one.url, need.name, need.version) if may_fetch else None
        _settle(found, contents, path, need, offer)
    return found


def plan_recorded(record: Mapping[str, Any], base: Mapping[str, Any], contents: Contents, digest: str) -> Plan:
    """Plan the packages of a conda base from the mirror's own list, by the :func:`.conda_channel.request_digest`."""
    plan = Plan([], [], [], [])
    facts = [
        parts[CONDA] for parts in record["releases"].values()
        if CONDA in parts and parts[CONDA].get("request") == digest]
    if not facts:
        what = ", ".join(base.get("specs") or ()) or "the packages of its lock"
        plan.lacks.append(Lack(Need("file", "conda base", "", "base"), "%s were never mirrored" % what))
        return plan
    contents.read_ahead(facts[0]["files"])
    for path in facts[0]["files"]:
        entry = record["files"][path]
        need = Need("file", entry["name"], entry["version"], "base", (entry["sha256"],), url=entry["origin"])
        _settle(plan, contents, path, need)
    return plan


def _settle(plan: Plan, contents: Contents, path: str, need: Need, offer: Item | None = None) -> None:
    if contents.digest(path) in need.hashes:
        plan.there.append(contents.item(path, need))
    elif offer is not None:
        plan.fetch.append(offer)
    else:
        plan.lacks.append(Lack(need, contents.problem(path, need.hashes)))
