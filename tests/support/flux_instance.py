# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A real Flux of one ordinary account, for tests: several brokers on one machine, each of which believes to be a node.

``flux start --test-size`` starts them (flux-start(1), "TEST MODE"). Where the kernel lets an ordinary account have user
and UTS namespaces, each has a host name of its own, and so have its jobs. TORCHSTACK_TEST_FLUX names the command
``flux``, where it is not on PATH. Everything lies below one directory and ends with :meth:`FluxInstance.stop`.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
from typing import Any, Iterator

import pytest
from support.batch_steps import BatchSteps, quicken
from support.polling import eventually
from support.slurm_cluster import namespaces_allowed

NODE = """\
#!/bin/sh
# Broker number $PMI_RANK is started as a machine of its own.
exec unshare --map-current-user --keep-caps --uts sh -c 'hostname "n$PMI_RANK" && exec "$@"' sh "$@"
"""

QUEUES = """\
[queues.batch]
[queues.short]
[queues.short.policy.limits]
duration = "10m"
[policy.jobspec.defaults.system]
queue = "batch"
[tbon]
topo = "kary:0"
"""


def command() -> str:
    """The path of ``flux``; empty where there is none."""
    return os.environ.get("TORCHSTACK_TEST_FLUX") or shutil.which("flux") or ""


@contextlib.contextmanager
def running(root: pathlib.Path, **how: Any) -> Iterator[FluxInstance]:
    """An instance for as long as somebody uses it; skips the tests where there is no Flux."""
    if not command():
        pytest.skip("not installed: flux; TORCHSTACK_TEST_FLUX may name one")
    instance = FluxInstance(root, **how)
    try:
        instance.start()
        yield instance
    finally:
        instance.stop()


@contextlib.contextmanager
def steps_on(
    instance: FluxInstance, state: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[BatchSteps]:
    """Steps below a directory whose jobs run in an instance, in which no job is left afterwards."""
    quicken(monkeypatch)
    instance.be_found(monkeypatch)
    steps = BatchSteps(state, "flux", cores=1, bin=os.path.dirname(command()))
    # No other test's step has this digest, so that its jobs can be counted.
    steps.hello = "echo hi # %s" % state
    steps.gate = state.parent / "gate"
    steps.gated = "until test -e '%s'; do sleep 0.1; done" % steps.gate
    try:
        yield steps
    finally:
        instance.run("cancel", "--all", "--quiet", check=False)
        steps.stop()
        eventually(lambda: not instance.run("jobs", "--no-header", check=False).stdout, "the end of all jobs")


class FluxInstance:
    """One instance.

    Args:
        root: where it lies; its path has to be short, as it holds sockets.
        nodes: how many brokers it has, which are called ``n0``, ``n1``, ...
    """

    def __init__(self, root: pathlib.Path, nodes: int = 3) -> None:
        self.root, self.size = root, nodes
        self.uri = "local://%s/run/local-0" % root
        self.process: subprocess.Popen | None = None

    def start(self) -> None:
        """Bring it up, with what it remembers, until all nodes are free."""
        for name in ("run", "state"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        (self.root / "flux.toml").write_text(QUEUES)
        wrapper = self.root / "node"
        wrapper.write_text(NODE)
        wrapper.chmod(0o755)
        words = [
            command(), "start", "--test-size=%d" % self.size, "--test-exit-mode=leader", "--test-exit-timeout=1s",
            "--test-hosts=n[0-%d]" % (self.size - 1), "--test-rundir=%s" % (self.root / "run"),
            "--config-path=%s" % (self.root / "flux.toml"), "--setattr=statedir=%s" % (self.root / "state"),
            *(["--wrap=%s" % wrapper] if namespaces_allowed() else []),
            "sh", "-c", "flux queue start --all; exec sleep 100000",
        ]
        with open(self.root / "log", "ab") as log:
            self.process = subprocess.Popen(
                words, env=self.environment, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )
        eventually(lambda: self.free() == self.size, "all nodes are free", 120)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of its commands."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FLUX_")}
        return dict(kept, FLUX_URI=self.uri, FLUX_F58_FORCE_ASCII="1")

    def be_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the product's commands find it."""
        monkeypatch.setenv("FLUX_URI", self.uri)

    def run(self, *words: str, check: bool = True) -> subprocess.CompletedProcess:
        """Run a command of Flux."""
        return subprocess.run(
            [command(), *words], env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=check,
        )

    def free(self) -> int:
        """How many nodes are free."""
        found = self.run("resource", "list", "--no-header", "--states=free", "--format={nnodes}", check=False).stdout
        return sum(int(word) for word in found.split() if word.isdigit())

    def jobs(self, name: str = "") -> list[dict[str, Any]]:
        """Every job that the instance knows, whose name begins like this."""
        found = json.loads(self.run("jobs", "-a", "--json").stdout)["jobs"]
        return [job for job in found if job["name"].startswith(name)]

    def job(self, job_id: str) -> dict[str, Any]:
        """What the instance shows of a job."""
        return dict(json.loads(self.run("jobs", "--json", job_id).stdout))

    def submit(self, *words: str) -> str:
        """Submit a job that is not a step's, such as ``-n1 sleep 9``; its identifier."""
        return self.run("submit", *words).stdout.strip()

    def broker(self, rank: int) -> int:
        """The process of a broker."""
        return int(self.run("exec", "-r", str(rank), "flux", "getattr", "broker.pid").stdout)

    def kill(self, rank: int, signum: int = signal.SIGKILL) -> None:
        """Send a signal to a broker."""
        os.kill(self.broker(rank), signum)

    def shut_down(self) -> None:
        """End the instance in order; what it remembers is in its state."""
        self.run("shutdown", "--quiet", check=False)
        if self.process is not None:
            self.process.wait(60)

    def stop(self) -> None:
        """End all jobs and all brokers, whatever has gone wrong before."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        # Brokers, shells and the brokers of jobs have the place of the sockets in their environment.
        eventually(self._no_process_is_left, "the end of all processes of the instance")

    def _no_process_is_left(self) -> bool:
        mark, left = os.fsencode(self.root / "run"), False
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) != os.getpid():
                with contextlib.suppress(OSError):
                    place = pathlib.Path("/proc", entry)
                    told = (place / "environ").read_bytes() + (place / "cmdline").read_bytes()
                    if mark in told and (place / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                        left = True
                        os.kill(int(entry), signal.SIGKILL)
        return not left
