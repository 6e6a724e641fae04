# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Identify conda packages, and plan the transaction between two sets of them. Pure.

Nothing here touches a file system or a solver: packages in, transaction out.
"""

from __future__ import annotations

import re
from typing import Iterable, Mapping, NamedTuple

_ARCHIVE = re.compile(r"^(.+)-([^-]+)-([^-]+)(?:\.conda|\.tar\.bz2)$")


class Package(NamedTuple):
    """One package, as a channel, a lock or a prefix names it."""

    name: str
    version: str
    build: str
    subdir: str
    channel: str
    url: str
    sha256: str

    @property
    def stem(self) -> str:
        """Return its name, version and build: how archives, cache entries and records of it are called."""
        return "%s-%s-%s" % (self.name, self.version, self.build)

    @property
    def identity(self) -> tuple[str, str, str, str, str]:
        """Tell what makes it this package and no other: where it was fetched from does not."""
        return (self.name, self.version, self.build, self.subdir, self.sha256)

    def as_result(self) -> dict[str, str]:
        """Return plain data for the module's result."""
        return dict(self._asdict())


class Change(NamedTuple):
    """A package that is replaced by another of the same name, or by itself where its files are damaged."""

    before: Package
    after: Package

    def as_result(self) -> dict[str, str]:
        """Return plain data for the module's result."""
        result = {"name": self.after.name, "sha256": self.after.sha256}
        for key in ("version", "build", "channel"):
            result[key + "_before"] = getattr(self.before, key)
            result[key] = getattr(self.after, key)
        return result


class Transaction(NamedTuple):
    """The way from what a prefix holds to what it shall hold."""

    added: tuple[Package, ...]
    removed: tuple[Package, ...]
    changed: tuple[Change, ...]
    repaired: tuple[Package, ...]

    @property
    def is_empty(self) -> bool:
        """Tell whether there is nothing to do."""
        return not (self.added or self.removed or self.changed or self.repaired)


def package_of_url(url: str, sha256: str) -> Package | None:
    """Return the package of an archive's address; None where that is not one of a conda package.

    That is ``<channel>/<subdir>/<name>-<version>-<build>.conda`` (or ``.tar.bz2``).
    """
    parts = url.rsplit("/", 2)
    matched = _ARCHIVE.match(parts[-1])
    if len(parts) < 3 or matched is None:
        return None
    name, version, build = matched.groups()
    return Package(name, version, build, parts[1], parts[0], url, sha256)


def by_name(packages: Iterable[Package]) -> dict[str, Package]:
    """Map names to packages, of which a prefix holds one each."""
    return {package.name: package for package in packages}


def plan_transaction(
    installed: Iterable[Package], wanted: Iterable[Package], damaged: Iterable[str] = ()
) -> Transaction:
    """Return the transaction that makes a prefix hold exactly the packages wanted.

    ``damaged`` names packages whose files are not as their records say; they are installed again.
    """
    have, want = by_name(installed), by_name(wanted)
    both = sorted(set(have) & set(want))
    broken = set(damaged)
    return Transaction(
        added=tuple(want[name] for name in sorted(set(want) - set(have))),
        removed=tuple(have[name] for name in sorted(set(have) - set(want))),
        changed=tuple(Change(have[n], want[n]) for n in both if have[n].identity != want[n].identity),
        repaired=tuple(want[n] for n in both if have[n].identity == want[n].identity and n in broken),
    )


def describe_package(package: Package) -> str:
    """Return a line for the difference that an operator reads."""
    return "%s %s %s (%s/%s)" % (package.name, package.version, package.build, package.channel, package.subdir)


def render_transaction(transaction: Transaction) -> dict[str, str]:
    """Return the transaction as a difference of two texts."""
    before = [*transaction.removed, *(change.before for change in transaction.changed)]
    after = [*transaction.added, *(change.after for change in transaction.changed)]
    sides = {"before": [describe_package(one) for one in before], "after": [describe_package(one) for one in after]}
    for package in transaction.repaired:
        sides["before"].append(describe_package(package) + ", damaged")
        sides["after"].append(describe_package(package))
    return {side: "".join(line + "\n" for line in sorted(lines)) for side, lines in sides.items()}


def transaction_as_result(transaction: Transaction) -> dict[str, list[dict[str, str]]]:
    """Return plain data for the module's result."""
    return {
        "added": [package.as_result() for package in transaction.added],
        "removed": [package.as_result() for package in transaction.removed],
        "changed_packages": [change.as_result() for change in transaction.changed],
        "repaired": [package.as_result() for package in transaction.repaired],
    }


def restore_channel(package: Package, replaced: Mapping[str, str]) -> Package:
    """Return the package under its channel's own address, where that of a mirror (``replaced``) stood for it."""
    channel = replace_start(package.channel, replaced)
    return package._replace(channel=channel, url=replace_start(package.url, replaced))


def replace_start(url: str, replaced: Mapping[str, str]) -> str:
    """Replace the start of an address, up to the end of a part of its path, by the longest one that fits."""
    for start in sorted(replaced, key=len, reverse=True):
        if url == start or url.startswith(start.rstrip("/") + "/"):
            return replaced[start].rstrip("/") + url[len(start.rstrip("/")):]
    return url
