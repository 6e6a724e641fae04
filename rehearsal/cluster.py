# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The cluster comes up and goes away; what is there already is taken as it is."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

from . import distribution, git_settings, pip_settings
from .archives import archive_of, write_programs
from .batch_system import BatchSystem
from .image import ensure_image, recipe_digest
from .nodes import CONTROL, LOGIN, Names, addresses
from .podman import Podman
from .progress import say, told
from .slurm import Slurm
from .trouble import TroubleError

LABEL = "torchstack.rehearsal"
DIGEST = "torchstack.rehearsal.digest"
SHARED = "/shared"
DEVICES = {"/dev/fuse": "0666"}
"""Devices of this machine that the nodes have where it has them, with their modes: through /dev/fuse an ordinary
account mounts the image of a container."""

READY_WITHIN = 600.0
"""Seconds that the services of all nodes may take; some on an idle machine, many on a busy one."""


class Cluster:
    """One rehearsal cluster on this machine.

    Args:
        podman: how podman is run here.
        names: what its parts are called.
        mounts: paths of this machine that the login nodes see read-only, at the same place.
        system: its batch system; None: Slurm.
    """

    def __init__(self, podman: Podman, names: Names, mounts: Sequence[str] = (), system: BatchSystem | None = None):
        self.podman = podman
        self.names = names
        self.system = system or Slurm()
        self.pip = pip_settings.of_this_account()
        self.git = git_settings.of_this_account()
        self.mounts = sorted({*self.pip.mounts, *self.git.mounts, *mounts})
        self._label = "--label=%s=%s" % (LABEL, names.cluster)
        self._mine = "--filter=label=%s=%s" % (LABEL, names.cluster)

    def up(self) -> bool:
        """Bring up what is not up; whether anything had to be done.

        Raises:
            TroubleError: another recipe is up, or a part does not come up.
        """
        there = self._containers()
        self._refuse_another(there)
        missing = [node for node in self.names.nodes if self.names.container(node) not in there]
        if missing:
            image = ensure_image(self.podman, self.system.name)
            with told("Making %s" % ", ".join(missing)):
                self._networks()
                self._volume()
                hosts = addresses(self._subnet(), self.names.nodes)
                for node in missing:
                    self._create(node, image, hosts)
        stopped = [node for node in self.names.nodes if node in missing or not self._runs(node, there)]
        if stopped:
            with told("Starting %s" % ", ".join(stopped)):
                for node in stopped:
                    self._configure(node)
                self._start(stopped)
        self._wait()
        return bool(stopped)

    def down(self) -> list[str]:
        """Remove the cluster completely; what was there, by name."""
        with told("Removing %s" % self.names.cluster):
            containers = list(self._containers())
            if containers:
                self.podman.ask("rm", "--force", "--volumes", "--time=0", *containers)
            volumes = self.podman.ask("volume", "ls", "--quiet", self._mine).split()
            if volumes:
                self.podman.ask("volume", "rm", *volumes)
            networks = self.podman.ask("network", "ls", "--quiet", self._mine).split()
            if networks:
                self.podman.ask("network", "rm", *networks)
        return [*containers, *volumes, *networks]

    def execute(self, node: str, *command: str, user: str = "root") -> subprocess.CompletedProcess[bytes]:
        """Run a command on a node, as in a new login of an account, and do not judge how it ended."""
        return self.podman.run("exec", self.names.container(node), *as_login(user, *command))

    def command(self, node: str, *command: str, user: str, options: Sequence[str]) -> list[str]:
        """The words that run a command on a node, with options of podman-exec(1), for one who starts it himself."""
        return [*self.podman.words, "exec", *options, self.names.container(node), *as_login(user, *command)]

    def digest(self) -> str:
        """A digest of all that the containers are made from."""
        laid = [self.system.files(node, self.names.compute) for node in self.names.nodes]
        settings = [self.pip.configuration, self.git.configuration]
        made_from = [self.names, self.mounts, *settings, laid, str(self.system.programs)]
        recipe = recipe_digest(self.system.name)
        return hashlib.sha256(json.dumps([recipe, devices(), *made_from]).encode()).hexdigest()[:12]

    def _containers(self) -> dict[str, dict[str, Any]]:
        """What podman knows of this cluster's containers, by name."""
        listed = json.loads(self.podman.ask("ps", "--all", self._mine, "--format=json"))
        return {known["Names"][0]: known for known in listed}

    def _runs(self, node: str, there: Mapping[str, Mapping[str, Any]]) -> bool:
        return bool(there[self.names.container(node)]["State"] == "running")

    def _refuse_another(self, there: Mapping[str, Mapping[str, Any]]) -> None:
        for name, known in there.items():
            if (known["Labels"] or {}).get(DIGEST) != self.digest():
                raise TroubleError(
                    "%s is there, and would be made otherwise now: its recipe, batch system, number of nodes, mounts, "
                    "or pip's or git's settings have changed. Remove it first, with what was built on it: "
                    "make rehearse-down"
                    % name
                )

    def _networks(self) -> None:
        """One network for all without a way out and without a name service; one for the login nodes that leads out."""
        if not self.podman.exists("network", self.names.inside):
            self.podman.ask("network", "create", self._label, "--internal", "--disable-dns", self.names.inside)
        if not self.podman.exists("network", self.names.outside):
            self.podman.ask("network", "create", self._label, self.names.outside)

    def _volume(self) -> None:
        if not self.podman.exists("volume", self.names.shared):
            self.podman.ask("volume", "create", self._label, self.names.shared)

    def _subnet(self) -> str:
        return str(self.podman.inspect("network", self.names.inside)["subnets"][0]["subnet"])

    def _create(self, node: str, image: str, hosts: dict[str, str]) -> None:
        """Make a node's container."""
        networks = ["--network=%s:ip=%s" % (self.names.inside, hosts[node])]
        mounts: list[str] = []
        if node in self.names.login:
            networks.append("--network=" + self.names.outside)
            mounts = ["--volume=%s:%s:ro" % (path, path) for path in self.mounts]
        self.podman.ask(
            "create",
            "--name=" + self.names.container(node),
            "--hostname=" + node,
            self._label,
            "--label=%s=%s" % (DIGEST, self.digest()),
            "--systemd=always",
            "--http-proxy=false",
            "--pids-limit=-1",
            "--shm-size=1g",
            *self.podman.limits(),
            *("--device=" + path for path in devices()),
            *networks,
            *("--add-host=%s:%s" % item for item in hosts.items()),
            "--volume=%s:%s" % (self.names.shared, SHARED),
            *mounts,
            image,
        )

    def _configure(self, node: str) -> None:
        """Lay into a stopped node what depends on this machine: at each start, as making it may have been cut off."""
        if self.system.programs:
            with tempfile.TemporaryFile() as stream:
                write_programs(stream, *self.system.programs)
                stream.seek(0)
                self.podman.ask("cp", "-", self.names.container(node) + ":/", source=stream)
        files = self.system.files(node, self.names.compute)
        # tmpfiles.d(5). A node's devices have the modes of this machine's until then.
        lines = ["z %s %s - - -\n" % item for item in devices().items()]
        files["etc/tmpfiles.d/rehearsal-devices.conf"] = "".join(lines)
        if node in self.names.login:
            files["etc/pip.conf"] = self.pip.configuration
            files["etc/gitconfig"] = self.git.configuration
            files["etc/apt/apt.conf.d/90rehearsal"] = "".join(line + ";\n" for line in distribution.settings())
        self.podman.ask("cp", "-", self.names.container(node) + ":/", data=archive_of(files))

    def _start(self, nodes: Sequence[str]) -> None:
        """Start containers.

        Raises:
            TroubleError: podman could not. Where it was killed itself while it gave an address to a container, it keeps
                that for the network's name until the machine starts anew.
        """
        try:
            self.podman.ask("start", *(self.names.container(node) for node in nodes))
        except TroubleError as trouble:
            raise TroubleError(
                "%s\nBegin anew: make rehearse-down; if that does not help, under another REHEARSAL_NAME." % trouble
            ) from trouble

    def _wait(self) -> None:
        """Wait until the batch system is ready.

        Raises:
            TroubleError: it did not in time; with the services that failed.
        """
        deadline = time.monotonic() + READY_WITHIN
        if self._ready():
            return
        with told("Waiting for %s" % self.system.title):
            while not self._ready():
                failed = self._failed_services()
                if failed or time.monotonic() > deadline:
                    raise TroubleError(self._why_not(failed))
                time.sleep(0.5)

    def _ready(self) -> bool:
        """Whether every compute node can take a job, and the rollout account may submit one."""
        return self.system.ready(functools.partial(self.execute, LOGIN), self.names.compute)

    def _failed_services(self) -> list[str]:
        """The services that have given up, each with its node."""
        lines = []
        for node in self.names.nodes:
            failed = self.execute(node, "systemctl", "--failed", "--plain", "--no-legend").stdout.decode().splitlines()
            lines += ["%s: %s" % (node, line.strip()) for line in failed if line.strip()]
        return lines

    def _why_not(self, failed: list[str]) -> str:
        state = self.execute(LOGIN, *self.system.shows_nodes)
        return "%s do not come up.\n  %s\n%s\nLook at the services (`%s`), or begin anew: make rehearse-down" % (
            self.system.title,
            "\n  ".join(failed) or "No service failed within %.0f s." % READY_WITHIN,
            (state.stdout or state.stderr).decode().strip(),
            self.entering(CONTROL) + " -c journalctl",
        )

    def entering(self, node: str, user: str = "root") -> str:
        """The command that opens a shell on a node."""
        return " ".join([*self.podman.words, "exec", "-it", self.names.container(node), *as_login(user)])

    def tell(self) -> None:
        """Say how the nodes are entered."""
        say("\nThe rehearsal is up, until `make rehearse-down`. A shell on its nodes:")
        doors = [(user, node) for node in self.names.login for user in ("rollout", "researcher")]
        doors += [("rollout", node) for node in self.names.compute]
        for user, node in doors:
            say("  %-10s on %-9s %s" % (user, node, self.entering(node, user)))
        say("  root       on %-9s %s" % (CONTROL, self.entering(CONTROL)))


def devices() -> dict[str, str]:
    """Those of :data:`DEVICES` that this machine has."""
    return {path: mode for path, mode in DEVICES.items() if os.path.exists(path)}


def as_login(user: str, *command: str) -> list[str]:
    """The words that run a command in a new login of an account; without a command, a shell."""
    if user == "root":
        return list(command) or ["bash", "--login"]
    if not command:
        return ["runuser", "--login", user]
    # `runuser --login` takes one line for the shell of the login.
    return ["runuser", "--login", user, "--command", " ".join(map(shlex.quote, command))]
