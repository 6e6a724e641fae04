# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Controllers on the login node: started, watched, and killed as an operator's terminal or laptop would do it."""

from __future__ import annotations

import json
import shlex
import subprocess

from support.console import Printed
from support.polling import eventually

from rehearsal.checkout import PLACE
from rehearsal.cluster import as_login
from rehearsal.nodes import LOGIN

CONTROLLER = "bin/ansible-playbook"
MODULE = "python"
"""A module comes through a pipe, and is nothing but a Python to those who look for processes."""

COMMANDS = ("squeue", "scontrol", "scancel", "sacct")
PLAYBOOK = "tests/rehearsal/step.yml"
OPTIONS = {"account": "staff", "partition": "compute", "walltime": "01:00:00", "cores": 1, "python": "/usr/bin/python3"}


class Controller(Printed):
    """One ansible-playbook on the login node, as the rollout account.

    Args:
        cluster: where.
        output: a file for what it prints.
        words: the arguments of ansible-playbook.
    """

    def __init__(self, cluster, output, *words):
        self.cluster = cluster
        self.output = output
        container = cluster.names.container(LOGIN)
        settings = ["ANSIBLE_NOCOLOR=1", "PYTHONUNBUFFERED=1"]
        command = ["env", "--chdir=" + PLACE, *settings, ".venv/bin/ansible-playbook", *words]
        with open(output, "wb") as stream:
            self.process = subprocess.Popen(
                [*cluster.podman.words, "exec", container, *as_login("rollout", *command)],
                stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT,
            )

    def wait(self, timeout=900):
        """The exit code."""
        return self.process.wait(timeout)

    def succeed(self):
        """Wait for a good end."""
        assert self.wait() == 0, self.text[-6000:]
        return self

    def fail(self):
        """Wait for a bad end."""
        assert self.wait() != 0, self.text[-6000:]
        return self

    def kill(self, *others):
        """End ansible-playbook and its workers with SIGKILL, as no handler of theirs can notice.

        Args:
            others: further programs to kill, by what their command lines hold.
        """
        assert self.process.poll() is None, self.text[-6000:]
        victims = "|".join((CONTROLLER, *others))
        assert processes_of(self.cluster, CONTROLLER)
        eventually(lambda: not _killed(self.cluster, victims), "the controller's processes to be gone")
        self.process.wait(120)


def processes_of(cluster, pattern):
    """The rollout account's processes on the login node whose command lines hold a pattern."""
    return cluster.execute(LOGIN, "pgrep", "--full", "--euid", "rollout", "--", pattern).stdout.decode().split()


def _killed(cluster, pattern):
    """Kill the processes whose command line holds a pattern; what was there."""
    there = processes_of(cluster, pattern)
    if there:
        cluster.execute(LOGIN, "kill", "-9", *there)
    return there


class Step:
    """A step of its own below the shared file system.

    Args:
        cluster: where it is built.
        on: runs a line of shell on a node.
        scratch: a directory for what controllers print.
        name: what the step is called.
        options: launcher_options that differ from the tests' own.
    """

    def __init__(self, cluster, on, scratch, name, **options):
        self.cluster, self.on, self.scratch, self.name = cluster, on, scratch, name
        self.top = "/shared/software/torchstack/%s" % name
        self.options = {**OPTIONS, **options}
        self._runs = 0
        on(LOGIN, f"rm -rf {self.top} && mkdir {self.top}")

    def start(self):
        """A controller that builds it."""
        self._runs += 1
        data = {"step": self.name, "top": self.top, "options": self.options}
        return Controller(
            self.cluster, self.scratch / ("%s-%d.log" % (self.name, self._runs)), PLAYBOOK, "-e", json.dumps(data)
        )

    def submit_by(self, line):
        """Submit by a line of shell in place of sbatch, whose arguments it has, in the step's directory."""
        place = self.top + "/bin"
        links = " ".join("ln -s /usr/bin/%s %s;" % (name, place) for name in COMMANDS)
        script = shlex.quote("#!/bin/sh\ncd %s\n%s\n" % (self.top, line))
        self.on(LOGIN, f"mkdir {place}; {links} printf %s {script} > {place}/sbatch; chmod 755 {place}/sbatch")
        self.options["bin"] = place

    def let_go(self):
        """Let the script come to its end."""
        self.on(LOGIN, "touch %s/gate" % self.top)

    def begun(self):
        """The nodes on which the script has begun, in order."""
        return self.on(LOGIN, "cat %s/begun" % self.top, check=False).text.split() if self.has("begun") else []

    def has(self, name):
        """Whether there is such a file in its directory."""
        return self.on(LOGIN, "test -e %s/%s" % (self.top, name), check=False).returncode == 0

    def jobs(self, fields="jobid,state"):
        """What accounting says of the step's jobs, each once; a job that was put back counts as one."""
        line = "sacct --allocations --noheader --parsable2 --starttime=now-1day --format=jobname%%60,%s" % fields
        rows = [row.split("|") for row in self.on(LOGIN, line).text.split()]
        return [tuple(row[1:]) for row in rows if row[0].startswith("ts-%s-" % self.name)]

    def accounted(self):
        """The identifiers of its jobs by accounting, when that knows all that slurmctld remembers: it may be late."""
        line = "squeue --noheader --states=all --format='%j %i'"
        rows = [row.split() for row in self.on(LOGIN, line).text.splitlines()]
        known = {job for name, job in rows if name.startswith("ts-%s-" % self.name)}
        return eventually(lambda: known <= self._job_ids() and sorted(self._job_ids()), "accounting to know all jobs")

    def _job_ids(self):
        return {job for (job,) in self.jobs("jobid")}

    def queued(self):
        """The state of its jobs in the queue, by job."""
        line = "squeue --noheader --format='%j %i %T %r'"
        rows = [row.split(None, 3) for row in self.on(LOGIN, line).text.splitlines()]
        return {row[1]: (row[2], row[3]) for row in rows if row[0].startswith("ts-%s-" % self.name)}

    def status(self):
        """The content of its job.json."""
        return json.loads(self.on(LOGIN, "cat %s/.torchstack/steps/%s/job.json" % (self.top, self.name)).text)

    def log(self):
        """All that its script and its supervisors have printed."""
        return self.on(LOGIN, "cat %s/.torchstack/steps/%s/log" % (self.top, self.name)).text
