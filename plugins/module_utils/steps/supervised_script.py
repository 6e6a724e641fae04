# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run the script of a step, keep its limits, and stop all that it has started."""

from __future__ import annotations

import os
import shutil
import time
from typing import Sequence

from ..core.build_environment import handed_on
from ..core.processes import (
    MARKER,
    Process,
    command_line,
    default_signals,
    job_processes,
    read_process,
    reap_children,
    stop_processes,
)
from ..logs.masking import LogFilter
from . import hang_actions
from .job_state import HEARTBEAT_SECONDS
from .network_guard import RefusingListener, variables
from .network_refusals import RECORD
from .outcome import Outcome, describe_outcome, outcome_of_status
from .supervised_job import SupervisedJob

BATCH_GRACE = 8.0
"""Seconds that a script has for its end when a batch system ends the job: PBS kills the supervisor 10 s after it has
asked (``kill_delay``, pbs_queue_attributes(7B)), Slurm 30 s (``KillWait``, slurm.conf(5)). What the supervisor has not
stopped by then would stay on a node whose batch system only knows the supervisor."""

HANGING_SECONDS = 300.0
"""How long whoever has lost its turn waits for the end of processes that hang in the kernel, before it leaves them."""


class SupervisedScript(SupervisedJob):
    """The script of one attempt at a step, in the hands of its supervisor; see :class:`.SupervisedJob`."""

    def __init__(self, directory: str, nonce: str, variables: Sequence[str] = ()) -> None:
        super().__init__(directory, nonce, variables)
        self.child = 0
        self.status: int | None = None
        self.filter: LogFilter | None = None
        self.listener: RefusingListener | None = None

    def reap(self) -> None:
        """Collect children that ended, adopted orphans included."""
        status = reap_children(self.child)
        if status is not None:
            self.status = status

    def tick(self) -> None:
        """Do what has to go on while something else takes its time."""
        self.reap()
        self.beat()

    def members(self) -> list[Process]:
        """Find all living processes of the job."""
        return job_processes(self.job.nonce, self.child or None, self.job.child_start_time, keep=os.getpid())

    def spawn(self) -> None:
        """Start the script in a session of its own."""
        shell = "/bin/bash" if os.path.exists("/bin/bash") else shutil.which("bash") or "bash"
        environment = self.environment
        environment[MARKER] = self.job.nonce
        hang_actions.prepare(environment, self.job.limits)
        if not self.inputs.has_network:
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
        start_time = process.start_time if process else None
        self.job = self.job._replace(child_pid=self.child, child_start_time=start_time)
        self.job.write(self.files)

    def watch(self) -> Outcome:
        """Wait for the script's end and keep its limits; return how it ended."""
        limits = self.job.limits
        timeout, silence = limits.timeout, limits.no_output_timeout
        started = grown = time.monotonic()
        size = self.printed()
        while True:
            self.tick()
            if self.status is not None:
                return outcome_of_status(self.status)
            now = time.monotonic()
            if self.printed() != size:
                size, grown = self.printed(), now
            if self.request is not None:
                return self.halt(Outcome.of("stopped", signal=self.request))
            if timeout and now - started >= timeout:
                return self.halt(Outcome.of("timeout", limit=timeout))
            if silence and now - grown >= silence:
                secrets = self.inputs.secrets
                plain = {name: value for name, value in handed_on(os.environ).items() if name not in secrets}
                found = hang_actions.examine(
                    self.files, self.job, self.log, self.members, self.note, self.tick, plain, self.known
                )
                return self.halt(Outcome.of("no_output_timeout", limit=silence, **found))
            waits: list[float] = [HEARTBEAT_SECONDS]
            if timeout:
                waits.append(started + timeout - now)
            if silence:
                waits += [grown + silence - now, max(0.05, silence / 10)]
            self.sleep(min(waits))

    def printed(self) -> tuple[int, int]:
        """Measure what tells that the script is not silent: how much it has written, and the size of the log."""
        return (self.filter.seen if self.filter else 0), os.fstat(self.log).st_size

    def end_log(self) -> None:
        """See that everything the script has printed is in the log."""
        if self.filter is None:
            return
        self.filter.close()
        if self.filter.lost:
            self.note("%d bytes of what it printed could not be written" % self.filter.lost)
        self.filter = None

    def halt(self, outcome: Outcome) -> Outcome:
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
        grace = self.job.limits.grace
        if self.turn is not None and (self.request is not None or self.leaving):
            # The batch system, or the supervisor of the next start, does not wait for longer.
            grace = min(grace, BATCH_GRACE)
        self.hanging = stop_processes(self.members, grace, self.tick)
        for process in self.hanging:
            facts = (process.pid, process.command, process.state)
            self.note("process %d (%s, state %s) cannot be killed; it hangs in the kernel" % facts)
        return self.hanging
