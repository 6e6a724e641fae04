# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Own one attempt at a step on the target: take over or run, examine the result, record, stamp.

A launcher starts this program from an archive in the step's directory (see :mod:`.launcher`), detached from whoever
asked. It sleeps in sigtimedwait(2) and wakes for the end of a child, a request to stop, or the next heartbeat.

What the script prints goes to the log through a thread of the supervisor that masks secrets (see
:mod:`..logs.masking`). When the supervisor is killed, the next run finds and stops what is left.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any, Mapping, Sequence

from ..core.clock import utc
from ..core.processes import adopt_orphans
from . import build_cache, produced, scratch
from .needs import foundation_of, stamp_of, took_over
from .outcome import Outcome
from .own_place import place_of
from .supervised_job import WATCHED, Disowned
from .supervised_script import SupervisedScript

RECORD_SECONDS = 60.0
"""How long the end of a build is tried to be recorded: a disk that is full for a moment must not cost a build."""

STARTED = b"1"
"""The supervisor's answer to its launcher when it has recorded itself; any other answer says why it could not."""

ANSWER_BYTES = 1024

_IGNORED = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)


class Supervisor(SupervisedScript):
    """One attempt at a step; see :class:`.SupervisedJob`."""

    def __init__(self, directory: str, nonce: str, variables: Sequence[str] = ()) -> None:
        super().__init__(directory, nonce, variables)
        self.place = place_of(os.path.dirname(directory))
        self.taken_over: Mapping[str, Any] | None = None
        self.remarks: list[str] = []
        self.produced: produced.Produced | None = None

    def take_turn(self) -> bool:
        """Become the only supervisor of the job; one that was put back too often ends here."""
        mine = super().take_turn()
        if mine and self.turn is not None:
            excess = self.turn.excess()
            if excess is not None:
                self.record(excess, RECORD_SECONDS)
                return False
            self.turn.clean_up()
        return mine

    def attempt(self) -> Outcome:
        """Take over what it produces, or run the script; then see whether everything is there.

        What was built while a needed step was run again may hold parts of both, and does not count.
        """
        if not self.take_over():
            foundation = foundation_of(self.files, self.job.needs)
            gone = [name for name, attempt in foundation.items() if attempt is None]
            if gone:
                return Outcome.of("needs", outdated=gone)
            try:
                self.scratch = scratch.make(self.job.options, self.environment)
            except OSError as problem:
                return scratch.obstacle(self.job.options, problem)
            self.spawn()
            outcome = self.watch()
            left = self.members()
            if left:
                self.note("stopping %d process(es) that the script left running" % len(left))
                self.clear()
            self.end_log()
            if outcome.reason != "done":
                return outcome
            now = foundation_of(self.files, self.job.needs)
            moved = [name for name in now if now[name] != foundation[name]]
            if moved:
                return Outcome.of("needs", outdated=moved)
        missing = [path for path in self.inputs.created if not os.path.lexists(path)]
        if missing:
            return Outcome.of("creates", code=0, missing=missing)
        self.examine()
        return Outcome.of("done", code=0, **({"notes": self.remarks} if self.remarks else {}))

    def take_over(self) -> bool:
        """Tell whether what it produces was kept for these inputs, and is in place now."""
        cache = self.job.cache
        if not cache or not self.inputs.produced or os.path.exists(self.files.again):
            return False
        origin = build_cache.origin_of(cache, self.job.digest)
        self.produced, obstacle = build_cache.restore(
            cache, self.job.digest, self.inputs.produced, self.place, self.beat
        )
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
        if not self.inputs.produced or self.taken_over is not None:
            return
        cache = self.job.cache or ""
        # What comes from an index is the same for everybody, and a minute's reading where it is for GPUs.
        needles = self.place.needles(cache) if cache and not self.inputs.is_fetched else []
        self.produced = produced.examine(self.inputs.produced, self.place, needles, self.beat)
        if not cache:
            return
        if os.path.exists(self.files.own):
            self.produced = self.produced._replace(bound=["its script says that it is no result for others"])
        obstacle = produced.unshared(self.produced.bound)
        if not self.produced.bound:
            facts = {
                "step": self.files.name, "release": os.path.basename(self.place.prefix), "host": self.job.host,
                "finished": utc(time.time()), "seconds": round(time.monotonic() - self.begun, 1),
            }
            obstacle = build_cache.store(cache, self.job.digest, self.produced, self.place, facts, self.beat)
            self.remarks += [obstacle] if obstacle else []
            with contextlib.suppress(OSError):
                build_cache.remove_unused(cache, self.place.root, time.time())
        self.note(obstacle or "kept for other releases in %s" % cache)

    def record(self, outcome: Outcome, patience: float) -> None:
        """Write how it ended, and last after a success the stamp; what cannot be written is tried for ``patience``."""
        self.check_ownership()
        seconds = round(time.monotonic() - self.begun, 1)
        self.note("%s after %.1f s" % ("ended well" if outcome.reason == "done" else "failed", seconds))
        end = outcome._replace(nonce=self.job.nonce, finished=utc(time.time()), seconds=seconds)
        if self.listener is not None:
            self.listener.close()
            end = end.with_facts(**self.listener.outcome())
        self.keep(self.files.exit, end.as_json(), patience)
        if outcome.reason == "done":
            made = self.produced
            if made is not None:
                self.keep(self.files.result, made.record(), patience)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.files.again)
            stamp = stamp_of(self.job, end, made.digest if made else "", self.taken_over)
            self.keep(self.files.stamp, stamp._asdict(), patience)

    def run(self) -> int:
        """Carry out the attempt, from the announcement on; return the exit status of this process."""
        try:
            outcome = self.attempt()
            self.record(outcome, RECORD_SECONDS)
            return 0 if outcome.reason == "done" else 1
        except Disowned:
            self.abandon("another attempt or another supervisor has taken over; stopping without a record")
            return 1
        except Exception as error:
            self.abandon("the supervisor failed: %r" % error)
            self.record(Outcome.of("error", error=str(error) or repr(error)), 0)
            raise


def main(arguments: list[str]) -> int:
    """Run the supervisor, as its archive does: ``DIRECTORY NONCE CONFIRM-FD LOCK-FD [VARIABLE ...]``.

    A missing descriptor is -1. The variables are those of :func:`.own_job_id`. :data:`STARTED` on the first descriptor
    says that the job is recorded, anything else why not; the second one is the step's lock, held by this process.
    """
    directory, nonce, confirm, lock = arguments[0], arguments[1], int(arguments[2]), int(arguments[3])
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    for signum in _IGNORED:
        signal.signal(signum, signal.SIG_IGN)
    for descriptor in (confirm, lock):
        if descriptor >= 0:
            os.set_inheritable(descriptor, False)
    os.umask(0o022)
    os.chdir("/")
    adopt_orphans()
    try:
        supervisor = Supervisor(directory, nonce, arguments[4:])
        if not supervisor.take_turn():
            supervisor.leave()
            return 0
        supervisor.announce()
    except Exception as error:
        if isinstance(error, Disowned) and confirm < 0:
            return 0
        _answer(confirm, (str(error) or repr(error)).encode("utf-8", "replace"))
        raise
    _answer(confirm, STARTED)
    try:
        return supervisor.run()
    finally:
        supervisor.leave()


def _answer(descriptor: int, text: bytes) -> None:
    if descriptor >= 0:
        # Whoever waited for this may have been killed meanwhile; the job goes on.
        with contextlib.suppress(OSError):
            os.write(descriptor, text[:ANSWER_BYTES])
        os.close(descriptor)
