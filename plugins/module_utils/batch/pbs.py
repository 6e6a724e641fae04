# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""OpenPBS and PBS Professional as :mod:`.schedulers` has them: qsub(1B), qselect(1B), qstat(1B) and qdel(1B).

A job is looked for with qselect, which answers with identifiers only, and then shown by qstat: to list all jobs of a
large site for each look would be a burden. Jobs that are over are known only where the server keeps a history
(``job_history_enable`` of pbs_server_attributes(7B)). Elsewhere ``qselect -x`` fails whatever it is asked, with the
exit status 0 and no output: it is asked only after the queue itself has been.
"""

from __future__ import annotations

import os
import pwd
import re
from typing import Any, Mapping, Sequence

from ..core.errors import StackError
from .commands import Answer, Commands
from .pbs_answers import jobs_of
from .pbs_script import batch_script, submission
from .pbs_states import (
    advice_on_end,
    advice_on_refusal,
    advice_on_waiting,
    end_of,
    is_held,
    nodes_of,
    start_of,
    state_of,
    words_of,
)
from .scheduler import ENDED, PENDING, RUNNING, Sight

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

LOOK = "Look with 'qstat -B' whether the server is up"

ENDING_JOB = ("request invalid for state of job", "job is already in exit state", "already in exit")
"""What qdel says of a job that is ending."""

_JOB_ID = re.compile(r"^\d+\.[A-Za-z0-9_.-]+$", re.MULTILINE)


class Pbs:
    """See :class:`.schedulers.Scheduler`."""

    name = "pbs"
    title = "PBS"

    def __init__(self, bin_directory: str = "") -> None:
        self.commands = Commands(self.title, LOOK, bin_directory, CLEARED, KEPT)
        self.user = pwd.getpwuid(os.geteuid()).pw_name

    def script(self, name: str, options: Mapping, log: str, command: Sequence[str]) -> str:
        """See :class:`.schedulers.Scheduler`."""
        return batch_script(name, options, log, command)

    def submit(self, path: str, options: Mapping, keep: Sequence[int], secrets: Sequence[str] = ()) -> str:
        """See :class:`.schedulers.Scheduler`; a job gets nothing of the caller's environment."""
        with open(path, encoding="utf-8") as stream:
            words = submission(stream.read())
        answer = self.commands.submit(*words, keep=keep)
        job_ids = _JOB_ID.findall(answer.output)
        if answer.status == 0 and job_ids:
            # A hook or a wrapper of the site may have said more before.
            return job_ids[-1]
        if answer.status <= 0 or answer.says(UNREACHABLE):
            raise self.commands.unanswered("qsub", answer)
        raise StackError(
            "PBS has refused the job: %s." % _refusal(answer), "submit", advice_on_refusal(answer.words), path
        )

    def find(self, name: str) -> list[Sight]:
        """See :class:`.schedulers.Scheduler`."""
        return self._look(name) or self._look(name, HISTORY)

    def cancel(self, job_id: str) -> None:
        """See :class:`.schedulers.Scheduler`."""
        answer = self.commands.ask("qdel", job_id)
        if answer.status == 0 or answer.says(UNKNOWN_JOB) or answer.says(ENDING_JOB):
            return
        if answer.says(UNREACHABLE):
            raise self.commands.unanswered("qdel", answer)
        raise StackError(
            "PBS has not deleted job %s: %s." % (job_id, _refusal(answer)), "cancel",
            "Look at it with 'qstat -f %s', and ask its owner or the site." % job_id,
        )

    def _look(self, name: str, *history: str) -> list[Sight]:
        """The jobs of a name in the queue, or with :data:`HISTORY` those that are over too."""
        job_ids = self._select(*history, "-u", self.user, "-N", name)
        sights = [sight for job_id in job_ids for sight in self._show(job_id, name, *history)]
        return sorted(sights, key=lambda sight: sight.state == ENDED)

    def _show(self, job_id: str, name: str, *history: str) -> list[Sight]:
        """One job, or none where it was forgotten meanwhile.

        It is asked for alone: of several, qstat after OpenPBS 23.06.06 shows only the first one as JSON
        (``json_jobs`` of display_statjob in src/cmds/qstat.c).
        """
        answer = self.commands.ask("qstat", *history, "-f", "-F", "json", job_id)
        jobs = jobs_of(answer.output)
        if jobs is None or (answer.status and not answer.says(UNKNOWN_JOB)):
            raise self.commands.unanswered("qstat", answer)
        return [self._sight(job_id, job) for job_id, job in jobs.items() if job.get("Job_Name") == name]

    def _select(self, *criteria: str) -> list[str]:
        """The identifiers of the jobs that meet all criteria, in the order of the server's list."""
        answer = self.commands.ask("qselect", *criteria)
        if HISTORY in criteria and answer.says(NO_HISTORY):
            return []
        # qselect complains with the exit status 0, too.
        if answer.status or "qselect:" in answer.complaint or answer.says(UNREACHABLE):
            raise self.commands.unanswered("qselect", answer)
        return answer.output.split()

    def _sight(self, job_id: str, job: Mapping[str, Any]) -> Sight:
        state, queue = state_of(job), str(job.get("queue", ""))
        runs = job.get("run_count", 0)
        sight = Sight(
            job_id, str(job["Job_Name"]), state,
            held=is_held(job),
            # Of a job that runs, the comment says since when and where.
            reason=str(job.get("comment", "")) if state != RUNNING else "",
            nodes=nodes_of(job) if state != PENDING else "",
            words=words_of(job),
            # Of a job that waits, each run so far was followed by a return to the queue.
            restarts=max(0, (runs if isinstance(runs, int) else 0) - (state != PENDING)),
            partition=queue,
        )
        if state == ENDED:
            end = end_of(job)
            return sight._replace(
                end=end.end, exit_code=end.exit_code, signal=end.signal, advice=advice_on_end(end)
            )
        if state == PENDING:
            position, of = self._place(job_id, queue) if job.get("job_state") == "Q" else (None, None)
            return sight._replace(
                position=position, of=of, estimated_start=start_of(job), advice=advice_on_waiting(job_id, job)
            )
        return sight

    def _place(self, job_id: str, queue: str) -> tuple[int | None, int | None]:
        """The place among the queued jobs of the queue, as far as the site shows them, in the order of submission."""
        try:
            waiting = self._select("-s", "Q", "-q", queue)
        except StackError:
            return None, None
        return (waiting.index(job_id) + 1, len(waiting)) if job_id in waiting else (None, None)


def _refusal(answer: Answer) -> str:
    """qsub's or qdel's complaint without the command's name, and without its long usage message."""
    complaint = (answer.complaint or answer.output).partition("\nusage:")[0]
    lines = (line.strip() for line in complaint.splitlines())
    return "; ".join(re.sub(r"^(?:qsub|qdel): ", "", line).rstrip(".") for line in lines if line)
