# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Define what every batch system has to do, and how its jobs are described.

A batch system is one file with one subclass of :class:`BatchSystem`, and a line of :mod:`.registry`. An object of it
keeps nothing between two calls: the records of the step and of the scheduler are the only memory.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar, Mapping, NamedTuple, Sequence

from .options import OptionRules

PENDING = "PENDING"
"""The job waits: for resources, for its turn, for a hold to be lifted, or to be started again."""

RUNNING = "RUNNING"
"""The job has nodes, or is being started or ended there."""

ENDED = "ENDED"
"""The job is over, and :attr:`JobStatus.end` says how."""

DONE = "done"
FAILED = "failed"
TIME_LIMIT = "time_limit"
PREEMPTED = "preempted"
NODE_FAILED = "node_failed"
CANCELLED = "cancelled"
OUT_OF_MEMORY = "out_of_memory"
BOOT_FAILED = "boot_failed"
NEVER_STARTED = "never_started"

ENDS = (DONE, FAILED, TIME_LIMIT, PREEMPTED, NODE_FAILED, CANCELLED, OUT_OF_MEMORY, BOOT_FAILED, NEVER_STARTED)


class JobStatus(NamedTuple):
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
    native_state: str = ""
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


class BatchSystem(abc.ABC):
    """Run the commands of one batch system, from a directory or PATH.

    A command that is missing, hangs, or cannot reach the scheduler is a ``StackError(failed_step="scheduler")`` in each
    method. It never means that there is no such job.
    """

    name: ClassVar[str]
    """The value of the option ``launcher``, such as ``slurm``."""

    title: ClassVar[str]
    """How an operator calls it: ``Slurm``, ``PBS``."""

    job_id_variable: ClassVar[str]
    """The variable in which a job finds its own identifier."""

    restarts_variable: ClassVar[str] = ""
    """The variable in which a job that was put back finds how often; empty where there is none."""

    job_variables: ClassVar[tuple[str, ...]] = ()
    """Patterns of the variables by which a program that starts ranks knows the job that it runs in."""

    rank_launcher: ClassVar[tuple[str, ...]] = ("mpiexec", "-n", "{ranks}", "--ppn", "{per_node}")
    """Words that start ranks in a job, which a new site is proposed; see ``torchstack_ranks``."""

    options: ClassVar[OptionRules] = OptionRules()

    environment_is_public: ClassVar[bool] = False
    """Whether other accounts can read the environment of a job, so that no secret may be in it."""

    @abc.abstractmethod
    def __init__(self, bin_directory: str = "") -> None:
        """Prepare to run commands; nothing is run yet."""

    @abc.abstractmethod
    def script(self, name: str, options: Mapping[str, Any], log: str, command: Sequence[str]) -> str:
        """Return the text of the batch script: directives, then umask 022, then ``command``, an absolute path.

        The script reads no login or startup file, and ends with the exit code of ``command``. The name is unique, the
        options are those of :func:`.registry.check_options`; output and errors are appended to the log, which the nodes
        share. StackError, ``failed_step="options"``: something cannot be written as a directive.
        """

    @abc.abstractmethod
    def submit(self, path: str, options: Mapping[str, Any], keep: Sequence[int], secrets: Sequence[str] = ()) -> str:
        """Submit the script in ``path``, and return the job's identifier.

        The command is started in a session of its own: it ends its work when this process is killed meanwhile. The
        descriptors ``keep``, such as the step's lock, stay open in it; the job gets ``secrets`` whatever their names
        say. StackError, ``failed_step="submit"``: the scheduler has refused it; ``"scheduler"``: nobody knows whether
        it was accepted.
        """

    @abc.abstractmethod
    def find(self, name: str) -> list[JobStatus]:
        """Find the jobs of a name and this account: those in the queue, then those that only the accounting knows.

        It is empty only when the scheduler has answered and knows none.
        """

    @abc.abstractmethod
    def cancel(self, job_id: str) -> None:
        """Ask the scheduler to cancel a job; one that is over already is no error."""


def advice_for(words: str, advice: Sequence[tuple[str, str]], otherwise: str = "") -> str:
    """Choose the advice whose phrase, in small letters, is the first that is part of a text of a scheduler."""
    text = words.lower()
    return next((found for phrase, found in advice if phrase in text), otherwise)


def current_job(jobs: Sequence[JobStatus]) -> JobStatus | None:
    """Choose the job that counts among those of one name: one that is not over, else the first one."""
    return next((job for job in jobs if job.state != ENDED), jobs[0] if jobs else None)


def queue_of(job: JobStatus, requeues: int, former: str = "") -> dict[str, Any]:
    """Describe how a job waits, for the module's result; ``starting`` is one with nodes, and no supervisor yet.

    It was submitted ``requeues`` times again, and waits for an earlier supervisor that may still be on ``former``.
    """
    if job.state != PENDING:
        state = "starting"
    elif job.held:
        state = "held"
    else:
        state = "requeued" if job.restarts or requeues else "pending"
    return {
        "advice": job.advice, "estimated_start": job.estimated_start, "former": former if state == "starting" else "",
        "job_id": job.job_id, "node": job.nodes if state == "starting" else "", "of": job.of,
        "partition": job.partition, "position": job.position, "reason": job.reason, "state": state,
    }


def end_of_job(job: JobStatus, title: str) -> dict[str, Any]:
    """Describe how a job ended that is over, for the record of the end; the title is the scheduler's."""
    end: dict[str, Any] = {
        "reason": job.end, "advice": job.advice, "detail": job.reason, "job_id": job.job_id, "node": job.nodes,
        "scheduler": title, "words": job.native_state,
    }
    if job.end in (DONE, FAILED):
        # Only here does the exit code say something: whatever ends a job, its script ends somehow.
        end.update(reason="killed", code=job.exit_code, signal=job.signal)
    return end
