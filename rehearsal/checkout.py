# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The checkout on the login node: a copy in the rollout account's home, with an environment of its own."""

from __future__ import annotations

import os
import pathlib
import subprocess
import tempfile

from .archives import write_archive
from .cluster import Cluster
from .nodes import LOGIN
from .progress import told
from .trouble import TroubleError

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
PLACE = "/shared/home/rollout/torchstack"
REPOSITORIES = "/shared/software/sources"
LEFT_OUT = (".git", ".venv", ".cache", ".ansible", "__pycache__", "collections")
UNPACK = """
set -eu
place=$1
rm -rf "$place.new"
mkdir -p "$place.new"
tar -xf - -C "$place.new"
if [ -d "$place/.venv" ]; then mv "$place/.venv" "$place.new/.venv"; fi
rm -rf "$place"
mv "$place.new" "$place"
"""


def files_of(top: pathlib.Path) -> list[str]:
    """List the files that belong to a repository, with what is not committed yet, relative to it; without git, all."""
    if (top / ".git").exists():
        command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        try:
            listed = subprocess.run(command, cwd=top, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        except FileNotFoundError:
            listed = None
        if listed is not None and listed.returncode == 0:
            names = os.fsdecode(listed.stdout).split("\0")
            return sorted(name for name in names if name and os.path.lexists(top / name))
    found = (path.relative_to(top) for path in top.rglob("*") if not path.is_dir())
    return sorted(str(path) for path in found if not set(path.parts) & set(LEFT_OUT))


def send_checkout(cluster: Cluster) -> None:
    """Lay the checkout's files onto the login node; its environment there is kept."""
    with told("Copying the checkout to the login node"):
        send_files(cluster, CHECKOUT, PLACE)


def send_files(cluster: Cluster, top: pathlib.Path, place: str) -> None:
    """Lay the files of a repository onto the login node, in place of those that were there."""
    with tempfile.TemporaryFile() as stream:
        write_archive(stream, top, files_of(top))
        stream.seek(0)
        container = cluster.names.container(LOGIN)
        words = ("sh", "-c", UNPACK, "unpack", place)
        cluster.podman.ask("exec", "--interactive", "--user=rollout", container, *words, source=stream)


def make_environment(cluster: Cluster) -> None:
    """Make the environment that rollouts run in, there, as an operator does.

    Raises:
        TroubleError: pip could not; with its last lines.
    """
    with told("Making the environment of rollouts on the login node"):
        made = cluster.execute(LOGIN, "make", "--directory=" + PLACE, "env", user="rollout")
    if made.returncode != 0:
        last = (made.stdout + made.stderr).decode(errors="replace").strip().splitlines()[-10:]
        raise TroubleError(
            "The login node could not make the environment of rollouts:\n  %s\nIts pip is set up as this account's is; "
            "REHEARSAL_MOUNTS names further paths that it should see." % "\n  ".join(last)
        )


def make_sources(cluster: Cluster) -> None:
    """Make the repositories of the sources that rehearsals build, as an account owns what it fetches from.

    Raises:
        TroubleError: they could not be made.
    """
    make = ["env", "--chdir=" + PLACE, ".venv/bin/python", "-B", "-m", "rehearsal", "sources", REPOSITORIES]
    # They have submodules that are directories, which git refuses of sources that are not one's own.
    trust = ["git", "config", "--global", "protocol.file.allow", "always"]
    for words in (make, trust):
        done = cluster.execute(LOGIN, *words, user="rollout")
        if done.returncode != 0:
            raise TroubleError(done.stderr.decode(errors="replace").strip())
