# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run ranks as a job of their own: make the step that runs them, and judge its answer.

A launcher such as ``mpiexec`` of PALS starts ranks only within a job, and login nodes are no place for them. The job is
a step of build_step; what it runs is the same supervisor and the same script as on the machine itself.

A batch system starts a job as the account that has submitted it. The step of another account, whose ranks are those of
an ordinary user, is therefore that account's own, in a directory in its home.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import shlex
import shutil
from typing import Any, Mapping, NamedTuple, Sequence

from ..batch.options import walltime_seconds
from ..batch.registry import SYSTEMS, system_of
from ..core.canonical import digest_of
from ..core.errors import StackError
from ..core.files import readable_by_all, write_json
from ..steps import remote_query
from .foreign_output import copy_printed
from .login import (
    job_variable_lines,
    login_command,
    login_environment,
    python_command,
)
from .output import EVENT, parse_output
from .records import Files, writing_records
from .run import (
    OUTPUT,
    SCRIPT,
    SUPERVISOR,
    Conclude,
    Run,
    become_remedy,
    locked,
    python_candidates,
    read_output,
    shared_directory,
    write_files,
)

SPARE_SECONDS = 60
"""Seconds that a job needs beside its ranks: to begin, and to end what hangs."""


PROGRESS = "\\[ *[0-9]\\{1,9\\}/[0-9]\\{1,9\\}\\].*"
"""A line that says how far the ranks are, as ``[12/63] round 12``, for grep(1); :mod:`.progress` reads it, too."""


class JobFiles(NamedTuple):
    """Locate the files of a job: its question, and the step that asks it."""

    directory: str
    state_dir: str

    @classmethod
    def of(cls, files: Files, run: Run) -> JobFiles:
        """Locate the files of one kind of question to one release, for one account."""
        directory = os.path.join(files.state, files.stem)
        if not run.account.other:
            return cls(directory, directory)
        root = hashlib.sha256(files.state.encode("utf-8", "surrogateescape")).hexdigest()[:8]
        name = "-".join([files.release, *([files.partition] if files.partition else []), root])
        return cls(directory, os.path.join(run.account.home, ".torchstack", files.stem, name))

    @property
    def request(self) -> str:
        """Return the path of the last request, which stays until its answer is judged."""
        return os.path.join(self.directory, "request.json")

    def asked(self, nonce: str) -> str:
        """Return the directory with all that the job takes."""
        return os.path.join(self.directory, "asked." + nonce)

    def output(self, nonce: str) -> str:
        """Return the path of what the job prints."""
        return os.path.join(self.state_dir, "output." + nonce)


def check_job(job: Mapping[str, Any], timeout: int, stem: str = "acceptance") -> None:
    """Refuse a job without a batch system, and one that would end before its ranks."""
    if job.get("launcher") not in SYSTEMS:
        raise StackError(
            "There is no batch system for the step %s: its launcher is %s." % (
                stem, job.get("launcher") or "not given"),
            "launcher", "Set torchstack_jobs.launcher, or %s_in_job to false." % stem)
    walltime = (job.get("options") or {}).get("walltime")
    if isinstance(walltime, str) and walltime_seconds(walltime) < timeout + SPARE_SECONDS:
        raise StackError(
            "The job of the step %s may take %s, which is too short for %s_timeout, %d s." % (
                stem, walltime, stem, timeout),
            "launcher", "Set torchstack_jobs.steps.%s.walltime to a minute more than that at least." % stem)


def request_job(
    files: Files, question: Mapping[str, Any], run: Run, program: bytes, job: Mapping[str, Any]
) -> dict[str, Any]:
    """Write what the job takes, unless the same was requested before and not judged yet; return the step's options."""
    place, digest = JobFiles.of(files, run), _digest(question, run, program)
    with writing_records(files), readable_by_all():
        asked = remote_query.read_pending(place.request)
        if asked is None or asked["digest"] != digest or not os.path.isdir(place.asked(asked["nonce"])):
            asked = remote_query.create(digest)
            os.makedirs(place.asked(asked["nonce"]))
            write_files(place.asked(asked["nonce"]), dict(question, **run._asdict()), program)
            write_json(place.request, asked)
    return make_step(place, asked, question, run, job)


def plan_job(
    files: Files, question: Mapping[str, Any], run: Run, program: bytes, job: Mapping[str, Any]
) -> dict[str, Any]:
    """Make what :func:`request_job` would return, but for the nonce; write nothing."""
    asked = {"nonce": "planned", "digest": _digest(question, run, program)}
    return make_step(JobFiles.of(files, run), asked, question, run, job)


