# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Jobs of a batch system that is a directory: each is run by a process of its own, on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

from answers import HOST

TICK = 0.02
MARK = "TORCHSTACK_TEST_PBS_JOB"
KILL_DELAY = 10.0
"""Seconds between SIGTERM and SIGKILL, as pbs_mom has them unless the queue's kill_delay says otherwise."""

SETTINGS = {"up": True, "history": True, "starts": True, "cores": 4}
"""What a test may change: whether the server answers, keeps a history and starts jobs, and the cores of its node."""


class Cluster:
    """The state of a replayed PBS, in a directory."""

    def __init__(self, directory: str) -> None:
        self.directory = pathlib.Path(directory)

    @property
    def settings(self) -> dict:
        """The settings as they are now."""
        settings = dict(SETTINGS)
        with contextlib.suppress(FileNotFoundError):
            settings.update(json.loads((self.directory / "settings.json").read_text()))
        return settings

    def jobs(self) -> list[Job]:
        """All jobs, in the order of their submission."""
        numbers = (int(path.name) for path in self.directory.glob("[0-9]*"))
        return [Job(self, number) for number in sorted(numbers)]

    def job(self, job_id: str) -> Job | None:
        """The job with this identifier, with or without the server's name."""
        number = job_id.partition(".")[0]
        known = number.isdigit() and (self.directory / number / "job.json").exists()
        return Job(self, int(number)) if known else None

    def new_job(self, facts: dict) -> Job:
        """A new job with the next number."""
        number = 0
        while True:
            try:
                (self.directory / str(number)).mkdir()
            except FileExistsError:
                number += 1
                continue
            job = Job(self, number)
            job.write("status.json", {"job_state": "H" if facts["held"] else "Q", "run_count": 0})
            job.write("job.json", facts)
            return job


class Job:
    """One job: facts of its submission, its status, and what was asked of it (``delete``, ``release``, ...)."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster = cluster
        self.place = cluster.directory / str(number)
        self.number = number
        self.job_id = "%d.%s" % (number, HOST)

    @property
    def facts(self) -> dict:
        """What it was submitted with; empty while it is being submitted."""
        try:
            return json.loads((self.place / "job.json").read_text())
        except FileNotFoundError:
            return {"name": ""}

    @property
    def status(self) -> dict:
        """``job_state``, ``run_count``, and at the end ``how`` and ``exit_status``."""
        return json.loads((self.place / "status.json").read_text())

    def write(self, name: str, value: dict) -> None:
        """Write a record whole."""
        new = self.place / (name + ".new")
        new.write_text(json.dumps(value))
        os.replace(new, self.place / name)

    def ask(self, what: str) -> None:
        """Leave a request for the process that runs the job."""
        (self.place / what).touch()

    def asked(self, what: str) -> bool:
        """Whether that was requested; a request is answered once."""
        try:
            (self.place / what).unlink()
        except FileNotFoundError:
            return False
        return True

    def detach(self, *program: str) -> None:
        """Start the process that runs the job, with nothing left open of this one."""
        subprocess.Popen(
            [*program, str(self.number)], start_new_session=True, stdin=subprocess.DEVNULL, cwd="/",
            stdout=subprocess.DEVNULL, stderr=(self.place / "stderr").open("wb"),
        )

    def processes(self) -> list[int]:
        """Every process that bears the mark of the job; another server of another test has the same identifiers."""
        mark, found = ("%s=%s" % (MARK, self.place)).encode(), []
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if entry.isdigit() and mark in pathlib.Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                    found.append(int(entry))
        return found

    def kill(self, signum: int) -> None:
        """Send a signal to all of them."""
        for pid in self.processes():
            with contextlib.suppress(OSError):
                os.kill(pid, signum)


class Runner:
    """The life of one job, from the queue to its end."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.facts = job.facts
        self.runs = 0

    def live(self) -> None:
        """Go through the job's life."""
        while self._wait() and self._run():
            pass

    def _say(self, state: str, **more: object) -> None:
        self.job.write("status.json", dict(more, job_state=state, run_count=self.runs))

    def _wait(self) -> bool:
        """Wait in the queue; False where the job is deleted there."""
        held = self.facts["held"] and not self.runs
        while True:
            if self.job.asked("release"):
                held = False
                self._say("Q")
            if self.job.asked("delete"):
                self._say("F", how="deleted in the queue")
                return False
            settings = self.job.cluster.settings
            if not held and settings["starts"] and self.facts["cores"] <= settings["cores"]:
                return True
            time.sleep(TICK)

    def _run(self) -> bool:
        """Run the job; True where it goes back to the queue."""
        self.runs += 1
        environment = {
            "HOME": os.environ.get("HOME", "/"), "PATH": "/bin:/usr/bin", "PBS_JOBID": self.job.job_id,
            "PBS_JOBNAME": self.facts["name"], "PBS_ENVIRONMENT": "PBS_BATCH", MARK: str(self.job.place),
        }
        started = time.monotonic()
        process = subprocess.Popen(
            self.facts["command"], env=environment, start_new_session=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
        )
        self._say("R")
        how, asked_at = "", 0.0
        while process.poll() is None:
            now = time.monotonic()
            if not how:
                how = self._interruption(now - started)
                asked_at = now
                if how:
                    self._say("E")
                    self.job.kill(signal.SIGKILL if how == "node" else signal.SIGTERM)
            elif now > asked_at + KILL_DELAY:
                self.job.kill(signal.SIGKILL)
            time.sleep(TICK)
        while self.job.processes():
            self.job.kill(signal.SIGKILL)
            time.sleep(TICK)
        if how == "rerun" or (how == "node" and self.facts["rerunnable"]):
            self._say("Q")
            return True
        code = process.returncode
        self._say("F", how=how, exit_status=code if code >= 0 else 256 - code)
        return False

    def _interruption(self, seconds: float) -> str:
        """Why the job is to be ended now, if it is."""
        for what in ("delete", "rerun", "node"):
            if self.job.asked(what):
                return what
        limit = self.facts["walltime"]
        return "walltime" if limit and seconds > limit else ""


def main() -> None:
    """Run the job with the number that is the last argument."""
    Runner(Job(Cluster(sys.argv[1]), int(sys.argv[2]))).live()


if __name__ == "__main__":
    main()
