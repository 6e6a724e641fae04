# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Podman, as root, with the options that this machine needs."""

from __future__ import annotations

import functools
import json
import os
import resource
import shutil
import subprocess
from collections.abc import Sequence
from typing import IO, Any

from .trouble import MissingError, TroubleError

SYSTEM = "/usr/sbin:/sbin"
"""Directories of programs that the PATH of an ordinary account may lack."""

MOST_OPEN_FILES = 65536
MOST_PROCESSES = 32768
INSTALL = (
    "install it (Debian and Ubuntu: apt-get install podman runc netavark aardvark-dns iptables mmdebstrap uidmap; "
    "Ubuntu: debian-archive-keyring too)"
)
"""All that a rehearsal is made with, as who lacks one may lack another."""


def find_program(name: str, remedy: str) -> str:
    """The path of a program, on the PATH or in :data:`SYSTEM`.

    Raises:
        MissingError: it is not there.
    """
    path = shutil.which(name, path="%s:%s" % (os.environ.get("PATH", os.defpath), SYSTEM))
    if path is None:
        raise MissingError("There is no %s on this machine, which the rehearsal is made with: %s." % (name, remedy))
    return path


class Podman:
    """Runs podman commands; through sudo where the caller is not root."""

    @functools.cached_property
    def words(self) -> list[str]:
        """What every command begins with."""
        program = [*self._as_root(), find_program("podman", INSTALL)]
        find_program("iptables", INSTALL)  # what podman's networks are made with
        return [*program, *self._options(program)]

    @staticmethod
    def _as_root() -> list[str]:
        if os.geteuid() == 0:
            return []
        return [find_program("sudo", "install it, or run this as root; the containers need a bridge network"), "-n"]

    @staticmethod
    def _options(program: Sequence[str]) -> list[str]:
        """Global options for machines on which podman's own choice does not work.

        Without systemd as the first process nobody manages control groups or keeps a journal, and crun refuses a
        machine that has both versions of control groups mounted (its message: "cgroups in hybrid mode not supported").
        """
        options = []
        if not os.path.isdir("/run/systemd/system"):
            options += ["--cgroup-manager=cgroupfs", "--events-backend=file"]
        answer = subprocess.run(
            [*program, *options, "info", "--format=json"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )
        if answer.returncode != 0:
            complaint = answer.stderr.strip().rstrip(".")
            remedy = "; if a program of podman's is missing, " + INSTALL
            if complaint.startswith("sudo:"):
                remedy = (
                    " as root: run this as root, or allow `sudo -n podman` "
                    "(docs/tutorials/rehearse-a-site.md has the line for it)"
                )
            raise MissingError(
                "`%s info` failed: %s. The rehearsal needs podman%s." % (" ".join(program), complaint, remedy)
            )
        host = json.loads(answer.stdout)["host"]
        if host["ociRuntime"]["name"] == "crun" and host["cgroupVersion"] != "v2":
            options.append("--runtime=" + find_program("runc", INSTALL))
        return options

    @staticmethod
    def limits() -> list[str]:
        """Options of `run` that ask for no more open files and processes than this process could have.

        Podman asks for a million by default, which is refused where root may not raise its limits (no
        CAP_SYS_RESOURCE).
        """
        files = _at_most(resource.RLIMIT_NOFILE, MOST_OPEN_FILES)
        processes = _at_most(resource.RLIMIT_NPROC, MOST_PROCESSES)
        return ["--ulimit=nofile=%d:%d" % (files, files), "--ulimit=nproc=%d:%d" % (processes, processes)]

    def run(
        self, *arguments: str, data: bytes | None = None, source: IO[bytes] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command to its end, without judging it.

        Args:
            arguments: the command, as in ``"network", "ls"``.
            data: what it reads.
            source: a stream that it reads instead.
        """
        given: dict[str, Any] = {"input": data}
        if data is None:
            given = {"stdin": source or subprocess.DEVNULL}
        return subprocess.run([*self.words, *arguments], capture_output=True, check=False, **given)

    def ask(self, *arguments: str, data: bytes | None = None, source: IO[bytes] | None = None) -> str:
        """Run a command that has to succeed, and return what it printed.

        Raises:
            TroubleError: it failed; with its own words.
        """
        done = self.run(*arguments, data=data, source=source)
        if done.returncode != 0:
            words = (done.stderr or done.stdout).decode(errors="replace").strip()
            raise TroubleError("`podman %s` failed: %s" % (" ".join(arguments[:3]), words))
        return done.stdout.decode(errors="replace")

    def exists(self, kind: str, name: str) -> bool:
        """Whether there is a container, image, network or volume of that name."""
        return self.run(kind, "exists", name).returncode == 0

    def inspect(self, kind: str, name: str) -> dict[str, Any]:
        """All that podman knows of a container, image, network or volume."""
        found = json.loads(self.ask(kind, "inspect", name))
        return dict(found[0])


def _at_most(limit: int, most: int) -> int:
    """This process's hard limit, and no more than ``most``."""
    hard = resource.getrlimit(limit)[1]
    return most if hard == resource.RLIM_INFINITY else min(hard, most)
