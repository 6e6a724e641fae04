# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run a rollout with a view of it below its lines, and say after Ctrl-C what goes on."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import pty
import select
import shlex
import signal
import subprocess
import termios
import time
import tty
from typing import Any, Iterator, Mapping, Sequence

from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.lenient_json import mapping, text
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import run_records

from . import playbook, progress, releases, terminal, view, watching
from .places import CommandError
from .releases import Release

TICK_SECONDS = 0.2
PARTIAL_SECONDS = 0.4
"""After so long a line without an end is a question, and nothing is drawn below it."""

CHUNK = 1 << 16

INTERRUPTED = """Interrupted. A step that has begun goes on by itself, and the same command goes on from there.
Watch it: torchstack status %s, and torchstack logs -f. Stop it: docs/how-to/recover-a-stopped-rollout.md."""

NOTHING_RUNS = "Interrupted. No step runs on; the same command goes on from there."

GOES_ON = """Interrupted. Step %s goes on by itself %s, and the same command goes on from there.
Watch it: torchstack logs -f %s
Stop it: %s"""


def run(line: playbook.Line, about: str, plain: bool) -> int:
    """Run a rollout, and return how the command ends.

    Args:
        about: site and release as they were typed.
        plain: whether only lines are wanted.
    """
    with run_records.kept(line.directory) as (record, variables):
        line = line._replace(environment={**line.environment, **variables})
        watched = not plain and _of_ours() and terminal.usable()
        return playbook.run(
            line, lambda: after_interruption(record, about),
            (lambda command, environment: _play(command, line.directory, environment, record)) if watched else None)


def _of_ours() -> bool:
    """Tell whether nobody has asked for other lines than the command's own."""
    callback = os.environ.get("ANSIBLE_STDOUT_CALLBACK", playbook.CALLBACK)
    return callback == playbook.CALLBACK and os.environ.get("ANSIBLE_VERBOSITY", "0") == "0"


def release_of(record: Mapping[str, object]) -> Release | None:
    """Read the release that a run has the lock of, or had; None where it is not on this machine, or not known yet."""
    lock = text(record.get("lock"))
    if not lock or not os.path.isdir(os.path.dirname(lock)):
        return None
    place = pathlib.Path(lock).parent
    return releases.read(str(place.parents[1]), place.name)


class Rollout:
    """What a run and its release say of themselves."""

    def __init__(self, record: pathlib.Path, pid: int) -> None:
        """Know where the run writes its record, and its process."""
        self.record = record
        self.pid = pid
        self.task: Mapping[str, Any] = {}
        self.memory = watching.Memory()
        self.is_here = False

    def gather(self) -> dict[str, Any] | None:
        """Look at the release; None until its lock is this very run's, which one of another machine's never is."""
        record = run_records.read(self.record)
        self.task = mapping(record.get("task"))
        release = release_of(record)
        if release is None or not (self.is_here or (release.lock and release.lock["pid"] == self.pid)):
            return None
        self.is_here = True
        return progress.look(release, sources=self.memory.sources)


def _play(command: Sequence[str], directory: pathlib.Path, environment: Mapping[str, str], record: pathlib.Path) -> int:
    """Run a playbook, write its lines as they are, and keep the view below them; its exit code."""
    screen, lines = terminal.Screen(), Lines()
    with contextlib.ExitStack() as stack:
        process, output = stack.enter_context(_terminal_for(command, directory, environment))
        told = stack.enter_context(_signals_to(process))
        rollout = Rollout(record, process.pid)
        watch = watching.Watch(rollout.gather)
        watch.start()
        drawn = 0.0
        try:
            while True:
                content, now = _read(output, TICK_SECONDS), time.monotonic()
                if content is None or (not content and process.poll() is not None):
                    break
                written, is_whole = lines.take(content, now)
                if written or (is_whole and now - drawn >= watching.DRAW_SECONDS):
                    shown = watch.found if is_whole and not told else None
                    screen.put(written, watching.drawing_of(shown, rollout.task))
                    drawn = now
        finally:
            watch.end()
            screen.close(lines.rest)
        return process.wait()


class Lines:
    """Puts what a program writes together to lines, and notices a question, which is a line without an end."""

    def __init__(self) -> None:
        self.rest = b""
        """what was not written yet"""
        self._since = 0.0
        self._asks = False

    def take(self, content: bytes, now: float) -> tuple[bytes, bool]:
        """Return what to write now, and whether it ends with a line's end.

        Args:
            content: what the program has written since; may be nothing.
            now: by any clock that only goes forward.
        """
        if content:
            self._since = now
        written, mark, self.rest = (self.rest + content).rpartition(b"\n")
        written += mark
        self._asks = self._asks and not mark
        if self.rest and (self._asks or now - self._since > PARTIAL_SECONDS):
            written, self.rest, self._asks = written + self.rest, b"", True
        return written, not self._asks


@contextlib.contextmanager
def _terminal_for(
    command: Sequence[str], directory: pathlib.Path, environment: Mapping[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start a program that believes to write to the terminal; the process, and where its output is read."""
    output, its_own = pty.openpty()
    try:
        tty.setraw(its_own)
        fcntl.ioctl(its_own, termios.TIOCSWINSZ, fcntl.ioctl(1, termios.TIOCGWINSZ, bytes(8)))
        process = subprocess.Popen(command, cwd=directory, env=environment, stdout=its_own, stderr=its_own)
    finally:
        os.close(its_own)
    try:
        with process:
            yield process, output
    finally:
        os.close(output)


@contextlib.contextmanager
def _signals_to(process: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Let signals be the process's matter, whose end is waited for; yield those that came."""
    told: list[int] = []

    def hand_on(number: int, _frame: object) -> None:
        told.append(number)
        # The terminal tells Ctrl-C to both.
        if number != signal.SIGINT:
            process.send_signal(number)

    former = {number: signal.signal(number, hand_on) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield told
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _read(output: int, seconds: float) -> bytes | None:
    """Read what was written within some time; empty where it was nothing, None at the end."""
    if not select.select([output], [], [], seconds)[0]:
        return b""
    try:
        return os.read(output, CHUNK) or None
    except OSError:
        # EIO of Linux: nobody has the other side any more.
        return None


def after_interruption(record: pathlib.Path, about: str) -> str:
    """Say what goes on after Ctrl-C, how it is watched, and how it is stopped."""
    try:
        release = release_of(run_records.read(record))
        if release is None:
            return INTERRUPTED % about
        found = progress.look(release)
    except (CommandError, StackError, OSError, ValueError):
        return INTERRUPTED % about
    going = [one for one in found["running"] if view.LIVE.get(one["state"])]
    if not going:
        return NOTHING_RUNS
    one, site = going[0], found["site"]
    arguments = "name=%s state=cancelled state_dir=%s" % (
        one["name"], os.path.dirname(progress.files_of(release, one["name"]).directory))
    # Until a job has begun, its host is the one that it was submitted from.
    where = "in the queue" if view.LIVE[one["state"]] == "waits" else "on %s" % one["host"]
    where += ", job %s" % one["job_id"] if one["job_id"] else ""
    return GOES_ON % (
        one["name"], where, " ".join([one["name"], site, found["release"]]),
        shlex.join(["ansible", site, "-m", "hpcml.torchstack.build_step", "-a", arguments]))
