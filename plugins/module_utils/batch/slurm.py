# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run the commands of Slurm: sbatch(1), squeue(1), scontrol(1), scancel(1) and sacct(1).

Everything is asked in formats made for programs. The accounting is a second source only: many sites have none, and a
job that slurmctld remembers (``MinJobAge``, slurm.conf(5)) is known better by slurmctld.
"""

from __future__ import annotations

import os
import pwd
import re
from typing import Any, Mapping, NamedTuple, Sequence

from ..core.errors import StackError
from .commands import Answer, Commands
from .options import OptionRules
from .scheduler import ENDED, PENDING, BatchSystem, JobStatus
from .slurm_script import DIRECTIVES, batch_script
from .slurm_states import (
    advice_on_end,
    advice_on_refusal,
    advice_on_waiting,
    end_of,
    is_held,
    state_of,
)

CLEARED = ("SLURM_", "SLURMD_", "SBATCH_", "SQUEUE_", "SACCT_", "SCANCEL_", "SCONTROL_", "SALLOC_", "SRUN_")
"""Variables of sbatch override the script's directives, and those of a job that this runs in would leak into it."""

KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")

ACCOUNTING_START = "now-60days"
"""How far back the accounting is searched: by default sacct shows the current day only."""

UNREACHABLE = (
    "unable to contact slurm controller", "socket timed out", "zero bytes were transmitted", "connection refused",
    "connection timed out", "slurm backup controller in standby", "unexpected message received",
    "transport endpoint is not connected", "message receive failure", "message send failure",
    "communication connection failure", "configuration source", "protocol authentication error",
    "munge encode failed", "slurmctld is initializing", "insane message length",
)
"""What the commands say when slurmctld has not answered, or its answer was lost (src/common/slurm_errno.c of Slurm)."""

CHECK = "Look with 'scontrol ping' whether slurmctld is up"

QUEUE_FIELDS = "%i|%T|%P|%S|%N|%j|%r"
"""The reason stands last: it is free text."""

ACCOUNTING_FIELDS = ("JobIDRaw", "State", "ExitCode", "Partition", "NodeList", "JobName")

NO_EXIT_CODE = (None, None)
_NUMBER = re.compile("[0-9]{1,9}")
UNKNOWN_PLACE = (None, None)


