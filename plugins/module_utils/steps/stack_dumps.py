# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Have the Python processes of a silent job print their stacks into its log, before they are stopped.

Three ways, for each process the first one that it offers:

* a handler of its own for the site's signal, such as one that it registered with ``faulthandler.register``;
* py-spy, where that is installed and may look into the process (ptrace(2));
* the handler for SIGABRT that ``PYTHONFAULTHANDLER`` installs in every Python of the job, whatever it runs. It prints
  the stacks of all threads, and the process ends. The variable puts nothing on ``sys.path`` and stands in nobody's way,
  as a ``sitecustomize`` would; isolated interpreters (``-I``, ``-E``) do not read it.

One is asked after the other, as faulthandler writes number by number and two stacks in one log would be none. Whoever
reads what a process prints must outlive it, and must not end the others because one of them has: so the third way goes
from the leaves of the process tree to its root, and whatever is not asked just then is stopped meanwhile. What a rank
does when it misses the others is not seen either: the signal waits for its main thread, which takes it before all else.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import signal
import subprocess
import time
from typing import Callable, Sequence

from ..core.processes import (
    Process,
    catches,
    is_alive,
    run_program,
)
from ..logs.masking import masked

VARIABLE = "PYTHONFAULTHANDLER"
"""Makes Python call ``faulthandler.enable()`` at its start (Python's documentation, "Command line and environment")."""

PRINT_SECONDS = 1.0
"""Time for a handler of the site's signal to print; nobody says when it is done."""

SETTLED_SECONDS = 0.2
"""A log that has grown, and then not for so long, has what there is."""

END_SECONDS = 15.0
"""How long a process that got SIGABRT may take; it may have to wait for room in a pipe."""

ALL_SECONDS = 120.0
"""Time for all of them; who has not been asked then is not."""

QUIET_SECONDS, FORWARD_SECONDS = 1.0, 10.0
"""Launchers have passed on what their ranks printed when the log has not grown for the one; at most the other."""

TOOL_SECONDS = 15
"""How long py-spy may look at one process."""

GENERATIONS = 8
"""Levels of Python processes below each other that are asked; nobody has so many."""

MAX_BYTES, MAX_LINES, MAX_WIDTH = 65536, 200, 300
"""What of the stacks goes into the record of the end; the log has all."""

_NO_CORE = 1
"""A size of core files for which Linux writes none, and starts no program that would take it (fs/coredump.c)."""

_TGKILL = {"x86_64": 234, "aarch64": 131, "ppc64le": 250}
"""Number of the system call; glibc has a function for it from 2.30 on only."""

_PYTHON = re.compile(r"(?:python|pypy)[\d.]*[a-z]*(?: \(deleted\))?\Z")


def runs_python(pid: int) -> bool:
    """Tell whether a process runs a Python interpreter; PyTorch renames the main thread."""
    try:
        return bool(_PYTHON.match(os.path.basename(os.readlink("/proc/%d/exe" % pid))))
    except OSError:
        return False


def leaves(asked: Sequence[Process], members: Sequence[Process]) -> list[Process]:
    """Choose those of ``asked`` that have none of the others among their descendants, of all processes of a job."""
    parents = {process.pid: process.parent for process in members}
    above: set[int] = set()
    for process in asked:
        pid = process.parent
        while pid in parents and pid not in above:
            above.add(pid)
            pid = parents[pid]
    return [process for process in asked if process.pid not in above]


def forbid_core(pid: int) -> None:
    """Keep a process from leaving a core file, which may be as large as its memory."""
    with contextlib.suppress(OSError, ValueError):
        hard = resource.prlimit(pid, resource.RLIMIT_CORE)[1]
        resource.prlimit(pid, resource.RLIMIT_CORE, (_NO_CORE if hard else 0, hard))


def signal_main_thread(pid: int, signum: int) -> None:
    """Send a signal to the main thread of a process by tgkill(2), or else to the process.

    A stopped thread that has a signal of its own pending handles it before it returns from where it waits. One that is
    sent to the process is any thread's, and the main one may go on while its frames are being read.
    """
    number = _TGKILL.get(os.uname().machine)
    try:
        import ctypes

        sent = number is not None and ctypes.CDLL(None).syscall(number, pid, pid, signum) == 0
    except (ImportError, OSError, AttributeError):
        sent = False
    if not sent:
        with contextlib.suppress(OSError):
            os.kill(pid, signum)


