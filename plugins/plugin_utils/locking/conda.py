# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Lock the packages of a conda base: what py-rattler solves for the specs in a file beside the lock."""

from __future__ import annotations

import functools
import os
import pathlib
import tempfile
from typing import Any, Iterator, Mapping, Sequence

from ansible_collections.hpcml.torchstack.plugins.module_utils.conda import errors, lockfile, request
from ansible_collections.hpcml.torchstack.plugins.module_utils.conda.package import Package
from ansible_collections.hpcml.torchstack.plugins.module_utils.conda.rattler import REQUIREMENT, Session, package_of
from ansible_collections.hpcml.torchstack.plugins.module_utils.conda.rattler_worker import Worker
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import locks

from . import site_data
from .moving import LockError

PATH = ".".join(locks.OF_CONDA)
"""The key of the lock."""

MACHINE = "(release_expect | default({})).machine | default('')"
"""What the site's nodes call themselves, in its data; empty where it says nothing of it."""

CHANNELS = "TORCHSTACK_CONDA_CHANNELS"
"""A variable with the channels of a site whose release files name none."""


class Solver(Session):
    """Solves for specs, with packages that stay where they can."""

    def lock(
        self, channels: list[str], specs: list[str], kept: str, platform: str, virtual_packages: dict[str, str],
        priority: str, cache: str,
    ) -> str:
        """Return the explicit list; ``kept`` is one of what need not change."""
        self.load()
        gateway = self.rattler.Gateway(cache_dir=cache)
        locked = []
        for package in lockfile.parse(kept, PATH) if lockfile.is_explicit(kept) else ():
            try:
                locked += self._run(errors.CHANNEL, functools.partial(self._listed, [package], platform, gateway, {}))
            except StackError:
                continue  # what a channel no longer has, or has otherwise, cannot stay
        priorities = self.rattler.ChannelPriority
        found = self._run(errors.SOLVE, lambda: self.rattler.solve(
            sources=channels, specs=specs, platforms=[platform, "noarch"], gateway=gateway, locked_packages=locked,
            virtual_packages=self._virtual_packages(virtual_packages, platform),
            channel_priority=priorities.Disabled if priority == "disabled" else priorities.Strict))
        return lockfile.render([package_of(record) for record in found], platform)


def specs_of(asked: str) -> list[str]:
    """Return the specs in the text of the file that says what the lock is made of."""
    lines = (line.partition("#")[0].strip() for line in asked.splitlines())
    return [line for line in lines if line]


def platform_of(release: pathlib.Path) -> str:
    """Return conda's name of the platform of the site's nodes; this machine's where its data does not say.

    Raises LockError: conda has no packages for such nodes.
    """
    try:
        machine = str(site_data.ask(release, MACHINE))
    except site_data.UnknownError as error:
        machine = ""
        print("Solving for this machine, as %s." % error, flush=True)
    try:
        return request.platform_of(machine) if machine else request.this_platform()
    except StackError as error:
        raise LockError("'%s' cannot be solved: %s" % (PATH, error.message)) from error


def solve(
    content: Mapping[str, Any], asked: str, before: str, upgrade: Sequence[str], upgrade_all: bool, platform: str
) -> str:
    """Solve for a conda base. What was locked before stays where it can, but for what is to be renewed.

    Args:
        content: the data of the release file.
        asked: the text of the file that says what the lock is made of.
        before: the lock as it is; empty for a new one.
        upgrade: the packages that need not stay.
        upgrade_all: whether none has to stay.
        platform: conda's name of the platform of the nodes.

    Raises LockError: it cannot be solved; one sentence.
    """
    base, specs = content.get("base") or {}, specs_of(asked)
    channels = list(base.get("channels") or os.environ.get(CHANNELS, "").replace(",", " ").split())
    if not channels:
        raise LockError("'%s' cannot be solved, as no channel is named: give base.channels, or %s." % (PATH, CHANNELS))
    kept = "" if upgrade_all or not lockfile.is_explicit(before) else lockfile.render(
        [one for one in lockfile.parse(before, PATH) if one.name not in upgrade], platform)
    try:
        urls = [url for channel in channels for url in request.channel_urls(channel)]
        request.check_licence(urls, bool(base.get("accept_defaults_licence")))
        virtual = {name: str(version) for name, version in (base.get("virtual_packages") or {}).items()}
        with tempfile.TemporaryDirectory(prefix="torchstack-lock-") as cache, Worker(_prepare) as worker:
            return str(worker.call(
                "lock", channels=urls, specs=specs, kept=kept, platform=platform, virtual_packages=virtual,
                priority=str(base.get("channel_priority") or "strict"), cache=cache))
    except StackError as error:
        if error.details.get("requirement"):
            raise LockError("'%s' is solved by py-rattler, which is not there: install it where bin/lock runs, as with "
                            "\"pip install '%s'\"." % (PATH, REQUIREMENT)) from error
        raise LockError("'%s' cannot be solved: %s %s" % (PATH, error.message, error.remedy)) from error


def _prepare() -> Mapping[str, Any]:
    return {"lock": Solver().lock}


def packages(lock: str) -> dict[str, Package]:
    """Return the packages of an explicit list by name; none of another form, or of an empty one."""
    return {one.name: one for one in lockfile.parse(lock, PATH)} if lockfile.is_explicit(lock) else {}


def changes(before: str, after: str) -> Iterator[str]:
    """Tell the difference of two locks by package, a line each."""
    was, now = packages(before), packages(after)
    for name in sorted({*was, *now}):
        old, new = was.get(name), now.get(name)
        if old and new and old.identity[1:3] == new.identity[1:3] and old != new:
            yield "%s %s: another file" % (name, new.version)
        elif old != new:
            yield "%s %s -> %s" % (name, _shown(old), _shown(new))


def _shown(package: Package | None) -> str:
    return "%s-%s" % (package.version, package.build) if package else "(none)"
