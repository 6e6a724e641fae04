# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Where the distribution's packages come from: where this machine's own apt gets them, if it is the same one."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

DISTRIBUTION = "Debian"
SUITE = "bookworm"
TARGETS = ("apt-get", "indextargets", "--format", "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(CODENAME)|$(ORIGIN)")
PACKAGE_LISTS = "Created-By: Packages"
SETTINGS = ("Acquire::http::Proxy", "Acquire::https::Proxy", "Acquire::Check-Date", "Acquire::Check-Valid-Until")


def sources() -> list[str]:
    """Lines of sources.list(5) for the suite and its updates; empty where this machine has no list of its packages."""
    return sources_among(_said(*TARGETS, PACKAGE_LISTS).splitlines())


def sources_among(targets: Sequence[str]) -> list[str]:
    """Those of the suite among the index targets of apt-get(8).

    Args:
        targets: URI, release, component, code name and origin of each, with bars between them.

    Returns:
        Nothing where the suite itself is not among them, or only at an address that a new system does not see, such as
        a directory of this machine.
    """
    found = []
    for uri, release, component, codename, origin in (target.split("|") for target in targets):
        of_the_suite = codename == SUITE or codename.startswith(SUITE + "-")
        if origin == DISTRIBUTION and of_the_suite and uri.startswith(("http://", "https://")):
            found.append((codename, "deb %s %s %s" % (uri, release, component)))
    complete = SUITE in (codename for codename, _line in found)
    return sorted({line for _codename, line in found}) if complete else []


def settings() -> list[str]:
    """The lines of apt.conf(5) by which this machine's apt goes through a proxy, or takes an archive as it once was."""
    lines = _said("apt-config", "dump", "--no-empty", "--format", '%F "%v"%n').splitlines()
    return [line for line in lines if line.startswith(SETTINGS)]


def _said(*words: str) -> str:
    """What a command of apt printed; nothing where there is none, or where it failed."""
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout if done.returncode == 0 else ""