class StackDump:
    """One request to a job's Python processes to say where they are."""

    def __init__(
        self, members: Callable[[], list[Process]], signum: int | None, log: int, note: Callable[[str], None],
        tick: Callable[[], None], secrets: Sequence[str] = (),
    ) -> None:
        """Prepare to ask; without a signal of the site by py-spy only, of whose output secrets are masked."""
        self.secrets = secrets
        self.members, self.signum, self.log, self.note, self.tick = members, signum, log, note, tick
        self.tool = shutil.which("py-spy")
        self.asked: set[int] = set()
        self.deadline = time.monotonic() + ALL_SECONDS

    def run(self) -> None:
        """Ask everybody."""
        self._ask_listeners()
        self._ask_tool()
        if self.signum is not None:
            for _generation in range(GENERATIONS):
                if not self._ask_leaves():
                    break

    def _ask_listeners(self) -> None:
        """Send the site's signal to who has a handler for it; any other would die of it."""
        if self.signum is None:
            return
        for process in self.members():
            if catches(process.pid, self.signum) and self._in_time():
                name = signal.Signals(self.signum).name
                self.note("asking process %d (%s) for its stack by %s" % (process.pid, process.command, name))
                self.asked.add(process.pid)
                _send([process], self.signum)
                self._wait(self._settled(SETTLED_SECONDS, grown=True), PRINT_SECONDS)

    def _ask_tool(self) -> None:
        """Have py-spy look at the others."""
        for process in self.members() if self.tool else []:
            if process.pid not in self.asked and runs_python(process.pid) and self._in_time():
                self.note("py-spy dump of process %d (%s)" % (process.pid, process.command))
                with contextlib.suppress(OSError, subprocess.SubprocessError), masked(self.log, self.secrets) as output:
                    ended = run_program(
                        [str(self.tool), "dump", "--pid", str(process.pid)], stdin=subprocess.DEVNULL, stdout=output,
                        stderr=output, timeout=TOOL_SECONDS,
                    )
                    if ended.returncode == 0:
                        self.asked.add(process.pid)
                self.tick()

    def _ask_leaves(self) -> bool:
        """End processes without others below them by the signal on which they print their stack, if there are any."""
        members = self.members()
        able = [
            process for process in members
            if process.pid not in self.asked and runs_python(process.pid) and catches(process.pid, signal.SIGABRT)
        ]
        chosen = leaves(able, members)
        if not chosen:
            return False
        _send(members, signal.SIGSTOP)
        try:
            for process in chosen:
                self.asked.add(process.pid)
                if self._in_time():
                    self._end(process)
        finally:
            _send(members, signal.SIGCONT)
        self._wait(self._settled(QUIET_SECONDS), FORWARD_SECONDS)
        return True

    def _end(self, process: Process) -> None:
        self.note("asking process %d (%s) for its stack by SIGABRT" % (process.pid, process.command))
        forbid_core(process.pid)
        signal_main_thread(process.pid, signal.SIGABRT)
        _send([process], signal.SIGCONT)
        self._wait(lambda: not is_alive(process.pid, process.start_time), END_SECONDS)

    def _in_time(self) -> bool:
        return time.monotonic() < self.deadline

    def _settled(self, seconds: float, grown: bool = False) -> Callable[[], bool]:
        """Return what tells whether the log has not grown for so long; with ``grown``, after it has once."""
        first = os.fstat(self.log).st_size
        size, since = first, time.monotonic()

        def settled() -> bool:
            nonlocal size, since
            if os.fstat(self.log).st_size != size:
                size, since = os.fstat(self.log).st_size, time.monotonic()
            return (size != first or not grown) and time.monotonic() - since >= seconds

        return settled

    def _wait(self, done: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not done() and time.monotonic() < deadline:
            self.tick()
            time.sleep(0.02)


def _send(processes: Sequence[Process], signum: int) -> None:
    for process in processes:
        with contextlib.suppress(OSError):
            os.kill(process.pid, signum)


def read_stacks(path: str, start: int) -> list[str]:
    """Read what has been written to a log from ``start`` on, as far as it fits into a record."""
    try:
        with open(path, "rb") as stream:
            stream.seek(start)
            text = stream.read(MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    return [line[:MAX_WIDTH] for line in text.splitlines()[:MAX_LINES]]
