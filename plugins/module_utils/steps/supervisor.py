# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The process on the target that owns one attempt at a step: limits, log, heartbeat, the record of the end, the stamp.

A launcher starts it from an archive in the step's directory (see :mod:`.launcher`), detached from whoever asked.
It sleeps in sigtimedwait(2) and wakes for the end of a child, a request to stop, or the next heartbeat.

What the script prints goes to the log through a thread of the supervisor that masks secrets (see :mod:`.log_filter`).
When the supervisor is killed, the next run finds and stops what is left.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time

from ..core.build_environment import handed_on
from ..core.files import write_json
from ..core.processes import (
    MARKER,
    Process,
    command_line,
    default_signals,
    here,
    job_processes,
    read_process,
    reap_children,
    stop_processes,
)
from ..core.redaction import redacted, secret_values
from ..logs.masking import LogFilter
from . import batch_claim, hangs, produced, scratch
from . import build_cache as artefacts
from .batch_records import submission_of
from .job import (
    HEARTBEAT_SECONDS,
    foundation_of,
    read_record,
    write_in_place,
)
from .network_guard import (
    RECORD,
    RefusingListener,
    variables,
)
from .own_place import place_of
from .step import (
    StepFiles,
    created_paths,
    describe_outcome,
    describe_status,
    is_stamped,
    produced_paths,
    utc,
)
from .step_results import stamp_record, took_over

RECORD_SECONDS = 60.0
"""How long the end of a build is tried to be recorded: a disk that is full for a moment must not cost a build."""

BATCH_GRACE = 8.0
"""Seconds that a script has for its end when a batch system ends the job: PBS kills the supervisor 10 s after it has
asked (``kill_delay``, pbs_queue_attributes(7B)), Slurm 30 s (``KillWait``, slurm.conf(5)). What the supervisor has not
stopped by then would stay on a node whose batch system only knows the supervisor."""

HANGING_SECONDS = 300.0
"""How long whoever has lost its turn waits for the end of processes that hang in the kernel, before it leaves them."""

