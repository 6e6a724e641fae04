# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A site's data as Ansible has them on this machine: their variables, and what is wrong with them."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from .checkout import CHECKOUT
from .progress import told
from .site import Site
from .trouble import TroubleError

INSTALLED = ("ansible_collections", "hpcml", "torchstack")
"""The end of the path of a collection that is installed."""

FRAME = re.compile(r"(PLAY|TASK|RUNNING HANDLER) \[|(ok|changed|skipping|included): ")
ENDED = re.compile(r"fatal: |\[ERROR\]: |PLAY RECAP ")
"""Lines that ansible-playbook prints around what is said, and at its end."""

Variables = dict[str, dict[str, Any]]
"""By host."""


def variables(site: Site, *inventories: str) -> Variables:
    """Ask ansible-inventory for the variables of each host; what an inventory names last wins.

    Raises:
        TroubleError: the inventories cannot be read.
    """
    answer = _ansible(site, "ansible-inventory", *_options(inventories), "--list")
    if answer.returncode != 0:
        raise TroubleError("ansible-inventory failed: %s" % answer.stderr.strip())
    known: Variables = dict(json.loads(answer.stdout).get("_meta", {}).get("hostvars", {}))
    return known


def lint(site: Site, arguments: Sequence[str]) -> None:
    """Find all that is wrong with the data and the release, before a node is made.

    Args:
        site: its data.
        arguments: further arguments of ansible-playbook that say what is rolled out.

    Raises:
        TroubleError: something is wrong.
    """
    named = ["-e", "torchstack_host=" + site.name] if site.name else []
    with told("Looking at the site's data"):
        playbook = str(CHECKOUT / "playbooks" / "lint.yml")
        done = _ansible(site, "ansible-playbook", *_options([site.own, *site.over]), playbook, *named, *arguments)
    if done.returncode != 0:
        raise TroubleError(mistakes_of(done.stdout) or (done.stdout + done.stderr).strip())


def mistakes_of(printed: str) -> str:
    """Return what lint has said, out of what ansible-playbook prints around it; empty where that is not it."""
    lines = itertools.takewhile(lambda line: not ENDED.match(line), printed.splitlines())
    return "\n".join(line for line in lines if line.strip() and not FRAME.match(line))


def _options(inventories: Sequence[str]) -> list[str]:
    return [word for path in inventories for word in ("-i", path)]


def _ansible(site: Site, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the Ansible that belongs to this interpreter, or else of PATH, where the site's settings are.

    Raises:
        TroubleError: there is none.
    """
    found = shutil.which(program, path=os.path.dirname(sys.executable)) or shutil.which(program)
    if found is None:
        raise TroubleError("There is no %s on PATH, which reads the site's data: install ansible-core." % program)
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": _collections(), "ANSIBLE_NOCOLOR": "1"}
    return subprocess.run(
        [found, *words], cwd=site.top, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, check=False)


def _collections() -> str:
    """Return the path of collections that has the one that this file is a part of, whatever other one is installed."""
    if CHECKOUT.parts[-3:] == INSTALLED:
        return str(CHECKOUT.parents[2])
    # A clone is linked into its environments.
    linked = [pathlib.Path(sys.prefix, "collections"), CHECKOUT / ".venv" / "collections"]
    return ":".join(str(path) for path in linked if path.is_dir())
