# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run the commands of Flux: flux-batch(1), flux-jobs(1) and flux-cancel(1).

Flux is found as its own commands find it: by ``FLUX_URI``, else the instance of the system. Jobs that are over are
known until the instance forgets them (``inactive-age-limit`` of flux-config-job-manager(5)), which by default it never
does; that of an allocation is gone with the allocation.
"""

from __future__ import annotations

import json
import re
from typing import Any, Mapping, Sequence

from ..core.errors import StackError
from .commands import Answer, Commands
from .flux_script import DIRECTIVES, GPUS, OWN_DIRECTIVES, batch_script
from .flux_states import (
    advice_on_end,
    advice_on_refusal,
    advice_on_waiting,
    describe_state,
    end_of,
    f58,
    is_held,
    reason_of,
    start_of,
    state_of,
)
from .options import OptionRules
from .scheduler import ENDED, PENDING, BatchSystem, JobStatus

CLEARED = ("FLUX_", "PYTHON")
"""Variables of a job that this runs in, of a user's defaults, and of an instance whose programs were started by hand;
and those by which the Python of somebody else would break these commands, which are programs of Python."""

KEPT = ("FLUX_URI", "FLUX_SSH", "FLUX_HANDLE_USERID", "FLUX_HANDLE_ROLEMASK")
"""Variables that say where the instance is, and how it is spoken to."""

UNREACHABLE = (
    "unable to connect", "broker socket", "connection refused", "connection reset", "connection timed out",
    "broken pipe", "no route to host", "host is unreachable", "no service matching", "function not implemented",
    "operation timed out", "service is unavailable", "end of file", "traceback (most recent call last)",
)
"""What the commands say when the instance has not answered, its answer was lost, or they could not ask it."""

OVER = ("job is inactive", "unknown job id")
"""What flux cancel says of a job that is over, or that the instance has forgotten."""

CHECK = "Look with 'flux uptime' whether Flux is up"

_JOB_ID = re.compile("^[f\u0192]([1-9A-HJ-NP-Za-km-z]+)$", re.MULTILINE)

_NUMBER = re.compile("[0-9]{1,20}")


class Flux(BatchSystem):
    """Flux; see :class:`.scheduler.BatchSystem`."""

    name = "flux"
    title = "Flux"
    # The job of the batch script, for the instance that it runs in has jobs of its own (flux-environment(7)).
    job_id_variable = "FLUX_ENCLOSING_ID"
    rank_launcher = ("flux", "run", "--exclusive", "--nodes={nodes}", "--ntasks={ranks}")
    job_variables = ("FLUX_*", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    options = OptionRules(
        own_directives=OWN_DIRECTIVES,
        instead={
            "partition": "queue", "gpu_type": "constraint", "memory": "exclusive", "memory_per_gpu": "exclusive",
            **dict.fromkeys(("qos", "hint", "licenses", "reservation"), "directives")},
        directives=DIRECTIVES,
        gpus=GPUS,
    )

    def __init__(self, bin_directory: str = "") -> None:
        self.commands = Commands(self.title, CHECK, bin_directory, CLEARED, KEPT)

    def script(self, name: str, options: Mapping[str, Any], log: str, command: Sequence[str]) -> str:
        return batch_script(name, options, log, command)

    def submit(self, path: str, options: Mapping[str, Any], keep: Sequence[int], secrets: Sequence[str] = ()) -> str:
        answer = self.commands.submit("flux", "batch", path, keep=keep, secrets=secrets)
        job_ids = _JOB_ID.findall(answer.output)
        if answer.status == 0 and job_ids:
            # A wrapper or a plugin of the site may have said more before.
            return "f" + str(job_ids[-1])
        if answer.status <= 0 or answer.says(UNREACHABLE):
            raise self.commands.unanswered("flux batch", answer)
        raise StackError(
            "Flux has refused the job: %s." % _refusal(answer), "submit", advice_on_refusal(answer.text), path
        )

    def find(self, name: str) -> list[JobStatus]:
        answer = self.commands.ask("flux", "jobs", "-a", "--json", "--name=" + name)
        jobs = parse_jobs(answer.output)
        if answer.status or jobs is None:
            raise self.commands.unanswered("flux jobs", answer)
        found = [self._status(job) for job in jobs if job.get("name") == name]
        return sorted(found, key=lambda status: status.state == ENDED)

    def cancel(self, job_id: str) -> None:
        answer = self.commands.ask("flux", "cancel", job_id)
        if answer.status == 0 or answer.says(OVER):
            return
        if answer.says(UNREACHABLE):
            raise self.commands.unanswered("flux cancel", answer)
        raise StackError(
            "Flux has not cancelled job %s: %s." % (job_id, _refusal(answer)), "cancel",
            "Look at it with 'flux jobs %s', and ask its owner or the site." % job_id,
        )

    def _status(self, job: Mapping[str, Any]) -> JobStatus:
        job_id, state, queue = f58(job["id"]), state_of(job), str(job.get("queue", ""))
        status = JobStatus(
            job_id, str(job["name"]), state, held=state == PENDING and is_held(job), reason=reason_of(job),
            nodes=str(job.get("nodelist", "")), native_state=describe_state(job), partition=queue,
        )
        if state == ENDED:
            end = end_of(job)
            return status._replace(
                end=end.end, exit_code=end.exit_code, signal=end.signal, advice=advice_on_end(job, end))
        if state != PENDING:
            return status
        place, of = (None, None) if status.held else self._place(job_id, queue)
        return status._replace(
            position=place, of=of, estimated_start=start_of(job), advice=advice_on_waiting(job_id, job),
            reason=status.reason or self._stopped(queue))

    def _place(self, job_id: str, queue: str) -> tuple[int | None, int | None]:
        """Find a waiting job's place in its queue, by priority, and how many wait there; both None where unseen."""
        answer = self.commands.ask(
            "flux", "jobs", "-A", "--filter=sched", "--count=0", "--no-header", "--format={id.dec}",
            *(["--queue=" + queue] if queue else []))
        waiting = [f58(int(word)) for word in answer.output.split() if _NUMBER.fullmatch(word)]
        if answer.status or job_id not in waiting:
            return None, None
        return waiting.index(job_id) + 1, len(waiting)

    def _stopped(self, queue: str) -> str:
        """Return what Flux says of a queue that starts nothing; empty where it does, or does not say."""
        answer = self.commands.ask("flux", "queue", "status", *(["--queue=" + queue] if queue else []))
        lines = answer.output.splitlines() if answer.status == 0 else []
        return next((line.strip() for line in lines if "scheduling is stopped" in line.lower()), "")


def parse_jobs(text: str) -> list[dict[str, Any]] | None:
    """Parse ``flux jobs --json``; None for no answer of a Flux."""
    try:
        jobs = json.loads(text)["jobs"]
    except (ValueError, KeyError, TypeError):
        return None
    if not isinstance(jobs, list):
        return None
    # An identifier is 64 bits without a sign (RFC 19).
    return [
        job for job in jobs
        if isinstance(job, dict) and isinstance(job.get("id"), int) and 0 <= job["id"] < 1 << 64 and job.get("name")]


def _refusal(answer: Answer) -> str:
    """Return the complaint of flux without the names of its commands and the number of the error."""
    lines = (re.sub(r"^flux-\w+: (?:ERROR: )?(?:\[Errno \d+\] )?", "", line.strip())
             for line in (answer.complaint or answer.output).splitlines())
    return "; ".join(line.rstrip(".") for line in lines if line)
