# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run a step on the machine itself, detached from the module, the connection and the login.

The supervisor is a new program in a session of its own: no descriptor of the connection, no file of the module and no
controlling terminal stays open, so ssh returns and Ansible can clean up. Where logind ends a user's processes at
logout, systemd-run moves it out of the login session.

A supervisor that was killed leaves its script without an owner. The next run stops those processes and runs the script
again rather than adopting them: nobody but a parent learns how a process ends.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import select
import shutil
import signal
import subprocess
import time

from ..core.build_environment import without_secrets
from ..core.clock import seconds_of
from ..core.errors import StackError
from ..core.processes import (
    Process,
    here,
    is_alive,
    job_processes,
    run_program,
    start_program,
    stop_processes,
)
from .files import StepFiles
from .job_state import BRIEF_WATCH_SECONDS, JobState, heartbeat_changes, judge
from .launcher import supervisor_command
from .lock import StepLock
from .records import JobRecord, StepRecords
from .supervisor import ANSWER_BYTES, STARTED

CONFIRM_SECONDS = 60
"""How long a supervisor may take to start; Python itself can be slow to load from a busy parallel file system."""

CGROUPS = "/proc/self/cgroup"
LINGERING = "/var/lib/systemd/linger/"

_QUERY = (
    "busctl", "--system", "get-property", "org.freedesktop.login1", "/org/freedesktop/login1",
    "org.freedesktop.login1.Manager", "KillUserProcesses",
)


class LocalLauncher:
    """Runs supervisors on this machine."""

    def query(self, step: StepFiles, records: StepRecords, unchanged: float | None = None) -> JobState:
        """See :class:`.launcher.Launcher`; the states are those of :func:`.judge`."""
        job, now, place = records.job, time.time(), here()
        if unchanged is not None and job is not None and job.host != place.host:
            now = seconds_of(job.heartbeat) + unchanged

        def changes() -> bool:
            return unchanged is None and heartbeat_changes(step, BRIEF_WATCH_SECONDS)

        return JobState(judge(job, records.end, place, now, is_alive, lambda job: bool(_left_of(job)), changes))

    def reconcile(self, step: StepFiles, job: JobRecord, lock: StepLock) -> JobState:
        # Who announced it held this lock, and would have handed it to a supervisor.
        return JobState("killed" if lock.exclusive and job.host == lock.here.host else "starting")

    def requeue(self, step: StepFiles, job: JobRecord, state: JobState) -> JobState:
        """See :class:`.launcher.Launcher`; no job of this machine is ever put back."""
        return state

    def cancel(self, step: StepFiles, job: JobRecord) -> None:
        """See :class:`.launcher.Launcher`; StackError: it runs on another machine."""
        if job.host != here().host:
            raise StackError(
                "Step %s is being built on host %s (pid %s)." % (step.name, job.host, job.pid), "cancel",
                "Run this there, or 'kill %s' on that host." % job.pid, step.directory,
            )
        if job.pid and is_alive(job.pid, job.start_time):
            with contextlib.suppress(ProcessLookupError):
                os.kill(job.pid, signal.SIGTERM)

    def launch(self, step: StepFiles, job: JobRecord, lock: StepLock) -> list[str]:
        """See :class:`.launcher.Launcher`; StackError: the supervisor did not start."""
        prefix, warnings = outlive_the_login(job.nonce)
        if prefix:
            if self._start(step, job, lock, prefix) is None:
                return warnings
            warnings.append("systemd-run could not move the build out of the login session; it runs inside.")
        obstacle = self._start(step, job, lock, [])
        if obstacle is not None:
            raise StackError(
                "The supervisor of step %s did not start%s." % (step.name, obstacle and ": " + obstacle), "start",
                "Make sure that this account can write %s and that there is space; further messages are in %s."
                % (step.directory, step.log), step.log,
            )
        return warnings

    def _start(self, step: StepFiles, job: JobRecord, lock: StepLock, prefix: list[str]) -> str | None:
        """Start the supervisor and wait for its answer: None when it runs, else why not, as far as it said so."""
        reader, writer = os.pipe()
        log = os.open(step.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            process = start_program(
                prefix + supervisor_command(step, job.nonce, writer, lock.descriptor),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[writer, lock.descriptor],
                start_new_session=True, env=without_secrets(os.environ, job.secrets),
            )
        finally:
            os.close(log)
            os.close(writer)
        try:
            ready = select.select([reader], [], [], CONFIRM_SECONDS)[0]
            answer = os.read(reader, ANSWER_BYTES) if ready else b""
            if answer == STARTED:
                # It outlives this object on purpose; kept here, it is reaped should this process live on.
                _children.append(process)
                return None
        finally:
            os.close(reader)
        with contextlib.suppress(OSError):
            process.kill()
        process.wait()
        return answer.decode("utf-8", "replace").strip().rstrip(".")

    def clear(self, step: StepFiles, job: JobRecord) -> None:
        """See :class:`.launcher.Launcher`; StackError: a process hangs in the kernel."""
        survivors = stop_processes(lambda: _left_of(job), job.limits.grace, _reap)
        if survivors:
            raise StackError(
                "Processes of an older build of step %s cannot be killed: %s."
                % (step.name, ", ".join(str(process.pid) for process in survivors)), "start",
                "They hang in the kernel, usually on a file system; run this again when they have gone.",
                step.directory,
            )


_children: list[subprocess.Popen[bytes]] = []


def _reap() -> None:
    _children[:] = [child for child in _children if child.poll() is None]


def _left_of(job: JobRecord) -> list[Process]:
    return job_processes(job.nonce, job.child_pid, job.child_start_time, keep=job.pid)


def outlive_the_login(nonce: str) -> tuple[list[str], list[str]]:
    """Find out how to leave a login session whose end would kill the build: the command to put in front, and warnings.

    logind with ``KillUserProcesses=yes`` ends whatever is in the scope of a login session; a scope of the user's own
    service manager is left alone, as long as that manager lingers (logind.conf(5), loginctl(1)).
    """
    try:
        with open(CGROUPS, encoding="utf-8") as stream:
            in_session = "/session-" in stream.read()
    except OSError:
        return [], []
    if not in_session or not (shutil.which("busctl") and shutil.which("systemd-run")):
        return [], []
    try:
        answer = run_program(
            _QUERY, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=5
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return [], []
    if answer.split() != [b"b", b"true"]:
        return [], []
    warnings = []
    if not os.path.exists(LINGERING + pwd.getpwuid(os.geteuid()).pw_name):
        warnings.append(
            "This machine ends a user's processes at the last logout; run 'loginctl enable-linger' to keep builds."
        )
    return ["systemd-run", "--user", "--scope", "--quiet", "--collect", "--unit=torchstack-" + nonce], warnings
