# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find, start and stop processes of this machine, as /proc shows them.

A process is named by its id *and* its start time (field 22 of /proc/<pid>/stat, clock ticks since boot), because ids
are used again. Field numbers and flags are those of proc(5); PR_SET_CHILD_SUBREAPER is prctl(2)'s.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from typing import Any, Callable, Iterator, NamedTuple, Sequence

MARKER = "TORCHSTACK_JOB"
"""Environment variable that every process of a job inherits; its value is the job's nonce."""

KILL_PATIENCE = 15.0
"""Seconds to wait after SIGKILL: only a process that hangs inside the kernel takes longer."""

_EXEC_PATIENCE = 10.0
"""Seconds for which a process may be in the middle of execve(2) before it is taken for one without environment."""

_SETTLED_LOOKS = 5
"""How often in a row one and the same program must be seen without environment to count as one that was given none."""

_SUBREAPER = 36


class Process(NamedTuple):
    """What /proc/<pid>/stat says that matters here."""

    pid: int
    command: str
    state: str
    parent: int
    group: int
    session: int
    start_time: int

    @property
    def ended(self) -> bool:
        """Tell whether it is a zombie or dead: it has an id, and does nothing any more."""
        return self.state in "ZXx"


class _Orphans:
    """What this process does with descendants that lose their parents."""

    adopted = False
    """Whether it becomes their parent; see :func:`adopt_orphans`."""

    inherited: frozenset[tuple[int, int]] = frozenset()
    """Children that it had before, by id and start time: what it was before execve(2) has left them."""


class Here(NamedTuple):
    """This machine in this boot."""

    host: str
    boot_id: str


def here() -> Here:
    """Return name and boot id of this machine; two boots of one machine differ in the boot id."""
    with open("/proc/sys/kernel/random/boot_id", "rb") as stream:
        return Here(os.uname().nodename, stream.read().decode("ascii").strip())


def read_process(pid: int) -> Process | None:
    """Read the process with this id, a zombie included; None where there is none."""
    # The command's name stands in brackets and may hold any byte, brackets and spaces included.
    head, _bracket, tail = (read_process_file(pid, "stat") or b"").rpartition(b")")
    fields = tail.split()
    if len(fields) < 20:
        return None
    command = head.partition(b"(")[2].decode("utf-8", "replace")
    return Process(
        pid, command, fields[0].decode("ascii"), int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19])
    )


def is_alive(pid: int | None, start_time: int | None) -> bool:
    """Tell whether the very process with this id and start time still works; a zombie does not."""
    if not pid:
        return False
    process = read_process(pid)
    return process is not None and not process.ended and process.start_time == start_time


def own_processes() -> Iterator[Process]:
    """List all living processes of this account, this one excluded."""
    user, self_pid = os.geteuid(), os.getpid()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == self_pid:
            continue
        try:
            if os.stat("/proc/" + entry).st_uid != user:
                continue
        except OSError:
            continue
        process = read_process(int(entry))
        if process is not None and not process.ended:
            yield process


def bears_marker(pid: int, nonce: str, patience: float | None = None) -> bool:
    """Tell whether the environment that this process started with names the job ``nonce``.

    Amid execve(2) a process has neither arguments nor environment for a moment, and a job must not seem to have ended
    because it was looked at just then: such a process is looked at again, for ``patience`` seconds. On a busy machine
    one into which nobody may look, such as one of another user namespace (ptrace(2)), is like that all the time.
    """
    deadline = time.monotonic() + (_EXEC_PATIENCE if patience is None else patience)
    text, settled = read_process_file(pid, "environ"), 0
    while text == b"" and settled < _SETTLED_LOOKS and time.monotonic() < deadline:
        time.sleep(0.002)
        program = _program(pid)
        text = read_process_file(pid, "environ")
        settled = settled + 1 if program is not None and program == _program(pid) else 0
    return text is not None and ("%s=%s" % (MARKER, nonce)).encode("ascii") in text.split(b"\0")


def _program(pid: int) -> tuple[str, ...] | None:
    """Tell the program in a process from the one before it; None while execve(2) is not done with it.

    That are startcode and arg_start of proc(5): Linux sets the former when arguments and environment are in their
    places, and puts the latter somewhere else each time. One that has ended stays what it is.
    """
    fields = (read_process_file(pid, "stat") or b"").decode("ascii", "replace").rpartition(")")[2].split()
    if len(fields) < 46 or fields[0] in "ZX":
        return ()
    # Who may not look reads 1 and 0; a process that stays like that is not caught at work each time.
    hidden = fields[45] == "0" and fields[0] in "RD"
    return (fields[23], fields[45]) if fields[23] != "0" and not hidden else None


def read_process_file(pid: int, name: str) -> bytes | None:
    """Read a file of a process in /proc; empty where nobody may look, None where there is no process."""
    try:
        with open("/proc/%d/%s" % (pid, name), "rb") as stream:
            return stream.read()
    except PermissionError:
        # Amid execve(2) nobody may look into a process for a moment, either.
        return b""
    except OSError:
        return None


