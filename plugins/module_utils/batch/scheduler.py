# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the launcher of batch jobs asks of a batch system, in words that no batch system owns.

An adapter is one class that has the methods of :class:`Scheduler` and speaks the commands of one batch system. It keeps
nothing between two calls: the step's records and the scheduler's own are the only memory.
"""

from __future__ import annotations

from typing import Mapping, NamedTuple, Protocol, Sequence

PENDING = "PENDING"
"""The job waits: for resources, for its turn, for a hold to be lifted, or to be started again."""

RUNNING = "RUNNING"
"""The job has nodes, or is being started or ended there."""

ENDED = "ENDED"
"""The job is over, and :attr:`Sight.end` says how."""

DONE = "done"
FAILED = "failed"
TIME_LIMIT = "time_limit"
PREEMPTED = "preempted"
NODE_FAILED = "node_failed"
CANCELLED = "cancelled"
OUT_OF_MEMORY = "out_of_memory"
BOOT_FAILED = "boot_failed"

ENDS = (DONE, FAILED, TIME_LIMIT, PREEMPTED, NODE_FAILED, CANCELLED, OUT_OF_MEMORY, BOOT_FAILED)
"""Every way a job can end."""


class Sight(NamedTuple):
    """One job as its scheduler shows it at one moment."""

    job_id: str
    name: str
    state: str
    """:data:`PENDING`, :data:`RUNNING` or :data:`ENDED`."""
    held: bool = False
    """Whether it waits until somebody releases it."""
    reason: str = ""
    """Why it waits, or what the scheduler adds to how it ended, in its own words."""
    nodes: str = ""
    """Where it runs or ran, as the scheduler writes it."""
    exit_code: int | None = None
    """The batch script's exit code, where it ended by itself."""
    signal: int | None = None
    """The signal that ended the batch script."""
    end: str = ""
    """One of :data:`ENDS`; empty before the end."""
    words: str = ""
    """What the scheduler calls its state, for the operator: ``TIMEOUT``, ``Job_state F, Exit_status -29``."""
    position: int | None = None
    """Its place among the jobs that wait in its partition or queue, from 1; None where that is not known."""
    of: int | None = None
    """How many wait there."""
    estimated_start: str = ""
    """When the scheduler expects to start it, in UTC as the records spell it; empty where it does not say."""
    restarts: int = 0
    """How often the scheduler itself has put it back into the queue."""
    partition: str = ""
    """Its partition or queue."""
    advice: str = ""
    """What an operator can do about why it waits or how it ended, as sentences; empty where there is nothing to add."""


class Scheduler(Protocol):
    """The commands of one batch system.

    A command that is missing, hangs, or cannot reach the scheduler is a
    ``StackError(failed_step="scheduler")`` in each method. It never means that there is no such job.
    """

    name: str
    """The launcher's name: ``slurm`` or ``pbs``."""

    title: str
    """How an operator calls it: ``Slurm`` or ``PBS``."""

    def script(self, name: str, options: Mapping, log: str, command: Sequence[str]) -> str:
        """The text of the batch script: directives first, then umask 022, then ``command``.

        The script reads no login or startup file, and ends with the exit code of ``command``.

        Args:
            name: the job's name, unique for this submission.
            options: as :func:`.job_options.check_options` returns them.
            log: file to which output and errors are appended, on a file system that the nodes share.
            command: the words to run, from an absolute path.

        Raises:
            StackError: ``failed_step="options"``: what is asked for cannot be written as a directive.
        """

    def submit(self, path: str, options: Mapping, keep: Sequence[int], secrets: Sequence[str] = ()) -> str:
        """Submit the script in ``path``.

        The command is started in a session of its own: it ends its work when this process is killed meanwhile.

        Args:
            path: the batch script.
            options: as for :meth:`script`.
            keep: descriptors that stay open in the command as long as it runs, such as the step's lock.
            secrets: variables that the job gets of the caller's environment whatever their names say.

        Returns:
            The job's identifier.

        Raises:
            StackError: ``failed_step="submit"``: the scheduler has refused the job, in its own words; or
                ``failed_step="scheduler"``: nobody knows whether it was accepted.
        """

    def find(self, name: str) -> list[Sight]:
        """The jobs of this name and account: those in the queue first, then those that only the accounting knows.

        Returns:
            Empty only when the scheduler has answered and knows none.
        """

    def cancel(self, job_id: str) -> None:
        """Ask the scheduler to cancel a job; one that is over already is no error."""


def scheduler_of(name: str, bin_directory: str = "") -> Scheduler:
    """The adapter for a launcher.

    Args:
        name: ``slurm`` or ``pbs``.
        bin_directory: where the batch system's commands are; empty for PATH.
    """
    if name == "slurm":
        from .slurm import Slurm

        return Slurm(bin_directory)
    from .pbs import Pbs

    return Pbs(bin_directory)


def advice_for(words: str, advice: Sequence[tuple[str, str]], otherwise: str = "") -> str:
    """The advice that belongs to a scheduler's words.

    Args:
        words: the scheduler's.
        advice: phrases in small letters, each with its advice; the first one that is part of the words counts.
        otherwise: the answer where none is.
    """
    text = words.lower()
    return next((found for phrase, found in advice if phrase in text), otherwise)


def last_sight(sights: Sequence[Sight]) -> Sight | None:
    """The job that counts among those of one name: one that is not over, else the one that was seen first."""
    for sight in sights:
        if sight.state != ENDED:
            return sight
    return sights[0] if sights else None
