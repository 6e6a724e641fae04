# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The process on the target that owns one attempt at a step: limits, log, heartbeat, the record of the end, the stamp.

A launcher starts it from an archive in the step's directory (see :mod:`.launcher`), detached from whoever asked.
It sleeps in sigtimedwait(2) and wakes for the end of a child, a request to stop, or the next heartbeat.

The script writes to the log itself, not through this process: when the supervisor is killed the build is not cut off in
the middle of a line, and the next run finds and stops what is left.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time

from ansible_collections.hpcml.torchstack.plugins.module_utils import artefacts
from ansible_collections.hpcml.torchstack.plugins.module_utils.files import write_json
from ansible_collections.hpcml.torchstack.plugins.module_utils.jobs import (
    HEARTBEAT_SECONDS,
    read_record,
    write_in_place,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.processes import (
    MARKER,
    Process,
    adopt_orphans,
    catches,
    command_line,
    here,
    job_processes,
    read_process,
    reap_children,
    run_program,
    stop_processes,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps import (
    SCHEMA,
    StepFiles,
    created_paths,
    describe_outcome,
    is_stamped,
    step_files,
    utc,
)

SHELL_STARTUP = ("BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS")
"""Variables by which a login could reach into the script's shell before its first line."""

RECORD_SECONDS = 60.0
"""How long the end of a build is tried to be recorded: a disk that is full for a moment must not cost a build."""

STARTED = b"1"
"""The supervisor's answer to its launcher when it has recorded itself; any other answer says why it could not."""

ANSWER_BYTES = 1024

_REQUESTS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
_SHRUGGED_OFF = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)
_WATCHED = (signal.SIGCHLD, *_REQUESTS)
_DUMP_SECONDS = 1.0
_STACK_TOOL_SECONDS = 15


class Disowned(Exception):
    """The step's job.json is gone or is another job's: this attempt has no right to go on."""


class Supervisor:
    """One attempt at a step."""

    def __init__(self, directory: str, nonce: str) -> None:
        self.files = StepFiles(os.path.basename(directory), directory)
        self.job = read_record(self.files.job) or {}
        if self.job.get("nonce") != nonce:
            # It took so long to start that the step was given to another one.
            raise Disowned("%s is another attempt's" % self.files.job)
        facts = (read_record(self.files.inputs) or {})["facts"]
        self.created = created_paths(facts)
        self.log = os.open(self.files.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.child = 0
        self.status: int | None = None
        self.request: int | None = None
        self.beaten = time.monotonic()
        self.begun = time.monotonic()
        self.from_cache = False

    def note(self, text: str) -> None:
        """A line of our own in the log."""
        with contextlib.suppress(OSError):
            os.write(self.log, ("==== %s\n" % text).encode("utf-8", "replace"))

    def announce(self) -> None:
        """Become the recorded owner of the job."""
        place = here()
        process = read_process(os.getpid())
        self.job.update(
            phase="running",
            host=place.host,
            boot_id=place.boot_id,
            pid=os.getpid(),
            start_time=process.start_time if process else None,
            heartbeat=utc(time.time()),
        )
        write_json(self.files.job, self.job)
        self.note(
            "attempt %d  %s  host %s  digest %s"
            % (self.job["attempt"], self.job["started"], place.host, self.job["digest"])
        )

    def beat(self) -> None:
        """Write the heartbeat when it is due.

        Raises:
            Disowned: the job is no longer this one's.
        """
        if time.monotonic() - self.beaten < HEARTBEAT_SECONDS:
            return
        self.beaten = time.monotonic()
        self.check_ownership()
        self.job["heartbeat"] = utc(time.time())
        # A full or stuttering file system is no reason to give up a build; others will see the old heartbeat.
        with contextlib.suppress(OSError):
            write_in_place(self.files.job, self.job)

    def check_ownership(self) -> None:
        """Make sure that job.json still names this job.

        Raises:
            Disowned: it does not.
        """
        try:
            record = read_record(self.files.job)
        except OSError:
            return
        if record is None or record.get("nonce") != self.job["nonce"]:
            raise Disowned

    def reap(self) -> None:
        """Collect children that ended, adopted orphans included."""
        status = reap_children(self.child)
        if status is not None:
            self.status = status

    def tick(self) -> None:
        """What has to go on while something else takes its time."""
        self.reap()
        self.beat()

    def members(self) -> list[Process]:
        """All living processes of the job."""
        return job_processes(self.job["nonce"], self.child or None, self.job.get("child_start_time"), keep=os.getpid())

    def spawn(self) -> None:
        """Start the script in a session of its own."""
        shell = "/bin/bash" if os.path.exists("/bin/bash") else shutil.which("bash") or "bash"
        environment = {key: value for key, value in os.environ.items() if key not in SHELL_STARTUP}
        environment[MARKER] = self.job["nonce"]
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self.child = os.fork()
        if self.child == 0:
            try:
                os.setsid()
                for number in signal.valid_signals():
                    with contextlib.suppress(OSError, ValueError):
                        signal.signal(number, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_SETMASK, [])
                for source, target in ((null, 0), (self.log, 1), (self.log, 2)):
                    os.dup2(source, target)
                os.execve(shell, [shell, self.files.script], environment)
            except BaseException as error:
                os.write(self.log, ("%s: %s\n" % (shell, error)).encode("utf-8", "replace"))
            finally:
                os._exit(127)
        os.close(null)
        process = read_process(self.child)
        self.job.update(child_pid=self.child, child_start_time=process.start_time if process else None)
        write_json(self.files.job, self.job)

    def watch(self) -> dict:
        """Wait for the script's end and keep its limits.

        Returns:
            The outcome: ``reason`` and what belongs to it.
        """
        limits = self.job["limits"]
        timeout, silence = limits["timeout"], limits["no_output_timeout"]
        started = grown = time.monotonic()
        size = os.fstat(self.log).st_size
        while True:
            self.tick()
            if self.status is not None:
                return describe_status(self.status)
            now = time.monotonic()
            if os.fstat(self.log).st_size != size:
                size, grown = os.fstat(self.log).st_size, now
            if self.request is not None:
                return self.halt({"reason": "stopped", "signal": self.request})
            if timeout and now - started >= timeout:
                return self.halt({"reason": "timeout", "limit": timeout})
            if silence and now - grown >= silence:
                self.dump_stacks()
                return self.halt({"reason": "no_output_timeout", "limit": silence})
            waits = [HEARTBEAT_SECONDS]
            if timeout:
                waits.append(started + timeout - now)
            if silence:
                waits += [grown + silence - now, max(0.05, silence / 10)]
            self.sleep(min(waits))

    def sleep(self, seconds: float) -> None:
        """Sleep until something happens, at most ``seconds``."""
        received = signal.sigtimedwait(_WATCHED, max(0.01, seconds))
        if received is not None and received.si_signo in _REQUESTS:
            self.request = received.si_signo

    def dump_stacks(self) -> None:
        """Have the job's Python processes say where they hang, before they are stopped.

        Only a process that has a handler for the signal gets it (a program that registered faulthandler with it, for
        example); any other would die of it. py-spy is asked for the other Python processes, where there is one.
        """
        name = self.job["limits"]["hang_signal"]
        signum = None if name == "none" else getattr(signal, "SIG" + name)
        asked = False
        tool = shutil.which("py-spy")
        for process in self.members():
            if signum is not None and catches(process.pid, signum):
                self.note("asking process %d (%s) for its stack by SIG%s" % (process.pid, process.command, name))
                with contextlib.suppress(OSError):
                    os.kill(process.pid, signum)
                    asked = True
            elif tool and process.command.startswith("python"):
                self.note("py-spy dump of process %d" % process.pid)
                with contextlib.suppress(OSError, subprocess.SubprocessError):
                    run_program(
                        [tool, "dump", "--pid", str(process.pid)], stdin=subprocess.DEVNULL, stdout=self.log,
                        stderr=self.log, timeout=_STACK_TOOL_SECONDS
                    )
        if asked:
            time.sleep(_DUMP_SECONDS)

    def halt(self, outcome: dict) -> dict:
        """Stop the job and return ``outcome``."""
        self.note("%s; what was running:" % describe_outcome(self.files.name, outcome))
        for process in self.members():
            self.note("  %d %s %s" % (process.pid, process.state, command_line(process.pid) or process.command))
        self.clear()
        return outcome

    def clear(self) -> None:
        """Stop every process of the job."""
        for process in stop_processes(self.members, self.job["limits"]["grace"], self.tick):
            self.note("process %d (%s) cannot be killed; it hangs in the kernel" % (process.pid, process.command))

    def foundation(self) -> dict[str, str | None]:
        """The attempt by which each needed step has its stamp; None where that is not for the digest asked for."""
        top = os.path.dirname(self.files.directory)
        stamps = {name: read_record(step_files(top, name).stamp) for name in self.job["needs"]}
        return {
            name: stamp["nonce"] if stamp is not None and is_stamped(stamp, self.job["needs"][name]) else None
            for name, stamp in stamps.items()
        }

    def attempt(self) -> dict:
        """Take the artefacts from the cache, or run the script; then see whether everything is there.

        What was built while a needed step was run again may hold parts of both, and does not count.
        """
        cache = self.job.get("cache")
        if cache:
            obstacle = artefacts.restore(cache, self.job["digest"], self.created, self.beat)
            self.from_cache = obstacle is None
            self.note(obstacle or "taken from the cache %s" % cache)
        if not self.from_cache:
            foundation = self.foundation()
            gone = [name for name, attempt in foundation.items() if attempt is None]
            if gone:
                return {"reason": "needs", "outdated": gone}
            self.spawn()
            outcome = self.watch()
            left = self.members()
            if left:
                self.note("stopping %d process(es) that the script left running" % len(left))
                self.clear()
            if outcome["reason"] != "done":
                return outcome
            moved = [name for name, attempt in self.foundation().items() if attempt != foundation[name]]
            if moved:
                return {"reason": "needs", "outdated": moved}
        missing = [path for path in self.created if not os.path.lexists(path)]
        if missing:
            return {"reason": "creates", "code": 0, "missing": missing}
        if cache and not self.from_cache:
            obstacle = artefacts.store(cache, self.job["digest"], self.created, self.beat)
            self.note(obstacle or "stored in the cache %s" % cache)
            if obstacle:
                return {"reason": "done", "code": 0, "notes": [obstacle]}
        return {"reason": "done", "code": 0}

    def record(self, outcome: dict, patience: float) -> None:
        """Write how it ended, and after a success the stamp: that is the last thing written.

        Args:
            outcome: how it ended.
            patience: seconds for which a record that cannot be written is tried again.
        """
        self.check_ownership()
        seconds = round(time.monotonic() - self.begun, 1)
        self.note("%s after %.1f s" % ("ended well" if outcome["reason"] == "done" else "failed", seconds))
        end = dict(outcome, nonce=self.job["nonce"], finished=utc(time.time()), seconds=seconds)
        self.keep(self.files.exit, end, patience)
        if outcome["reason"] == "done":
            self.keep(self.files.stamp, self.stamp(end), patience)

    def keep(self, path: str, record: dict, patience: float) -> None:
        """Write a record, again and again where that fails.

        Raises:
            OSError: it cannot be written, and waiting did not help or was ended by a request to stop.
            Disowned: the job is no longer this one's.
        """
        deadline, pause = time.monotonic() + patience, 0.1
        while True:
            try:
                return write_json(path, record)
            except OSError as error:
                if self.request is not None or time.monotonic() + pause > deadline:
                    raise
                self.note("%s cannot be written (%s); trying again" % (path, error.strerror))
            self.sleep(pause)
            self.check_ownership()
            pause = min(2 * pause, 5.0)

    def stamp(self, end: dict) -> dict:
        """The record of a success."""
        kept = {key: self.job[key] for key in ("digest", "nonce", "needs", "attempt", "started", "host")}
        return dict(
            kept, schema=SCHEMA, finished=end["finished"], seconds=end["seconds"], from_cache=self.from_cache
        )

    def run(self) -> int:
        """The whole attempt, from the announcement on.

        Returns:
            The exit status of this process: 0 when the step has succeeded.
        """
        try:
            outcome = self.attempt()
            self.record(outcome, RECORD_SECONDS)
            return 0 if outcome["reason"] == "done" else 1
        except Disowned:
            self.note("job.json is no longer this attempt's; stopping without a record")
            self.beaten = float("inf")
            self.clear()
            return 1
        except Exception as error:
            self.note("the supervisor failed: %r" % error)
            self.beaten = float("inf")
            self.clear()
            self.record({"reason": "error", "error": str(error) or repr(error)}, 0)
            raise


def describe_status(status: int) -> dict:
    """The outcome that a wait status stands for."""
    if os.WIFSIGNALED(status):
        return {"reason": "signal", "signal": os.WTERMSIG(status)}
    code = os.WEXITSTATUS(status)
    return {"reason": "exit" if code else "done", "code": code}


def main(arguments: list[str]) -> int:
    """Entry of the archive: ``DIRECTORY NONCE CONFIRM-FD LOCK-FD``; a missing descriptor is -1.

    :data:`STARTED` on the first descriptor tells the launcher that the job is recorded, anything else why it
    is not; the second one is the step's lock, which lives as long as this process.
    """
    directory, nonce, confirm, lock = arguments[0], arguments[1], int(arguments[2]), int(arguments[3])
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    for signum in _SHRUGGED_OFF:
        signal.signal(signum, signal.SIG_IGN)
    for descriptor in (confirm, lock):
        if descriptor >= 0:
            os.set_inheritable(descriptor, False)
    os.umask(0o022)
    os.chdir("/")
    adopt_orphans()
    try:
        supervisor = Supervisor(directory, nonce)
        supervisor.announce()
    except Exception as error:
        _answer(confirm, (str(error) or repr(error)).encode("utf-8", "replace"))
        raise
    _answer(confirm, STARTED)
    return supervisor.run()


def _answer(descriptor: int, text: bytes) -> None:
    if descriptor >= 0:
        # Whoever waited for this may have been killed meanwhile; the job goes on.
        with contextlib.suppress(OSError):
            os.write(descriptor, text[:ANSWER_BYTES])
        os.close(descriptor)
