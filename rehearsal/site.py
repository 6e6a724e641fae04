# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The site that is rehearsed: one of the checkout, or one in a repository of its own."""

from __future__ import annotations

import pathlib
from typing import NamedTuple

from .batch_systems import NAMES
from .checkout import CHECKOUT, PLACE
from .dress_data import nearest
from .trouble import TroubleError

REPOSITORY = "/shared/home/rollout/site"
"""Where a site's repository is on the login node."""


class Site(NamedTuple):
    """Where a site's data are, on this machine and on the login node."""

    name: str
    top: pathlib.Path
    """the directory that the paths below are relative to"""
    own: str
    """the site's inventory"""
    over: tuple[str, ...]
    """what its rehearsal lays over it, the last one uppermost"""
    releases: str
    playbook: str
    place: str
    """:attr:`top` on the login node"""
    again: str
    """the command that rehearses it"""


def of_the_checkout(name: str, scheduler: str = "") -> Site:
    """Find a site of the checkout.

    Args:
        name: the site's name.
        scheduler: the batch system that it is rehearsed on; empty: that of its rehearsal.

    Raises:
        TroubleError: the site has no inventory, no playbook, or no rehearsal on that batch system.
    """
    own, over = "inventories/%s" % name, "inventories/rehearsal/%s" % name
    playbook = "playbooks/%s.yml" % name
    for path in (own + "/hosts.yml", playbook, over + "/hosts.yml"):
        if not name or not (CHECKOUT / path).exists():
            known = sorted(path.parent.name for path in CHECKOUT.glob("inventories/rehearsal/*/hosts.yml"))
            raise TroubleError(
                "Site '%s' cannot be rehearsed, as there is no %s. Sites that can: %s."
                % (name, path, ", ".join(known)))
    known = [NAMES[0], *sorted(path.parent.name for path in (CHECKOUT / over).glob("*/hosts.yml"))]
    if scheduler and scheduler not in known:
        raise TroubleError(
            "Site '%s' cannot be rehearsed on SCHEDULER=%s, as there is no %s/%s/hosts.yml%s"
            % (name, scheduler, over, scheduler, nearest(scheduler, known)))
    other = scheduler and scheduler != NAMES[0]
    above = ("%s/%s/hosts.yml" % (over, scheduler),) if other else ()
    return Site(
        name, CHECKOUT, own + "/hosts.yml", (over + "/hosts.yml", *above), own + "/releases", playbook, PLACE,
        "make rehearse SITE=" + name + (" SCHEDULER=" + scheduler if other else ""))


def of_a_repository(top: pathlib.Path) -> Site:
    """Find the site of a repository (docs/how-to/your-site-in-your-repository.md).

    Raises:
        TroubleError: the directory is none.
    """
    for path in ("ansible.cfg", "inventory", "rehearsal/hosts.yml", "playbooks/rollout.yml"):
        if not (top / path).exists():
            raise TroubleError(
                "%s is not the repository of a site that can be rehearsed, as it has no %s. bin/new-site makes one."
                % (top, path))
    return Site(
        "", top, "inventory", ("rehearsal",), "releases", "playbooks/rollout.yml", REPOSITORY, "bin/rehearse %s" % top)


def release_name(site: Site, given: str) -> str:
    """Give a release's name, from its name or from the path of its file.

    Raises:
        TroubleError: a path that is none of the site's releases, which are what the login node sees.
    """
    if "/" not in given:
        return given[: -len(".yml")] if given.endswith(".yml") else given
    releases = site.top / site.releases
    path = pathlib.Path(given).resolve()
    if path.parent != releases.resolve() or path.suffix != ".yml" or not path.is_file():
        known = sorted(found.stem for found in releases.glob("*.yml"))
        raise TroubleError(
            "RELEASE is '%s', which is no release file of site '%s': they lie in %s. Put it there, or name one of: %s."
            % (given, site.name or site.top.name, site.releases, ", ".join(known)))
    return path.stem