def start_program(words: Sequence[str], **options: Any) -> subprocess.Popen:
    """Start a program, as ``subprocess.Popen`` does.

    AnsibleModule.run_command waits for what it starts; and a supervisor works when no AnsibleModule is left.
    """
    return subprocess.Popen(words, **options)  # pylint: disable=ansible-bad-function # see above


def run_program(words: Sequence[str], **options: Any) -> subprocess.CompletedProcess:
    """Run a program to its end, as ``subprocess.run`` does, where no AnsibleModule is at hand."""
    return subprocess.run(words, check=False, **options)  # pylint: disable=ansible-bad-function # see above


def default_signals() -> None:
    """Reset the signals of this process, before it becomes another program: none blocked or ignored."""
    for number in signal.valid_signals():
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def reap_children(child: int) -> int | None:
    """Collect all children of this process that ended, orphans included; return the status of ``child`` if it did."""
    found = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == child:
                found = status
    return found


def job_processes(
    nonce: str, leader: int | None = None, leader_start: int | None = None, keep: int | None = None
) -> list[Process]:
    """Find the living processes of a job, wherever they went, without the one to keep, such as the supervisor.

    A process belongs to the job when it bears the job's marker, or sits in the session that the job's script leads,
    unless the leader's id now belongs to a process with another start time. Descendants of this very process count too:
    with :func:`adopt_orphans` none of them can leave. Children from before that are somebody else's: in a job of PBS on
    several nodes pbs_demux is one, without which no further task of the job starts.
    """
    processes = list(own_processes())
    inherited = {process.pid for process in processes if (process.pid, process.start_time) in _Orphans.inherited}
    parents = {process.pid: process.parent for process in processes}
    stranger = any(process.pid == leader and process.start_time != leader_start for process in processes)
    self_pid = os.getpid()
    deadline = time.monotonic() + _EXEC_PATIENCE

    def origin(pid: int) -> int:
        seen = set()
        while pid in parents and pid not in seen and pid not in inherited:
            seen.add(pid)
            pid = parents[pid]
        return pid

    def is_marked(pid: int) -> bool:
        # Who keeps all its descendants knows that a stranger amid execve(2) is none of them, if its parents still live.
        settled = keep == self_pid and _Orphans.adopted and os.path.exists("/proc/%d" % (origin(pid) or 1))
        return bears_marker(pid, nonce, 0.0 if settled else deadline - time.monotonic())

    return [
        process for process in processes if process.pid != keep and (
            (leader is not None and not stranger and process.session == leader)
            or (keep == self_pid and origin(process.pid) == self_pid) or is_marked(process.pid)
        )
    ]


def stop_processes(find: Callable[[], list[Process]], grace: float, tick: Callable[[], None]) -> list[Process]:
    """Ask the processes that ``find`` names to end, and after ``grace`` seconds make them; return who survived that.

    It is asked again and again, for late children. Between two looks ``tick`` reaps children, or writes a heartbeat.
    """
    started = time.monotonic()
    asked = set()
    pause = 0.02
    while True:
        tick()
        remaining = find()
        elapsed = time.monotonic() - started
        if not remaining or elapsed > grace + KILL_PATIENCE:
            return remaining
        for process in remaining:
            with contextlib.suppress(OSError):
                if elapsed >= grace:
                    os.kill(process.pid, signal.SIGKILL)
                elif process.pid not in asked:
                    asked.add(process.pid)
                    os.kill(process.pid, signal.SIGTERM)
                    os.kill(process.pid, signal.SIGCONT)
        time.sleep(min(pause, max(0.02, grace - elapsed)) if elapsed < grace else 0.05)
        pause = min(pause * 1.5, 0.5)


def catches(pid: int, signum: int) -> bool:
    """Tell whether the process has a handler for the signal (SigCgt of /proc/<pid>/status)."""
    for line in (read_process_file(pid, "status") or b"").splitlines():
        if line.startswith(b"SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signum - 1) & 1)
    return False


def command_line(pid: int) -> str:
    """Return the process's arguments in one line, at most 200 characters."""
    text = (read_process_file(pid, "cmdline") or b"")[:4096]
    return text.replace(b"\0", b" ").decode("utf-8", "replace").strip()[:200]


def adopt_orphans() -> bool:
    """Become the parent of every descendant that loses its own: no double fork leads out of the job.

    False where the kernel or this Python cannot do that; the marker then has to find them. Whom this process is already
    the parent of, it leaves alone.
    """
    children = (process for process in own_processes() if process.parent == os.getpid())
    _Orphans.inherited = frozenset((child.pid, child.start_time) for child in children)
    try:
        import ctypes

        _Orphans.adopted = ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0) == 0
    except (ImportError, OSError, AttributeError):
        _Orphans.adopted = False
    return _Orphans.adopted
