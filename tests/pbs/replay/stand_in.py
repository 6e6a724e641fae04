# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""qsub, qselect, qstat, qdel, qrls and qrerun that answer as a real PBS did; the jobs run on this machine.

Usage: stand_in.py STATE RECORDS COMMAND [ARGUMENT ...]
"""

from __future__ import annotations

import getopt
import os
import re
import sys

from answers import Answers, filled, job_of, say, with_exit_status
from cluster import Cluster, Job

HERE = os.path.dirname(os.path.abspath(__file__))


class StandIn:
    """The commands."""

    def __init__(self, state: str, records: str) -> None:
        self.state = state
        self.cluster = Cluster(state)
        self.answers = Answers(records)

    def answer(self, command: str, arguments: list[str]) -> int:
        """Answer a command."""
        if not self.cluster.settings["up"]:
            return self.answers.give("server_down", "down", command)
        return getattr(self, command)(arguments)

    def qsub(self, arguments: list[str]) -> int:
        """Refuse what the recorded server refused; accept everything else, and start the job's process."""
        options, words = getopt.getopt(arguments, "fhA:N:S:W:j:l:o:q:r:v:")
        given = [item for item in options if item[0] != "-l"]
        resources = dict(
            part.partition("=")[::2] for key, value in options if key == "-l" for part in value.split(",")
        )
        chosen = dict(given)
        if chosen.get("-q") == "no-such-queue":
            return self.answers.give("refused", "unknown queue", "qsub")
        if "no_such_thing" in resources:
            return self.answers.give("refused", "unknown resource", "qsub")
        if chosen.get("-A") == "nobodys":
            return self.answers.give("refused_account", "account refused by a hook", "qsub")
        cores = re.search(r"ncpus=(\d+)", resources.get("select", ""))
        job = self.cluster.new_job({
            "name": chosen["-N"], "held": "-h" in chosen, "command": words, "queue": chosen.get("-q", "workq"),
            "cores": int(cores.group(1)) if cores else 1, "walltime": _seconds(resources.get("walltime", "")),
            "rerunnable": chosen.get("-r", "y") == "y",
        })
        job.detach(sys.executable, os.path.join(HERE, "cluster.py"), self.state)
        return self.answers.give("done", "submitted", "qsub", job_id=job.job_id)

    def qselect(self, arguments: list[str]) -> int:
        """The identifiers of the jobs with a name, or of those that wait in a queue."""
        options = dict(getopt.getopt(arguments, "xu:N:s:q:")[0])
        if "-x" in options and not self.cluster.settings["history"]:
            return self.answers.give("without_history", "gone", "qselect", "-x")
        for job in self.cluster.jobs():
            facts, state = job.facts, job.status["job_state"]
            if not facts["name"] or options.get("-N", facts["name"]) != facts["name"]:
                continue
            in_queue = facts["queue"] == options.get("-q", facts["queue"])
            if in_queue and state in options.get("-s", "HQREF" if "-x" in options else "HQRE"):
                say(job.job_id + "\n")
        return 0

    def qstat(self, arguments: list[str]) -> int:
        """The jobs as the recorded server showed one that stood as they do."""
        options, job_ids = getopt.getopt(arguments, "xfF:")
        history = ("-x", "") in options
        jobs, status = [], 0
        for job_id in job_ids:
            job = self.cluster.job(job_id)
            over = job is not None and job.status["job_state"] == "F"
            if job is None or (over and not self.cluster.settings["history"]):
                exchange = self.answers.find("unknown_job", "unknown", "qstat")
            elif over and not history:
                exchange = self.answers.find("done", "finished", "qstat", without="-x")
            else:
                jobs.append(self._shown(job))
                continue
            say(filled(exchange["stderr"], job_id), sys.stderr)
            status = exchange["status"]
        frame = self.answers.find("done", "running", "qstat")["stdout"]
        say(filled(frame.replace(job_of(frame), ",\n".join(jobs))))
        return status

    def _shown(self, job: Job) -> str:
        status = job.status
        shown = job_of(self.answers.find(*self._likeness(job, status), "qstat")["stdout"])
        shown = filled(shown, job.job_id, job.facts["name"])
        by_itself = status["job_state"] == "F" and status["how"] not in ("walltime", "node")
        return with_exit_status(shown, status.get("exit_status", 0)) if by_itself else shown

    def _likeness(self, job: Job, status: dict) -> tuple[str, str]:
        """Scenario and moment at which a recorded job stood as this one does."""
        state = status["job_state"]
        again = status["run_count"] > 1
        if state == "H":
            return "held", "held"
        if state == "Q":
            if status["run_count"]:
                return "requeued", "requeued"
            fits = job.facts["cores"] <= self.cluster.settings["cores"]
            return ("not_started", "queued") if fits else ("queued", "queued")
        if state in "RE":
            return ("requeued", "running again") if again else ("done", "running")
        ends = {
            "deleted in the queue": ("queued", "finished"), "delete": ("cancelled", "finished"),
            "walltime": ("walltime", "finished"), "node": ("node_down", "not rerunnable"),
        }
        if status["how"] in ends:
            return ends[status["how"]]
        if status["exit_status"] > 256:
            return "signalled", "finished"
        if status["exit_status"]:
            return "failed", "finished"
        return ("requeued" if again else "done"), "finished"

    def qdel(self, arguments: list[str]) -> int:
        """Delete a job, where it is not over."""
        job = self.cluster.job(arguments[-1])
        over = job is not None and job.status["job_state"] == "F"
        if job is None or (over and not self.cluster.settings["history"]):
            return self.answers.give("unknown_job", "unknown", "qdel", job_id=arguments[-1])
        if over:
            return self.answers.give("done", "finished", "qdel", job_id=job.job_id)
        job.ask("delete")
        return self.answers.give("cancelled", "deleted", "qdel", job_id=job.job_id)

    def qrls(self, arguments: list[str]) -> int:
        """Release a held job."""
        return self._ask(arguments, "release")

    def qrerun(self, arguments: list[str]) -> int:
        """Put a running job back into the queue."""
        return self._ask(arguments, "rerun")

    def _ask(self, arguments: list[str], what: str) -> int:
        job = self.cluster.job(arguments[-1])
        if job is None:
            return 1
        job.ask(what)
        return 0


def _seconds(walltime: str) -> int:
    """Seconds of ``HH:MM:SS``; 0 for no limit."""
    hours, minutes, seconds = (int(part) for part in walltime.split(":")) if walltime else (0, 0, 0)
    return (hours * 60 + minutes) * 60 + seconds


if __name__ == "__main__":
    sys.exit(StandIn(sys.argv[1], sys.argv[2]).answer(sys.argv[3], sys.argv[4:]))
