# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Explicit lists of conda packages: one address per line, each with its digest.

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
_SHA256 = re.compile(r"^(?:sha256:)?([0-9a-fA-F]{64})$")


def is_explicit(text: str) -> bool:
    """Whether a lock is an explicit list."""
    return any(line.strip() == MARK for line in text.splitlines())


def parse(text: str, path: str) -> list[Package]:
    """The packages of an explicit list.

    Args:
        text: what it holds.
        path: how errors call it.

    Raises:
        StackError: a line is no package with a sha256, or a package is listed twice.
    """
    packages = {}  # type: dict[str, Package]
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
            raise StackError(
                "Line %d of the lock %s has no sha256: %s." % (number, path, url), "read the lock",
                "Write the list with digests, as `conda list --explicit --sha256` does.", path,
            )
        if package.name in packages:
            raise StackError(
                "The lock %s lists %s twice." % (path, package.name), "read the lock", "Leave one of them.", path
            )
        packages[package.name] = package
    if not packages:
        raise StackError("The lock %s lists no package." % path, "read the lock", "Check the file.", path)
    return list(packages.values())


def render(packages: Iterable[Package], platform: str) -> str:
    """The explicit list of packages, sorted by name."""
    lines = ["# platform: " + platform, MARK]
    lines += ["%s#sha256:%s" % (package.url, package.sha256) for package in sorted(packages)]
    return "".join(line + "\n" for line in lines)
