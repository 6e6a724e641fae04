# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What this account's git takes directories of this machine for, so that git on the login node does as well.

As a person without a network sets it: ``git config --global url.file:///mirror/.insteadOf https://github.com/``.
"""

from __future__ import annotations

import os
import re
import subprocess
import urllib.parse
from typing import NamedTuple

ASK = ("git", "config", "-z", "--get-regexp", r"^url\..*\.insteadof$")
ENTRY = re.compile(r"url\.(.*)\.insteadof\n(.*)", re.DOTALL)


class GitSettings(NamedTuple):
    """A configuration file of git, and the directories of this machine that it names."""

    configuration: str
    mounts: tuple[str, ...]


def of_this_account() -> GitSettings:
    """What git goes by here, outside of any repository."""
    kept = {name: value for name, value in os.environ.items() if name not in ("GIT_DIR", "GIT_WORK_TREE")}
    try:
        said = subprocess.run(ASK, cwd="/", env=kept, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except FileNotFoundError:
        return settings_of("")
    return settings_of(os.fsdecode(said.stdout))


def settings_of(listed: str) -> GitSettings:
    """Settings from what git-config(1) lists; those that lead elsewhere stay here, with their logins.

    Args:
        listed: names and values as ``-z`` has them.
    """
    found: dict[str, list[str]] = {}
    for entry in filter(None, map(ENTRY.fullmatch, listed.split("\0"))):
        if os.path.isdir(_path(entry[1])):
            found.setdefault(entry[1], []).append(entry[2])
    if not found:
        return GitSettings("", ())
    # The mirrors belong to whoever made them, and git fetches from nobody else's directories unless it is told.
    lines = ["[safe]", "\tdirectory = *"]
    for base, addresses in sorted(found.items()):
        lines += ["[url %s]" % _quoted(base), *("\tinsteadOf = " + _quoted(address) for address in addresses)]
    return GitSettings("\n".join(lines) + "\n", tuple(sorted({_path(base) for base in found})))


def _path(base: str) -> str:
    """The directory that an address begins with; empty where it is none of this machine."""
    if base.startswith("file://"):
        return os.path.normpath(urllib.parse.unquote(urllib.parse.urlsplit(base).path))
    return os.path.normpath(base) if base.startswith("/") else ""


def _quoted(text: str) -> str:
    return '"%s"' % text.replace("\\", "\\\\").replace('"', '\\"')