class Slurm(BatchSystem):
    """Slurm; see :class:`.scheduler.BatchSystem`."""

    name = "slurm"
    title = "Slurm"
    job_id_variable = "SLURM_JOB_ID"
    # Set in a job that was started again: sbatch(1), "OUTPUT ENVIRONMENT VARIABLES".
    restarts_variable = "SLURM_RESTART_COUNT"
    rank_launcher = ("srun", "--nodes={nodes}", "--ntasks={ranks}", "--ntasks-per-node={per_node}")
    # The same page, and gres.conf(5).
    job_variables = ("SLURM_*", "SLURMD_*", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
    options = OptionRules(
        own_directives=re.compile(
            r"--(?:array|chdir|clusters?|error|job-name|no-requeue|open-mode|output|requeue|test-only|wait|wrap)"
            r"(?:[\s=]|\Z)|-[aDeJMoW](?:[^-]|\Z)"
        ),
        synonyms={"queue": "partition"},
        directives=DIRECTIVES,
        gpus=re.compile(
            r"--gres[=\s]+(?:\S+,)?gpu(?::[A-Za-z][\w.-]*)?(?::(\d+))?(?=,|\s|\Z)"
            r"|--gpus-per-node[=\s]+(?:[A-Za-z][\w.-]*:)?(\d+)(?=\s|\Z)"),
    )

    def __init__(self, bin_directory: str = "") -> None:
        self.commands = Commands(self.title, CHECK, bin_directory, CLEARED, KEPT)
        self.user = pwd.getpwuid(os.geteuid()).pw_name

    def script(self, name: str, options: Mapping[str, Any], log: str, command: Sequence[str]) -> str:
        return batch_script(name, options, log, command)

    def submit(self, path: str, options: Mapping[str, Any], keep: Sequence[int], secrets: Sequence[str] = ()) -> str:
        answer = self.commands.submit("sbatch", "--parsable", path, keep=keep, secrets=secrets)
        job_id = answer.output.strip().rpartition("\n")[2].partition(";")[0]
        if answer.status == 0 and job_id.isdigit():
            return job_id
        if answer.says(UNREACHABLE) or answer.status <= 0:
            raise self.commands.unanswered("sbatch", answer)
        raise StackError(
            "Slurm has refused the job: %s." % _refusal(answer), "submit", advice_on_refusal(answer.text), path
        )

    def find(self, name: str) -> list[JobStatus]:
        rows = self._queue("--states=all", "--name=" + name)
        if rows:
            return [self._with_details(row) for row in rows]
        return self._accounted(name)

    def cancel(self, job_id: str) -> None:
        answer = self.commands.ask("scancel", "--quiet", job_id)
        if answer.status and answer.says(UNREACHABLE):
            raise self.commands.unanswered("scancel", answer)

    def _queue(self, *options: str) -> list[QueueRow]:
        answer = self.commands.ask(
            "squeue", "--noheader", "--local", "--user=" + self.user, "--format=" + QUEUE_FIELDS, *options
        )
        if answer.status:
            raise self.commands.unanswered("squeue", answer)
        return parse_queue(answer.output)

    def _with_details(self, row: QueueRow) -> JobStatus:
        """Describe a job by what squeue shows of it, and by what only scontrol knows."""
        answer = self.commands.ask("scontrol", "--oneliner", "show", "job", row.job_id)
        details = parse_details(answer.output) if answer.status == 0 else {}
        code, signal = exit_codes(details.get("ExitCode", ""))
        restarts = details.get("Restarts", "0")
        state = state_of(row.state)
        held = state == PENDING and is_held(row.state, row.reason)
        place, count = self._place(row) if state == PENDING and not held else UNKNOWN_PLACE
        over = state == ENDED
        if over:
            advice = advice_on_end(row.state, row.reason, signal)
        else:
            advice = advice_on_waiting(row.job_id, row.state, row.reason) if state == PENDING else ""
        return JobStatus(
            row.job_id, row.name, state, held=held, reason="" if row.reason == "None" else row.reason, nodes=row.nodes,
            exit_code=code if over else None, signal=signal if over else None, end=end_of(row.state) if over else "",
            native_state=row.state, position=place, of=count,
            estimated_start=row.start + "Z" if state == PENDING and row.start[:1].isdigit() else "",
            restarts=int(restarts) if _NUMBER.fullmatch(restarts) else 0, partition=row.partition, advice=advice,
        )

    def _place(self, row: QueueRow) -> tuple[int | None, int | None]:
        """Find a waiting job's place in its partition by priority, and how many wait there; both None where unseen."""
        answer = self.commands.ask(
            "squeue", "--noheader", "--local", "--states=PENDING", "--partition=" + row.partition, "--sort=-p,i",
            "--format=%i",
        )
        waiting = answer.output.split()
        if answer.status or row.job_id not in waiting:
            return UNKNOWN_PLACE
        return waiting.index(row.job_id) + 1, len(waiting)

    def _accounted(self, name: str) -> list[JobStatus]:
        """Ask for jobs that only the accounting knows, the youngest first; none where there is no accounting."""
        if self.commands.program("sacct") is None:
            return []
        answer = self.commands.ask(
            "sacct", "--noheader", "--parsable2", "--allocations", "--local", "--user=" + self.user, "--name=" + name,
            "--starttime=" + ACCOUNTING_START, "--format=" + ",".join(ACCOUNTING_FIELDS),
        )
        # Switched off, or its database is down: slurmctld has answered, and it knows every job that is not over.
        return [] if answer.status else parse_accounting(answer.output)


class QueueRow(NamedTuple):
    """A line of squeue in :data:`QUEUE_FIELDS`."""

    job_id: str
    state: str
    partition: str
    start: str
    nodes: str
    name: str
    reason: str


def parse_queue(text: str) -> list[QueueRow]:
    """Parse the lines of squeue in :data:`QUEUE_FIELDS`."""
    return [QueueRow(*line.split("|", 6)) for line in text.splitlines() if line.count("|") >= 6]


def parse_details(text: str) -> dict[str, str]:
    """Parse the fields of ``scontrol --oneliner show job``; of values with spaces the first word only."""
    return dict(reversed([word.partition("=")[::2] for word in text.split() if "=" in word]))


def exit_codes(text: str) -> tuple[int | None, int | None]:
    """Parse Slurm's ``code:signal``; None for what is not there or zero, except a code of 0."""
    code, _colon, signal = text.partition(":")
    if not _NUMBER.fullmatch(code) or not _NUMBER.fullmatch(signal):
        return NO_EXIT_CODE
    return (None, int(signal)) if int(signal) else (int(code), None)


def parse_accounting(text: str) -> list[JobStatus]:
    """Parse the lines of sacct in :data:`ACCOUNTING_FIELDS`, the youngest job first."""
    jobs = []
    for line in text.splitlines():
        fields = line.split("|", len(ACCOUNTING_FIELDS) - 1)
        if len(fields) < len(ACCOUNTING_FIELDS):
            continue
        job_id, words, codes, partition, nodes, name = fields
        code, signal = exit_codes(codes)
        # "CANCELLED by 1001": the state is the first word.
        state = words.split()[0] if words.split() else ""
        over = state_of(state) == ENDED
        jobs.append(JobStatus(
            job_id, name, state_of(state), nodes="" if nodes == "None assigned" else nodes,
            exit_code=code if over else None, signal=signal if over else None, end=end_of(state) if over else "",
            native_state=words, partition=partition, advice=advice_on_end(state, "", signal) if over else "",
        ))
    return jobs[::-1]


def _refusal(answer: Answer) -> str:
    """Return the complaint of sbatch without its prefixes."""
    lines = [line.partition("error: ")[2] or line for line in (answer.complaint or answer.output).splitlines()]
    return "; ".join(line.strip().rstrip(".") for line in lines if line.strip())
