# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run the commands of OpenPBS and PBS Professional: qsub(1B), qselect(1B), qstat(1B) and qdel(1B).

A job is looked for with qselect, which answers with identifiers only, and then shown by qstat: to list all jobs of a
large site for each query would be a burden. Jobs that are over are known only where the server keeps a history
(``job_history_enable`` of pbs_server_attributes(7B)). Elsewhere ``qselect -x`` fails whatever it is asked, with the
exit status 0 and no output: it is asked only after the queue itself has been.

OpenPBS up to 23.06 writes the text itself (src/lib/Libcmds/pbs_json.c) and copies a backslash with the character behind
it, so that a value such as ``echo "\\\\"`` ends early; names of variables, bytes of other encodings and control
characters are copied as they are, and a value that strtod(3) reads, such as ``inf`` or ``00``, stands without quotes.
So what a user passed on with ``qsub -v``, or put into the arguments of a job, can spoil an answer. In each version
every member stands in a line of its own, so that only the spoilt value is lost.
"""

from __future__ import annotations

import json
import os
import pwd
import re
from typing import Any, Mapping, Sequence

from ..core.errors import StackError
from .commands import Answer, Commands
from .options import OptionRules
from .pbs_script import DIRECTIVES, batch_script, submission
from .pbs_states import (
    advice_on_end,
    advice_on_refusal,
    advice_on_waiting,
    describe_state,
    end_of,
    is_held,
    nodes_of,
    start_of,
    state_of,
)
from .scheduler import ENDED, PENDING, RUNNING, BatchSystem, JobStatus

CLEARED = ("PBS_",)
"""PBS_DPREFIX changes what a directive is, and the variables of a job that this runs in would leak into a new one."""

KEPT = (
    "PBS_CONF_FILE", "PBS_EXEC", "PBS_HOME", "PBS_SERVER", "PBS_DEFAULT", "PBS_PRIMARY", "PBS_SECONDARY",
    "PBS_BATCH_SERVICE_PORT", "PBS_AUTH_METHOD", "PBS_ENCRYPT_METHOD", "PBS_ENCRYPT_MODE",
)
"""Variables that say where the server is and how it is spoken to (pbs.conf(8B))."""

UNREACHABLE = (
    "cannot connect to server", "could not connect to server", "couldn't connect to cluster", "connection refused",
    "communication failure", "unable to authenticate", "unable to initialize security", "pbs_iff", "protocol error",
    "no server to connect", "no free connections", "invalid credential", "connection timed out", "end of file", "pipe",
)
"""What the commands say when the server has not answered, or its answer was lost."""

UNKNOWN_JOB = ("unknown job id", "job has finished", "job has been deleted")
"""What qstat and qdel say of a job that the server knows no more, or knows to be over."""

NO_HISTORY = ("not configured to maintain job history", "job_history_enable")
"""What qselect and qstat say to ``-x`` where the server keeps no history."""

HISTORY = "-x"

CHECK = "Look with 'qstat -B' whether the server is up"

ENDING_JOB = ("request invalid for state of job", "job is already in exit state", "already in exit")
"""What qdel says of a job that is ending."""

_OPENING = re.compile(r'\s*"(?P<key>.*?)"\s*:\s*\{\s*\Z')
_MEMBER = re.compile(r'\s*"(?P<key>.*?)"\s*:\s*(?P<value>.*?),?\s*\Z')
_CLOSING = re.compile(r"\s*\},?\s*\Z")
_JOB_ID = re.compile(r"^\d+\.[A-Za-z0-9_.-]+$", re.MULTILINE)


class Pbs(BatchSystem):
    """OpenPBS and PBS Professional; see :class:`.scheduler.BatchSystem`."""

    name = "pbs"
    title = "PBS"
    job_id_variable = "PBS_JOBID"
    # PBS Professional Reference Guide, "PBS Environment Variables", and its cgroups hook.
    job_variables = ("PBS_*", "NCPUS", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
    options = OptionRules(
        own_directives=re.compile(r"-[NJejorIXkz](?:[^-]|\Z)|-W\s*(?:[^\s].*,)?block=|-R(?:[^-]|\Z)"),
        instead={
            "partition": "queue", "reservation": "queue", "memory_per_gpu": "memory",
            **dict.fromkeys(("qos", "constraint", "gpu_type", "hint", "licenses"), "directives")},
        directives=DIRECTIVES,
        gpus=re.compile(r"-l\s*select=\S*\bngpus=(\d+)"),
    )
    environment_is_public = True

    def __init__(self, bin_directory: str = "") -> None:
        self.commands = Commands(self.title, CHECK, bin_directory, CLEARED, KEPT)
        self.user = pwd.getpwuid(os.geteuid()).pw_name

    def script(self, name: str, options: Mapping[str, Any], log: str, command: Sequence[str]) -> str:
        return batch_script(name, options, log, command)

    def submit(self, path: str, options: Mapping[str, Any], keep: Sequence[int], secrets: Sequence[str] = ()) -> str:
        """See :class:`.scheduler.BatchSystem`; a job gets nothing of the caller's environment."""
        with open(path, encoding="utf-8") as stream:
            words = submission(stream.read())
        answer = self.commands.submit(*words, keep=keep)
        job_ids: list[str] = _JOB_ID.findall(answer.output)
        if answer.status == 0 and job_ids:
            # A hook or a wrapper of the site may have said more before.
            return job_ids[-1]
        if answer.status <= 0 or answer.says(UNREACHABLE):
            raise self.commands.unanswered("qsub", answer)
        raise StackError(
            "PBS has refused the job: %s." % _refusal(answer), "submit", advice_on_refusal(answer.text), path
        )

    def find(self, name: str) -> list[JobStatus]:
        return self._query(name) or self._query(name, HISTORY)

    def cancel(self, job_id: str) -> None:
        answer = self.commands.ask("qdel", job_id)
        if answer.status == 0 or answer.says(UNKNOWN_JOB) or answer.says(ENDING_JOB):
            return
        if answer.says(UNREACHABLE):
            raise self.commands.unanswered("qdel", answer)
        raise StackError(
            "PBS has not deleted job %s: %s." % (job_id, _refusal(answer)), "cancel",
            "Look at it with 'qstat -f %s', and ask its owner or the site." % job_id,
        )

    def _query(self, name: str, *history: str) -> list[JobStatus]:
        """Find the jobs of a name in the queue, or with :data:`HISTORY` those that are over too."""
        job_ids = self._select(*history, "-u", self.user, "-N", name)
        jobs = [job for job_id in job_ids for job in self._show(job_id, name, *history)]
        return sorted(jobs, key=lambda job: job.state == ENDED)

    def _show(self, job_id: str, name: str, *history: str) -> list[JobStatus]:
        """Ask for one job; there is none where it was forgotten meanwhile.

        Of several, qstat after OpenPBS 23.06.06 shows only the first one as JSON (``json_jobs`` in src/cmds/qstat.c).
        """
        answer = self.commands.ask("qstat", *history, "-f", "-F", "json", job_id)
        jobs = parse_jobs(answer.output)
        if jobs is None or (answer.status and not answer.says(UNKNOWN_JOB)):
            raise self.commands.unanswered("qstat", answer)
        return [self._status(job_id, job) for job_id, job in jobs.items() if job.get("Job_Name") == name]

    def _select(self, *criteria: str) -> list[str]:
        """Ask for the identifiers of the jobs that meet all criteria, in the order of the server's list."""
        answer = self.commands.ask("qselect", *criteria)
        if HISTORY in criteria and answer.says(NO_HISTORY):
            return []
        # qselect complains with the exit status 0, too.
        if answer.status or "qselect:" in answer.complaint or answer.says(UNREACHABLE):
            raise self.commands.unanswered("qselect", answer)
        return answer.output.split()

    def _status(self, job_id: str, job: Mapping[str, Any]) -> JobStatus:
        state, queue = state_of(job), str(job.get("queue", ""))
        runs = job.get("run_count", 0)
        status = JobStatus(
            job_id, str(job["Job_Name"]), state,
            held=is_held(job),
            # Of a job that runs, the comment says since when and where.
            reason=str(job.get("comment", "")) if state != RUNNING else "",
            nodes=nodes_of(job) if state != PENDING else "",
            native_state=describe_state(job),
            # Of a job that waits, each run so far was followed by a return to the queue.
            restarts=max(0, (runs if isinstance(runs, int) else 0) - (state != PENDING)),
            partition=queue,
        )
        if state == ENDED:
            end = end_of(job)
            return status._replace(end=end.end, exit_code=end.exit_code, signal=end.signal, advice=advice_on_end(end))
        if state == PENDING:
            position, of = self._place(job_id, queue) if job.get("job_state") == "Q" else (None, None)
            return status._replace(
                position=position, of=of, estimated_start=start_of(job), advice=advice_on_waiting(job_id, job)
            )
        return status

    def _place(self, job_id: str, queue: str) -> tuple[int | None, int | None]:
        """Find the place in the queue, in order of submission, and how many wait; both None where that is hidden."""
        try:
            waiting = self._select("-s", "Q", "-q", queue)
        except StackError:
            return None, None
        return (waiting.index(job_id) + 1, len(waiting)) if job_id in waiting else (None, None)


