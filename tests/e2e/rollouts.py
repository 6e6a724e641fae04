# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A rollout as an operator starts it, and the shells of those who use what it made."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import time

from support.console import Printed
from support.sites import whole_text

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
RELEASE = "2026-11-20"

BRIEFLY = {"ANSIBLE_STDOUT_CALLBACK": "hpcml.torchstack.steps"}
"""What has a rollout print a line for each step and event."""

OPEN = "tests/e2e/open_release.yml"
"""The playbook that builds the release and does not freeze it."""


class Rollout(Printed):
    """One run of ansible-playbook."""

    def __init__(self, site: Site, arguments=(), environment=None, playbook="playbooks/local.yml"):
        self.output = site.scratch / ("rollout-%d.log" % time.monotonic_ns())
        program = os.path.join(os.path.dirname(sys.executable), "ansible-playbook")
        command = [program, playbook, *site.inventory, *arguments]
        with open(self.output, "wb") as stream:
            self.process = subprocess.Popen(
                command,
                cwd=CHECKOUT,
                env={**site.environment, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait(self, timeout=1500):
        """The exit code."""
        try:
            return self.process.wait(timeout)
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)


class Site:
    """The local site with a root of its own.

    Args:
        root: where its releases go.
        scratch: a directory for what the rollouts print.
        collections: the path of collections.
        release: which one is rolled out.
        variables: further environment variables of the rollouts.
    """

    def __init__(self, root, scratch, collections, release=RELEASE, **variables):
        self.root = pathlib.Path(root)
        self.scratch = scratch
        self.release = release
        self.prefix = self.root / release
        self.inventory = []
        self.first = None
        """The rollout that has made the release; None where it was there already."""
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ANSIBLE_", "TORCHSTACK_", "PYTHON"))
        }
        self.environment.update(
            ANSIBLE_CONFIG=str(CHECKOUT / "ansible.cfg"),
            ANSIBLE_COLLECTIONS_PATH=str(collections),
            ANSIBLE_NOCOLOR="1",
            PYTHONUNBUFFERED="1",
            TORCHSTACK_ROOT=str(self.root),
            TORCHSTACK_ORDINARY_USER=os.environ.get("TORCHSTACK_ORDINARY_USER", ""),
            TORCHSTACK_PYTHON=os.environ.get("TORCHSTACK_PYTHON", ""),
            TORCHSTACK_CACHE=os.environ.get("TORCHSTACK_CACHE", ""),
            TORCHSTACK_RELEASE=release,
            **variables,
        )

    def is_in_use(self):
        """Whether this release is published and the default, so that a rollout of it has nothing to do."""
        default = self.root / "modulefiles" / "tcl" / "torchstack" / ".version"
        return default.exists() and '"%s"' % self.release in default.read_text()

    def start(self, *arguments, playbook="playbooks/local.yml", **environment):
        return Rollout(self, arguments, environment, playbook)

    def roll_out(self, *arguments, **environment):
        """Run to the end, which must be a good one."""
        rollout = self.start(*arguments, **environment)
        code = rollout.wait()
        assert code == 0, rollout.text[-6000:]
        return rollout

    def refused(self, *arguments, **environment):
        """Run to the end, which must be a bad one."""
        rollout = self.start(*arguments, **environment)
        assert rollout.wait() != 0, rollout.text[-6000:]
        return rollout

    def document(self, *words, given=()):
        """Run a word of the command with ``--json``; the one document on its standard output.

        Args:
            given: further arguments of ansible-playbook.
        """
        path = "%s:%s" % (os.path.dirname(sys.executable), self.environment["PATH"])
        done = subprocess.run(
            [str(CHECKOUT / "bin" / "torchstack"), *words, "--json", "--", *self.inventory, *given], cwd=CHECKOUT,
            env={**self.environment, "PATH": path}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=False)
        found = json.loads(done.stdout)
        assert (found["word"], found["rc"], found["format"]) == (words[0], done.returncode, 1), done.stderr[-6000:]
        return found

    def remove(self):
        """Remove the root, frozen or not."""
        if self.root.exists():
            subprocess.run(["chmod", "-R", "u+rwX", str(self.root)], check=True)
            shutil.rmtree(self.root)

    def step(self, name):
        return self.prefix / ".torchstack" / "steps" / name

    def job(self, name):
        return json.loads((self.step(name) / "job.json").read_text())

    def log(self, name):
        path = self.step(name) / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def snapshot(self):
        """Mode, size and time of all below the root by path; of directories only the mode, as the lock touches them."""
        found = {}
        for path in [self.root, *self.root.rglob("*")]:
            status = path.lstat()
            plain = not stat.S_ISDIR(status.st_mode)
            found[str(path)] = (status.st_mode, *((status.st_size, status.st_mtime_ns) if plain else ()))
        return found

    def other_inventory(self, tmp_path, change, name=".yml"):
        """The local site's inventory, with a changed release file, or a lock beside it; the words that choose it."""
        copy = tmp_path / "local"
        shutil.copytree(CHECKOUT / "inventories" / "local", copy)
        path = copy / "releases" / (self.release + name)
        path.write_text(change(whole_text(path) if path.suffix == ".yml" else path.read_text()))
        return ["-i", str(copy / "hosts.yml")]


def wait_for(condition, timeout, what):
    """Wait until ``condition()`` is true, and return it."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.2)
    raise AssertionError("Waited %s s in vain for: %s" % (timeout, what))


class ModuleSystem:
    """One module system and how a bash gets its `module` command."""

    def __init__(self, name, start, modulepath, release):
        self.name, self.start, self.modulepath, self.release = name, start, modulepath, release

    def run(self, script, user=None, home=None, check=True, load=True, **variables):
        """Run a bash script with the release loaded, unless it does that itself, in a login's environment."""
        home = home or os.path.expanduser("~%s" % (user or ""))
        environment = {"HOME": home, "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", **variables}
        loads = "module use %s\nmodule load torchstack/%s\n" % (self.modulepath, self.release) if load else ""
        text = "set -e\n%s\n%s%s\n" % (self.start, loads, script)
        command = ["env", "-i", *("%s=%s" % item for item in environment.items()), "bash", "-c", text]
        if user:
            command = ["sudo", "-n", "-u", user, *command]
        process = subprocess.run(
            command, cwd="/tmp", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=300, check=False,
        )
        assert not check or process.returncode == 0, process.stdout
        return process


def find_module_system(name, site):
    """One of the module systems with the modules of a site; None where this machine does not have it."""
    if name == "lmod":
        start = "/usr/share/lmod/lmod/init/bash"
        if not os.path.exists(start):
            return None
        return ModuleSystem("lmod", "source " + start, site.root / "modulefiles" / "lmod", site.release)
    command = os.environ.get("MODULES_CMD", "/usr/lib/x86_64-linux-gnu/modulecmd.tcl")
    if not os.path.exists(command):
        return None
    start = 'eval "$(tclsh %s bash autoinit)"' % command
    return ModuleSystem("environment-modules", start, site.root / "modulefiles" / "tcl", site.release)
