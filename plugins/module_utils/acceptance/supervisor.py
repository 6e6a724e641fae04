# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Supervise an acceptance's job under the account that runs it: time limit, stack dumps, clean end.

It travels to that account in an archive (see :mod:`.run`), because only that account can end its processes.
Its standard input is a pipe held by whoever asked: when that is closed, nobody waits any more and the job is stopped.
As a step of a batch job it is on its own, and ends with that.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
import uuid

from ..core.processes import (
    MARKER,
    Process,
    adopt_orphans,
    catches,
    command_line,
    job_processes,
    read_process,
    reap_children,
    start_program,
    stop_processes,
)

EVENT = "@torchstack-job"
"""Beginning of the supervisor's lines; also in :mod:`.output`, which is not in the archive."""

DUMP_SECONDS = 1.5
"""Time for the ranks, also those on other nodes, to print their stacks after the signal."""

APART_SECONDS, ALL_SECONDS = 0.3, 15.0
"""Time between two ranks that are asked: faulthandler writes number by number, so that two at once garble each other's
stack. With many ranks it is less, so that all are asked in the other time."""

GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL."""


def event(name: str, text: object) -> None:
    """Print an event of the job, in one write."""
    os.write(1, ("%s %s\t%s\n" % (EVENT, name, text)).encode("utf-8", "replace"))


class Job:
    """Run the script once."""

    def __init__(self, script: str, timeout: float, attended: bool) -> None:
        self.timeout = timeout
        self.attended = attended
        self.nonce = uuid.uuid4().hex
        self.status: int | None = None
        process = start_program(
            ["/bin/bash", "--noprofile", "--norc", script], stdin=subprocess.DEVNULL, start_new_session=True,
            env=dict(os.environ, **{MARKER: self.nonce}))
        self.child = process.pid
        # Children are reaped here by waitpid, adopted ones included; Popen must not look for its own.
        process.returncode = 0
        found = read_process(self.child)
        self.start_time = found.start_time if found else None

    def reap(self) -> None:
        """Collect children that ended."""
        status = reap_children(self.child)
        if status is not None:
            self.status = status

    def members(self) -> list[Process]:
        """List all living processes of the job on this machine."""
        return job_processes(self.nonce, self.child, self.start_time, keep=os.getpid())

    def wait(self) -> str:
        """Wait for the end: ``ended``, ``timeout``, or ``abandoned`` when whoever asked is gone."""
        started = time.monotonic()
        while True:
            self.reap()
            if self.status is not None:
                return "ended"
            if time.monotonic() - started >= self.timeout:
                return "timeout"
            readable = select.select([0] if self.attended else [], [], [], 0.1)[0]
            if readable and not os.read(0, 4096):
                return "abandoned"

    def dump_stacks(self) -> None:
        """Have the ranks print their stacks.

        A launcher that listens to SIGUSR1 passes it on, to other nodes as well; else the ranks of this machine get it.
        """
        listening = [process.pid for process in self.members() if catches(process.pid, signal.SIGUSR1)]
        asked = [self.child] if self.child in listening else listening
        for pid in asked:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGUSR1)
            time.sleep(min(APART_SECONDS, ALL_SECONDS / len(asked)))
        time.sleep(DUMP_SECONDS)

    def stop(self) -> None:
        """End every process of the job."""
        left = stop_processes(self.members, GRACE, self.reap)
        if left:
            event("unkillable", ", ".join("%d (%s)" % (process.pid, process.command) for process in left))

    def run(self) -> int:
        """Run the job and clean up; return the script's status, 128 + n, 124 at the time limit, 125 when abandoned."""
        how = self.wait()
        if how == "timeout":
            event("timeout", "%g" % self.timeout)
            for process in self.members():
                event("was_running", "%d %s" % (process.pid, command_line(process.pid) or process.command))
            self.dump_stacks()
        left = self.members()
        if how == "ended" and left:
            event("left_running", ", ".join("%d (%s)" % (process.pid, process.command) for process in left))
        self.stop()
        if how == "timeout":
            return 124
        if how == "abandoned" or self.status is None:
            return 125
        if os.WIFSIGNALED(self.status):
            return 128 + os.WTERMSIG(self.status)
        return os.WEXITSTATUS(self.status)


def main(arguments: list[str]) -> int:
    """Run the archive's program: ``SCRIPT TIMEOUT [unattended]``."""
    script, timeout, attended = arguments[0], float(arguments[1]), "unattended" not in arguments[2:]
    os.umask(0o022)
    adopt_orphans()
    begin = time.monotonic()
    event("started", "%s uid %d pid %d" % (os.uname().nodename, os.getuid(), os.getpid()))
    event("began", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    status = Job(script, timeout, attended).run()
    event("seconds", "%.1f" % (time.monotonic() - begin))
    event("exit", status)
    return status