def _digest(question: Mapping[str, Any], run: Run, program: bytes) -> str:
    known = hashlib.sha256(program).hexdigest()
    return digest_of(dict(question, program=known, run=[*run.account, *run.become, run.timeout]))


def make_step(
    place: JobFiles, asked: Mapping[str, Any], question: Mapping[str, Any], run: Run, job: Mapping[str, Any]
) -> dict[str, Any]:
    """Make the step that runs the ranks on compute nodes, as options of build_step.

    The script ends well however the ranks do, for its record is the verdict; a step that has failed is one that
    the batch system has not let come to its end.
    """
    directory, output = place.asked(asked["nonce"]), place.output(asked["nonce"])
    keep = [*question["environment_keep"], *system_of(job["launcher"]).job_variables]
    own = (job.get("options") or {}).get("python")
    supervisor = [
        *python_command([*([own] if own else []), *python_candidates(question["python"])]),
        os.path.join(directory, SUPERVISOR), os.path.join(directory, SCRIPT), str(run.timeout), "unattended"]
    script = [
        "# A fresh login, which knows its job.",
        *job_variable_lines(keep),
        "rm -f %s*" % shlex.quote(place.output("")),
        "echo %s" % shlex.quote("What the ranks print is in " + output),
        ": > %s" % shlex.quote(output),
        "%s ${kept[@]+\"${kept[@]}\"} %s >> %s 2>&1 < /dev/null &" % (
            _words(login_command(run.account, [], login_environment(run.account, [], {}))),
            _words(supervisor), shlex.quote(output)),
        "ranks=$!",
        "# How far they are, for whoever follows this step.",
        "tail --pid=$ranks -s 0.2 -n +1 -f %s | grep -a -o --line-buffered '%s' || true" % (
            shlex.quote(output), PROGRESS),
        "wait $ranks || echo \"ended with exit status $?\"",
    ]
    return {
        "state_dir": place.state_dir, "script": "\n".join(script) + "\n",
        "inputs": {key: asked[key] for key in ("nonce", "digest")},
    }


def _words(words: Sequence[str]) -> str:
    return " ".join(map(shlex.quote, words))


def conclude_job(
    files: Files, question: Mapping[str, Any], run: Run, program: bytes, wait: float, conclude: Conclude
) -> dict[str, Any]:
    """Judge the answer of the job, write the record, and return it where all is well.

    Args:
        wait: seconds that a shared file system may take to show the answer.
        conclude: judges the answer and writes the record.

    Raises:
        StackError: all is not well; or nobody has asked, or the answer cannot be seen.
    """
    place = JobFiles.of(files, run)
    with writing_records(files), locked(files.state):
        asked = remote_query.read_pending(place.request)
        if asked is None or asked["digest"] != _digest(question, run, program):
            raise StackError("No compute node was asked this.", "job", "Run the whole role: it asks first.")
        try:
            with shared_directory(files.state) as scratch:
                output = _read_answer(place.output(asked["nonce"]), run, wait, os.path.join(scratch, OUTPUT))
            job_output = parse_output(output)
            began, seconds = job_output.event("began") or "", float(job_output.event("seconds") or 0)
            record = conclude(files, question, run.account, output, began, seconds)
        except StackError:
            # The job has ended with this answer; the next request is another job.
            forget_request(place)
            raise
        forget_request(place)
        return record


def _read_answer(path: str, run: Run, wait: float, copy: str) -> str:
    """Read the output of the job, by way of a copy, as it may be in another account's home."""
    ended = ("%s exit\t" % EVENT).encode("ascii")
    words = [word.replace("{user}", run.account.name) for word in run.become] if run.account.other else []

    def read() -> str | None:
        with open(copy, "wb+") as stream:
            if not copy_printed([*words, "/bin/cat", "--", path], stream):
                return None
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - 1000))
            whole = ended in stream.read()
        return read_output(copy, run.account) if whole else None

    shared = "the home of " + run.account.name if run.account.other else "the root"
    try:
        return remote_query.await_answer(path, read, wait, "job", shared)
    except OSError as error:
        raise StackError(
            "%s cannot be started: %s." % (words[0] if words else "cat", error.strerror), "user",
            become_remedy(run.account)) from error
    except StackError:
        if os.path.getsize(copy) == 0:
            raise
        return read_output(copy, run.account)


def forget_request(place: JobFiles) -> None:
    """Remove the request; no job takes it any more, as a step has one job at a time."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(place.request)
    for directory in glob.glob(glob.escape(place.asked("")) + "*"):
        shutil.rmtree(directory, ignore_errors=True)
