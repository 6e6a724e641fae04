# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What identifies a conda package, and what becomes of a prefix when other packages are wanted in it.

Nothing here touches a file system or a solver: packages in, transaction out.
"""

from __future__ import annotations

import re
from typing import Iterable, Mapping, NamedTuple

_ARCHIVE = re.compile(r"^(?P<name>.+)-(?P<version>[^-]+)-(?P<build>[^-]+)(?P<suffix>\.conda|\.tar\.bz2)$")


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
        """Its name, version and build: how archives, cache entries and records of it are called."""
        return "%s-%s-%s" % (self.name, self.version, self.build)

    @property
    def identity(self) -> tuple[str, str, str, str, str]:
        """What makes it this package and no other: where it was fetched from does not."""
        return (self.name, self.version, self.build, self.subdir, self.sha256)

    def as_result(self) -> dict[str, str]:
        """Plain data for the module's result."""
        return dict(self._asdict())


class Change(NamedTuple):
    """A package that is replaced by another of the same name, or by itself where its files are damaged."""

    before: Package
    after: Package

    def as_result(self) -> dict[str, str]:
        """Plain data for the module's result."""
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
        """Whether there is nothing to do."""
        return not (self.added or self.removed or self.changed or self.repaired)


def package_of_url(url: str, sha256: str) -> Package | None:
    """The package whose archive lies at ``<channel>/<subdir>/<name>-<version>-<build>.conda`` (or ``.tar.bz2``).

    Returns:
        None where the address is not one of a conda package.
    """
    parts = url.rsplit("/", 2)
    matched = _ARCHIVE.match(parts[-1])
    if len(parts) < 3 or matched is None:
        return None
    return Package(
        matched.group("name"), matched.group("version"), matched.group("build"), parts[1], parts[0], url, sha256
    )


def by_name(packages: Iterable[Package]) -> dict[str, Package]:
    """Packages by name, of which a prefix holds one each."""
    return {package.name: package for package in packages}


def plan(installed: Iterable[Package], wanted: Iterable[Package], damaged: Iterable[str] = ()) -> Transaction:
    """The transaction that makes a prefix hold exactly the packages wanted.

    Args:
        installed: what it holds.
        wanted: what it shall hold.
        damaged: names of packages whose files are not as their records say; they are installed again.
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


def described(package: Package) -> str:
    """A line for the difference that an operator reads."""
    return "%s %s %s (%s/%s)" % (package.name, package.version, package.build, package.channel, package.subdir)


def render(transaction: Transaction) -> dict[str, str]:
    """The transaction as a difference of two texts."""
    before = [*transaction.removed, *(change.before for change in transaction.changed)]
    after = [*transaction.added, *(change.after for change in transaction.changed)]
    sides = {"before": [described(one) for one in before], "after": [described(one) for one in after]}
    for package in transaction.repaired:
        sides["before"].append(described(package) + ", damaged")
        sides["after"].append(described(package))
    return {side: "".join(line + "\n" for line in sorted(lines)) for side, lines in sides.items()}


def as_result(transaction: Transaction) -> dict[str, list[dict[str, str]]]:
    """Plain data for the module's result."""
    return {
        "added": [package.as_result() for package in transaction.added],
        "removed": [package.as_result() for package in transaction.removed],
        "changed_packages": [change.as_result() for change in transaction.changed],
        "repaired": [package.as_result() for package in transaction.repaired],
    }


def restored(package: Package, replaced: Mapping[str, str]) -> Package:
    """The package under its channel's own address, where a mirror's was used in its place.

    Args:
        package: as it was found on the mirror.
        replaced: the address that each mirror stands for, by the mirror's.
    """
    channel = replace_start(package.channel, replaced)
    return package._replace(channel=channel, url=replace_start(package.url, replaced))


def replace_start(url: str, replaced: Mapping[str, str]) -> str:
    """An address with its start replaced, by the longest one that fits; a start ends where a part of a path ends."""
    for start in sorted(replaced, key=len, reverse=True):
        if url == start or url.startswith(start.rstrip("/") + "/"):
            return replaced[start].rstrip("/") + url[len(start.rstrip("/")):]
    return url
