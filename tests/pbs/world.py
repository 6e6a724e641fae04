# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A PBS for tests: the real one of this machine, or the stand-ins that replay recorded answers.

TORCHSTACK_TEST_PBS chooses: ``real`` takes the commands on PATH, ``records`` the stand-ins, and the directory of a PBS
one that is started from there (support/pbs_cluster.py); without it, the commands on PATH are taken where qsub is there.
Those on PATH are used as an ordinary account, within what that may do: what needs the manager is for the others. The
directories of tests must be visible on its nodes.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import pwd
import shlex
import shutil
import subprocess
import sys
from typing import Iterator

import pytest
from support import pbs_cluster
from support.batch_histories import HeldCommand
from support.batch_steps import BatchSteps, quicken

from .scenarios import HOOK

HERE = pathlib.Path(__file__).resolve().parent
COMMANDS = ("qsub", "qselect", "qstat", "qdel", "qrls", "qrerun")
RECORDS = min(path for path in (HERE / "records").iterdir())
"""The records that are replayed: those of the oldest version. A newer one has records where it answers otherwise."""

TOO_MANY_CORES = 4096

CHOICE = os.environ.get(pbs_cluster.VARIABLE) or ("real" if shutil.which("qsub") else "records")
if CHOICE not in ("real", "records") and not pbs_cluster.is_named():
    raise ValueError(
        "%s is %r; it has to be real, records or the path of a PBS (docs/reference/pbs.md)." % (
            pbs_cluster.VARIABLE, CHOICE))

IS_REAL = CHOICE == "real"
"""Whether the tests speak to the PBS of this machine."""

MANAGED = pytest.mark.skipif(IS_REAL, reason="needs the manager of a PBS server")
"""For a test of what an ordinary account cannot do to a PBS."""


@contextlib.contextmanager
def server(root: pathlib.Path) -> Iterator[pbs_cluster.PbsCluster | None]:
    """The PBS that is started for tests; None where they speak to another one."""
    if not pbs_cluster.is_named():
        yield None
        return
    with pbs_cluster.running(root) as cluster:
        hook = root / "hook.py"
        hook.write_text(HOOK)
        cluster.manage(
            "create hook account event=queuejob\nimport hook account application/x-python default %s\n" % hook)
        yield cluster


@contextlib.contextmanager
def steps_on(world: World, place: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BatchSteps]:
    """Steps below a directory, run as jobs of a PBS, of which none is left afterwards."""
    quicken(monkeypatch)
    steps = BatchSteps(place / "steps", "pbs", bin=str(world.bin), python=sys.executable)
    # No other test's step has these digests, so that its jobs can be counted.
    steps.hello = "echo built # %s" % place
    steps.gate = place / "gate"
    steps.gated = "until test -e '%s'; do sleep 0.1; done" % steps.gate
    yield steps
    for job_id in world.accepted():
        world.run("qdel", job_id)
    steps.stop()


class World:
    """The commands of a PBS in a directory of their own, and what tests do beside the product.

    Args:
        place: a directory for it.
        cluster: the PBS that :func:`server` has started.
    """

    def __init__(self, place: pathlib.Path, cluster: pbs_cluster.PbsCluster | None = None) -> None:
        self.real = IS_REAL
        self.cluster = cluster
        self.changed: set[str] = set()
        self.bin = place / "bin"
        self.bin.mkdir(parents=True)
        self.state = place / "state"
        self.state.mkdir()
        self.submissions = place / "submissions"
        """The identifier of each job that was accepted, a line each."""
        self.commands: dict[str, str] = {}
        for name in COMMANDS:
            if cluster is not None:
                words = cluster.command(name, root=name == "qrerun")
            elif self.real:
                words = [str(shutil.which(name))]
            else:
                stand_in = str(HERE / "replay" / "stand_in.py")
                words = [sys.executable, stand_in, str(self.state), str(RECORDS), name]
            self.commands[name] = shlex.join(words)
            self.well(name)
        self.qsub = HeldCommand(self.state, self.commands["qsub"])
        self.hold_qsub("")

    def install(self, name: str, text: str) -> None:
        """Put a shell script in the place of a command."""
        path = self.bin / name
        new = self.bin.parent / (name + ".new")
        new.write_text("#!/bin/sh\n%s\n" % text)
        new.chmod(0o755)
        new.replace(path)

    def well(self, name: str) -> None:
        """Put a command back into its place."""
        self.install(name, 'exec %s "$@"' % self.commands[name])

    def accepted(self) -> list[str]:
        """The identifiers of all jobs that were accepted."""
        return self.submissions.read_text().split() if self.submissions.exists() else []

    def jobs(self, prefix: str) -> list[str]:
        """By the server's own record, its history included, the identifiers of all jobs whose name begins like this."""
        job_ids = self.run("qselect", "-x", "-u", pwd.getpwuid(os.geteuid()).pw_name).stdout.split()
        shown = {job_id: self.run("qstat", "-x", "-f", "-F", "json", job_id).stdout for job_id in job_ids}
        return [job_id for job_id, text in shown.items() if '"%s' % prefix in text]

    def hold_qsub(self, moment: str, pause: float = 0.0) -> None:
        """Let qsub wait at one of MOMENTS, or a while at each; it notes what was accepted."""
        note = 'echo "$answer" >> %s' % shlex.quote(str(self.submissions))
        self.install("qsub", self.qsub.script(moment, note, pause))

    def set(self, **settings: object) -> None:
        """Change settings of a server of tests: see SETTINGS of replay/cluster.py."""
        if self.cluster is not None:
            self._set_up(self.cluster, **settings)
            return
        (self.state / "settings.new").write_text(json.dumps(settings))
        os.replace(self.state / "settings.new", self.state / "settings.json")

    def _set_up(
        self, cluster: pbs_cluster.PbsCluster, up: bool | None = None, **attributes: object
    ) -> None:
        names = {"history": "job_history_enable", "starts": "scheduling"}
        for name, value in attributes.items():
            self.changed.add(name)
            cluster.manage("set server %s=%s\n" % (names[name], value))
        if up is False:
            cluster.kill("server")
        elif up:
            cluster.start_daemon("server")

    def lose_node_of(self, job_id: str) -> None:
        """Take away the node that runs a job."""
        if self.cluster is None:
            (self.state / job_id.partition(".")[0] / "node").touch()
        else:
            self.cluster.kill_host(self.cluster.node_of(job_id))

    def run(self, name: str, *arguments: str) -> subprocess.CompletedProcess:
        """Run a command of PBS as an operator would."""
        return subprocess.run(
            [self.bin / name, *arguments], capture_output=True, text=True, errors="replace", check=False
        )

    def job_ids(self, name: str) -> list[str]:
        """The jobs of this name that are not over."""
        return self.run("qselect", "-N", name).stdout.split()

    def end(self) -> None:
        """Leave nothing in the queue of a server of tests; jobs of a real PBS are deleted by their tests."""
        if self.cluster is not None:
            for name in sorted(self.changed):
                self.set(**{name: True})
            self.cluster.clear()
        for path in self.state.glob("[0-9]*"):
            (path / "delete").touch()
