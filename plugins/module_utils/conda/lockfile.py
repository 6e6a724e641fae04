# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Parse and write explicit lists of conda packages: one address per line, with its digest. Pure.

``@EXPLICIT`` is the one lock that every conda client reads and writes (``conda list --explicit --sha256``,
``micromamba env export --explicit``), and its order is free. The digest follows ``#``, with or without ``sha256:``.
Other lock files (pixi.lock, conda-lock.yml) are YAML and read by py-rattler.
"""

from __future__ import annotations

import re
from typing import Iterable

from ..core.errors import StackError
from .package import Package, package_of_url

MARK = "@EXPLICIT"
NOARCH = "noarch"
_SHA256 = re.compile(r"^(?:sha256:)?([0-9a-fA-F]{64})$")


def is_explicit(text: str) -> bool:
    """Tell whether a lock is an explicit list."""
    return any(line.strip() == MARK for line in text.splitlines())


def parse(text: str, path: str) -> list[Package]:
    """Return the packages of an explicit list, each with a sha256 and once; errors call the list ``path``."""
    packages: dict[str, Package] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#") or line == MARK:
            continue
        url, _mark, digest = line.partition("#")
        matched = _SHA256.match(digest)
        package = package_of_url(url, matched.group(1).lower() if matched else "")
        if package is None or "://" not in url:
            raise StackError(
                "Line %d of the lock %s is not the address of a conda package: %s." % (number, path, url),
                "read the lock", "Write it as <channel>/<subdir>/<name>-<version>-<build>.conda#<sha256>.", path,
            )
        if not package.sha256:
            message = "Line %d of the lock %s has no sha256: %s." % (number, path, url)
            remedy = "Write the list with digests, as `conda list --explicit --sha256` does."
            raise StackError(message, "read the lock", remedy, path)
        if package.name in packages:
            message = "The lock %s lists %s twice." % (path, package.name)
            raise StackError(message, "read the lock", "Leave one of them.", path)
        packages[package.name] = package
    if not packages:
        raise StackError("The lock %s lists no package." % path, "read the lock", "Check the file.", path)
    return list(packages.values())


def check_platform(packages: Iterable[Package], platform: str, path: str) -> None:
    """Refuse packages for machines of another kind."""
    for package in packages:
        if package.subdir not in (platform, NOARCH):
            message = "The lock %s is for %s, as its %s is, and this machine is %s." % (
                path, package.subdir, package.name, platform)
            remedy = "Lock it for this platform: the site's data say which its nodes have, as release_expect.machine."
            raise StackError(message, "read the lock", remedy, path)


def render(packages: Iterable[Package], platform: str) -> str:
    """Return the explicit list of packages, sorted by name."""
    lines = ["# platform: " + platform, MARK]
    lines += ["%s#sha256:%s" % (package.url, package.sha256) for package in sorted(packages)]
    return "".join(line + "\n" for line in lines)
