# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The wheels that parts of a dress are made of, on the login node."""

from __future__ import annotations

import hashlib
import pathlib
import re

from .checkout import CHECKOUT, PLACE
from .cluster import Cluster
from .nodes import LOGIN
from .progress import say
from .trouble import TroubleError

NAMED = re.compile(r"^# Wheels: (.+)$", re.MULTILINE)
"""The line of a part's program that names its locks, relative to it."""

INDEX = re.compile(r"^# Index: (\S+)$", re.MULTILINE)
"""The line of a lock that names where its wheels are, if pip is not set up for one that has them."""

INSTEAD = re.compile(r"^# Instead: (\S+), (.+)$", re.MULTILINE)
"""The line of a lock that names the lock to take where its own wheels cannot be had, and what that means."""

ONE_ATTEMPT = ("--timeout=10", "--retries=1")
"""Options of pip for an index that many machines cannot reach."""

WHEELS = "/shared/home/rollout/.cache/rehearsal-wheels"


def locks_of(program: pathlib.Path) -> list[pathlib.Path]:
    """List the locks of a part by its program, relative to the checkout."""
    named = NAMED.search(program.read_text())
    return [(program.parent / name).relative_to(CHECKOUT) for name in (named[1].split() if named else [])]


def fetch(cluster: Cluster, lock: pathlib.Path) -> str:
    """Have the wheels of a lock on the login node: from where pip looks, or from where the lock says.

    Args:
        cluster: it is up, with the checkout and its environment on the login node.
        lock: its path in the checkout.

    Returns:
        The directory that has them, and nothing else: those of the lock, or of the one to take instead.

    Raises:
        TroubleError: they cannot be had.
    """
    text = (CHECKOUT / lock).read_text()
    index, instead = INDEX.search(text), INSTEAD.search(text)
    place = "%s/%s" % (WHEELS, hashlib.sha256(text.encode()).hexdigest()[:12])
    words = [
        PLACE + "/.venv/bin/pip", "download", "--quiet", "--disable-pip-version-check", "--no-cache-dir", "--no-deps",
        "--only-binary=:all:", "--require-hashes", "--dest=" + place, "--requirement=%s/%s" % (PLACE, lock),
    ]
    fetched = cluster.execute(LOGIN, *words, user="rollout")
    if fetched.returncode != 0 and index:
        fetched = cluster.execute(LOGIN, *words, "--index-url=" + index[1], *ONE_ATTEMPT, user="rollout")
    if fetched.returncode == 0:
        return place
    if instead:
        nowhere = "neither where pip looks nor at " + index[1] if index else "not where pip looks"
        say("   The wheels of %s are to be had %s. Taking %s: %s" % (lock, nowhere, instead[1], instead[2]))
        return fetch(cluster, lock.with_name(instead[1]))
    complaint = fetched.stderr.decode(errors="replace").strip()
    raise TroubleError("The wheels of %s, a part of the dress, cannot be fetched: %s" % (lock, complaint))