_REQUESTS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
WATCHED = (signal.SIGCHLD, *_REQUESTS)


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
        self.produces = produced_paths(facts)
        self.is_fetched = bool(facts.get("places"))
        self.place = place_of(os.path.dirname(directory))
        self.has_network = facts.get("network", True)
        self.listener: RefusingListener | None = None
        self.log = os.open(self.files.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.turn: batch_claim.Turn | None = None
        self.child = 0
        self.status: int | None = None
        self.request: int | None = None
        self.leaving = False
        self.hanging: list[Process] = []
        self.scratch = ""
        self.secrets = facts.get("secrets", [])
        self.environment = handed_on(os.environ, self.secrets)
        self.known = secret_values(self.environment, self.secrets)
        self.filter: LogFilter | None = None
        self.beaten = time.monotonic()
        self.begun = time.monotonic()
        self.taken_over: dict | None = None
        self.remarks: list[str] = []
        self.produced: produced.Produced | None = None

    def note(self, text: str) -> None:
        """A line of our own in the log."""
        with contextlib.suppress(OSError):
            os.write(self.log, ("==== %s\n" % redacted(text, self.known)).encode("utf-8", "replace"))

    def take_turn(self) -> bool:
        """Become the only supervisor of a job that a batch system has started; any other has only its launcher's.

        Returns:
            False where there is nothing to do: another supervisor builds, or the step is complete, or this job has been
            put back too often.
        """
        if self.job["launcher"] == "local":
            batch_claim.Turn(self.files, self.job, here(), None).await_end_of(batch_claim.former_of(self.job))
            return True
        submission = submission_of(self.files, self.job)
        if submission is None:
            return False
        job_id = batch_claim.own_job_id(os.environ)
        self.turn = batch_claim.Turn(self.files, self.job, here(), job_id, submission["requeues"])
        if not self.turn.take():
            return False
        self.job = read_record(self.files.job) or {}
        stamp = read_record(self.files.stamp)
        if self.job.get("nonce") != submission["nonce"] or (stamp and is_stamped(stamp, self.job["digest"])):
            return False
        excess = self.turn.excess()
        if excess is not None:
            self.record(excess, RECORD_SECONDS)
            return False
        self.turn.clean_up()
        return True

    def leave(self) -> None:
        """Give back what this attempt had to itself, when nothing is left running."""
        scratch.remove(self.scratch)
        if self.turn is not None and self.turn.number >= 0 and not self.hanging:
            self.turn.leave()

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
            begun=utc(time.time()),
        )
        if self.turn is not None:
            start, restarts = os.fstat(self.log).st_size, batch_claim.own_restarts(os.environ)
            self.job.update(job_id=self.turn.job_id, log_offset=start, restarts=restarts, turn=self.turn.number)
        write_json(self.files.job, self.job)
        facts = (self.job["attempt"], self.job["started"], place.host, self.job["digest"])
        self.note("attempt %d  %s  host %s  digest %s" % facts)

    def beat(self) -> None:
        """Write the heartbeat when it is due.

        Raises:
            Disowned: the job is no longer this one's.
        """
        if time.monotonic() - self.beaten < HEARTBEAT_SECONDS:
            return
        self.beaten = time.monotonic()
        if self.leaving:
            if self.turn is not None:
                self.turn.show_life()
            return
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
        if self.turn is not None and self.turn.lost():
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
        environment = self.environment
        environment[MARKER] = self.job["nonce"]
        hangs.prepare(environment, self.job["limits"])
        if not self.has_network:
            self.listener = RefusingListener(self.files.name, self.files.path(RECORD), self.note)
            environment.update(variables(self.listener.port))
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self.filter = LogFilter(self.log, self.known)
        self.child = os.fork()
        if self.child == 0:
            try:
                os.setsid()
                default_signals()
                for source, target in ((null, 0), (self.filter.writer, 1), (self.filter.writer, 2)):
                    os.dup2(source, target)
                os.execve(shell, [shell, self.files.script], environment)
            except BaseException as error:
                os.write(self.log, ("%s: %s\n" % (shell, error)).encode("utf-8", "replace"))
            finally:
                os._exit(127)
        os.close(null)
        self.filter.start()
        if self.listener is not None:
            self.listener.start()
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
        size = self.printed()
        while True:
            self.tick()
            if self.status is not None:
                return describe_status(self.status)
            now = time.monotonic()
            if self.printed() != size:
                size, grown = self.printed(), now
            if self.request is not None:
                return self.halt({"reason": "stopped", "signal": self.request})
            if timeout and now - started >= timeout:
                return self.halt({"reason": "timeout", "limit": timeout})
            if silence and now - grown >= silence:
                plain = {name: value for name, value in handed_on(os.environ).items() if name not in self.secrets}
                found = hangs.examine(
                    self.files, self.job, self.log, self.members, self.note, self.tick, plain, self.known
                )
                return self.halt({"reason": "no_output_timeout", "limit": silence, **found})
            waits = [HEARTBEAT_SECONDS]
            if timeout:
                waits.append(started + timeout - now)
            if silence:
                waits += [grown + silence - now, max(0.05, silence / 10)]
            self.sleep(min(waits))

    def printed(self) -> tuple[int, int]:
        """What tells that the script is not silent: how much it has written, and the size of the log."""
        return (self.filter.seen if self.filter else 0), os.fstat(self.log).st_size

    def end_log(self) -> None:
        """See that everything the script has printed is in the log."""
        if self.filter is None:
            return
        self.filter.close()
        if self.filter.lost:
            self.note("%d bytes of what it printed could not be written" % self.filter.lost)
        self.filter = None

    def sleep(self, seconds: float) -> None:
        """Sleep until something happens, at most ``seconds``."""
        received = signal.sigtimedwait(WATCHED, max(0.01, seconds))
        if received is not None and received.si_signo in _REQUESTS:
            self.request = received.si_signo

    def halt(self, outcome: dict) -> dict:
        """Stop the job and return ``outcome``."""
        self.note("%s; what was running:" % describe_outcome(self.files.name, outcome))
        for process in self.members():
            self.note("  %d %s %s" % (process.pid, process.state, command_line(process.pid) or process.command))
        self.clear()
        return outcome

    def abandon(self, why: str) -> None:
        """Stop a build that is no longer wanted, or cannot be watched."""
        self.note(why)
        self.leaving, self.beaten = True, float("-inf")
        deadline = time.monotonic() + HANGING_SECONDS
        while self.clear() and time.monotonic() < deadline:
            pass
        self.end_log()

    def clear(self) -> list[Process]:
        """Stop every process of the job; the answer is who hangs in the kernel."""
        grace = self.job["limits"]["grace"]
        if self.turn is not None and (self.request is not None or self.leaving):
            # The batch system, or the supervisor of the next start, does not wait for longer.
            grace = min(grace, BATCH_GRACE)
        self.hanging = stop_processes(self.members, grace, self.tick)
        for process in self.hanging:
            facts = (process.pid, process.command, process.state)
            self.note("process %d (%s, state %s) cannot be killed; it hangs in the kernel" % facts)
        return self.hanging

    def attempt(self) -> dict:
        """Take over what it produces, or run the script; then see whether everything is there.

        What was built while a needed step was run again may hold parts of both, and does not count.
        """
        if not self.take_over():
            foundation = foundation_of(self.files, self.job["needs"])
            gone = [name for name, attempt in foundation.items() if attempt is None]
            if gone:
                return {"reason": "needs", "outdated": gone}
            try:
                self.scratch = scratch.make(self.job["options"], self.environment)
            except OSError as problem:
                return scratch.obstacle(self.job["options"], problem)
            self.spawn()
            outcome = self.watch()
            left = self.members()
            if left:
                self.note("stopping %d process(es) that the script left running" % len(left))
                self.clear()
            self.end_log()
            if outcome["reason"] != "done":
                return outcome
            now = foundation_of(self.files, self.job["needs"])
            moved = [name for name in now if now[name] != foundation[name]]
            if moved:
                return {"reason": "needs", "outdated": moved}
        missing = [path for path in self.created if not os.path.lexists(path)]
        if missing:
            return {"reason": "creates", "code": 0, "missing": missing}
        self.examine()
        return dict({"reason": "done", "code": 0}, **({"notes": self.remarks} if self.remarks else {}))

    def take_over(self) -> bool:
        """Whether what it produces was kept for these inputs, and is in place now."""
        cache = self.job.get("cache")
        if not cache or not self.produces or os.path.exists(self.files.again):
            return False
        origin = artefacts.origin_of(cache, self.job["digest"])
        self.produced, obstacle = artefacts.restore(cache, self.job["digest"], self.produces, self.place, self.beat)
        if self.produced is None:
            self.note(obstacle)
            # Where there is an entry, somebody should look at who or what has changed it.
            self.remarks += [obstacle] if origin else []
            return False
        self.taken_over = origin or {}
        self.note(took_over(self.taken_over))
        return True

    def examine(self) -> None:
        """See what was produced, and keep it for other releases."""
        if not self.produces or self.taken_over is not None:
            return
        cache = self.job.get("cache") or ""
        # What comes from an index is the same for everybody, and a minute's reading where it is for GPUs.
        needles = self.place.needles(cache) if cache and not self.is_fetched else []
        self.produced = produced.examine(self.produces, self.place, needles, self.beat)
        if not cache:
            return
        if os.path.exists(self.files.own):
            self.produced = self.produced._replace(bound=["its script says that it is no result for others"])
        obstacle = produced.unshared(self.produced.bound)
        if not self.produced.bound:
            facts = {
                "step": self.files.name, "release": os.path.basename(self.place.prefix), "host": self.job["host"],
                "finished": utc(time.time()), "seconds": round(time.monotonic() - self.begun, 1),
            }
            obstacle = artefacts.store(cache, self.job["digest"], self.produced, self.place, facts, self.beat)
            self.remarks += [obstacle] if obstacle else []
            with contextlib.suppress(OSError):
                artefacts.remove_unused(cache, self.place.root, time.time())
        self.note(obstacle or "kept for other releases in %s" % cache)

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
        if self.listener is not None:
            self.listener.close()
            end.update(self.listener.outcome())
        self.keep(self.files.exit, end, patience)
        if outcome["reason"] == "done":
            made = self.produced
            if made is not None:
                self.keep(self.files.result, made.record(), patience)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.files.again)
            stamp = stamp_record(self.job, end, made.digest if made else "", self.taken_over)
            self.keep(self.files.stamp, stamp, patience)

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
            self.abandon("another attempt or another supervisor has taken over; stopping without a record")
            return 1
        except Exception as error:
            self.abandon("the supervisor failed: %r" % error)
            self.record({"reason": "error", "error": str(error) or repr(error)}, 0)
            raise