def _refusal(answer: Answer) -> str:
    """Return the complaint of qsub or qdel without the command's name, and without its long usage message."""
    complaint = (answer.complaint or answer.output).partition("\nusage:")[0]
    lines = (line.strip() for line in complaint.splitlines())
    return "; ".join(re.sub(r"^(?:qsub|qdel): ", "", line).rstrip(".") for line in lines if line)


def parse_jobs(text: str) -> dict[str, dict[str, Any]] | None:
    """Parse ``qstat -f -F json``: each job's attributes by its identifier; None for no answer of a PBS server."""
    document = _document(text)
    if "pbs_version" not in document:
        return None
    jobs = document.get("Jobs")
    if not isinstance(jobs, dict):
        return {}
    return {job_id: job for job_id, job in jobs.items() if isinstance(job, dict)}


def _document(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text, strict=False)
    except ValueError:
        document = _read_lines(text)
    return document if isinstance(document, dict) else {}


def _read_lines(text: str) -> dict[str, Any]:
    """Read a document line by line: an object opens and closes in lines of their own, a member takes one."""
    top: dict[str, Any] = {}
    path = [top]
    # Not splitlines(): a value may hold bytes that count as line ends there, and JSON's own are written as \n.
    for line in text.split("\n"):
        opening = _OPENING.match(line)
        if opening:
            inner: dict[str, Any] = {}
            path[-1][opening.group("key")] = inner
            path.append(inner)
        elif _CLOSING.match(line):
            if len(path) > 1:
                path.pop()
        else:
            member = _MEMBER.match(line)
            if member:
                path[-1][member.group("key")] = _value(member.group("value"))
    return top


def _value(text: str) -> Any:
    """Read one value; the bare text where it is no JSON."""
    try:
        return json.loads(text, strict=False)
    except ValueError:
        return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
