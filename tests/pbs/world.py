# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A PBS for tests: the real one of this machine, or the stand-ins that replay recorded answers.

TORCHSTACK_TEST_PBS chooses: ``real`` takes the commands on PATH, ``records`` the stand-ins; without it, the commands on
PATH are taken where qsub is there. A real one is used as an ordinary account, within what that may do; what needs its
manager is for the stand-ins alone. The directories of tests must be visible on its nodes.
"""

from __future__ import annotations

import json
import os
import pathlib
import pwd
import shlex
import shutil
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
COMMANDS = ("qsub", "qselect", "qstat", "qdel", "qrls", "qrerun")
RECORDS = min(path for path in (HERE / "records").iterdir())
"""The records that are replayed: those of the oldest version. A newer one has records where it answers otherwise."""

TOO_MANY_CORES = 4096

IS_REAL = (os.environ.get("TORCHSTACK_TEST_PBS") or ("real" if shutil.which("qsub") else "records")) == "real"
"""Whether the tests speak to a real PBS."""

MANAGED = pytest.mark.skipif(IS_REAL, reason="needs the manager of a PBS server")
"""For a test of what only the stand-ins can be made to do."""


class World:
    """The commands of a PBS in a directory of their own, and what tests do beside the product.

    Args:
        place: a directory for it.
    """

    def __init__(self, place: pathlib.Path) -> None:
        self.real = IS_REAL
        self.bin = place / "bin"
        self.bin.mkdir(parents=True)
        self.state = place / "state"
        self.state.mkdir()
        self.submissions = place / "submissions"
        """The identifier of each job that was accepted, a line each."""
        self.commands: dict[str, str] = {}
        for name in COMMANDS:
            if self.real:
                words = [str(shutil.which(name))]
            else:
                stand_in = str(HERE / "replay" / "stand_in.py")
                words = [sys.executable, stand_in, str(self.state), str(RECORDS), name]
            self.commands[name] = shlex.join(words)
            self.install(name, 'exec %s "$@"' % self.commands[name])
        self._install_qsub()

    def install(self, name: str, text: str) -> None:
        """Put a shell script in the place of a command."""
        path = self.bin / name
        path.write_text("#!/bin/sh\n%s\n" % text)
        path.chmod(0o755)

    def accepted(self) -> list[str]:
        """The identifiers of all jobs that were accepted."""
        return self.submissions.read_text().split() if self.submissions.exists() else []

    def jobs(self, prefix: str) -> list[str]:
        """By the server's own record, its history included, the identifiers of all jobs whose name begins like this."""
        job_ids = self.run("qselect", "-x", "-u", pwd.getpwuid(os.geteuid()).pw_name).stdout.split()
        shown = {job_id: self.run("qstat", "-x", "-f", "-F", "json", job_id).stdout for job_id in job_ids}
        return [job_id for job_id, text in shown.items() if '"%s' % prefix in text]

    def hold_qsub(self, moment: str) -> None:
        """Let qsub wait ``before`` it submits, or ``after`` that and before it answers."""
        words = [shlex.quote(str(self.state / name)) for name in ("qsub.new", "qsub", "go")]
        wait = "echo $$ > {0}; mv {0} {1}; until [ -e {2} ]; do sleep 0.05; done".format(*words)
        self._install_qsub(**{moment: wait})

    def held_qsub(self) -> int:
        """The process of the qsub that waits; 0 as long as there is none."""
        path = self.state / "qsub"
        return int(path.read_text()) if path.exists() else 0

    def let_qsub_go(self) -> None:
        """End the waiting of every qsub."""
        (self.state / "go").touch()

    def _install_qsub(self, before: str = "", after: str = "") -> None:
        """qsub that notes what was accepted, and runs shell commands before it submits and before it answers."""
        self.install("qsub", "\n".join([
            before,
            'answer=$(%s "$@") || exit' % self.commands["qsub"],
            'echo "$answer" >> %s' % shlex.quote(str(self.submissions)),
            after,
            'echo "$answer"',
        ]))

    def set(self, **settings: object) -> None:
        """Change settings of the replayed server: see SETTINGS of replay/cluster.py."""
        (self.state / "settings.new").write_text(json.dumps(settings))
        os.replace(self.state / "settings.new", self.state / "settings.json")

    def run(self, name: str, *arguments: str) -> subprocess.CompletedProcess:
        """Run a command of PBS as an operator would."""
        return subprocess.run(
            [self.bin / name, *arguments], capture_output=True, text=True, errors="replace", check=False
        )

    def job_ids(self, name: str) -> list[str]:
        """The jobs of this name that are not over."""
        return self.run("qselect", "-N", name).stdout.split()

    def end(self) -> None:
        """Delete what the tests have left in the replayed queue; jobs of a real PBS are deleted by their tests."""
        for path in self.state.glob("[0-9]*"):
            (path / "delete").touch()
