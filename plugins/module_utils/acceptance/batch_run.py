# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Ranks that run as a job of their own, as those of an acceptance: what is asked of compute nodes, and the answer.

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
import subprocess
from typing import Any, Mapping, NamedTuple, Sequence

from ..batch.options import walltime_seconds
from ..core.canonical import digest_of
from ..core.errors import StackError
from ..core.files import readable_by_all, write_json
from ..core.processes import run_program
from ..definition.launch_command import JOB_VARIABLES
from ..steps import remote_query as questions
from . import local_run as acceptance_job
from .login import (
    fresh_words,
    kept_in_job,
    login_environment,
    python_words,
)
from .output import EVENT, hear
from .records import (
    Conclude,
    Files,
    Run,
    keeping_records,
)

SPARE_SECONDS = 60
"""What a job needs beside its ranks: to begin, and to end what hangs."""


PROGRESS = "\\[ *[0-9]\\{1,9\\}/[0-9]\\{1,9\\}\\].*"
"""A line that says how far the ranks are, as ``[12/63] round 12``, for grep(1); :mod:`.progress` reads it, too."""


class Place(NamedTuple):
    """Where the files of a job lie: what is asked, and the step that asks it."""

    directory: str
    state_dir: str

    @classmethod
    def of(cls, files: Files, run: Run) -> Place:
        """Those of one kind of question to one release, for one account."""
        directory = os.path.join(files.state, files.stem)
        if not run.account.other:
            return cls(directory, directory)
        root = hashlib.sha256(files.state.encode("utf-8", "surrogateescape")).hexdigest()[:8]
        name = "%s-%s" % (os.path.basename(files.state), root)
        return cls(directory, os.path.join(run.account.home, ".torchstack", files.stem, name))

    @property
    def request(self) -> str:
        """What was asked last, until its answer is judged."""
        return os.path.join(self.directory, "request.json")

    def asked(self, nonce: str) -> str:
        """The directory with all that the job takes."""
        return os.path.join(self.directory, "asked." + nonce)

    def output(self, nonce: str) -> str:
        """What the job prints."""
        return os.path.join(self.state_dir, "output." + nonce)


def check_job(job: Mapping[str, Any], timeout: int, stem: str = "acceptance") -> None:
    """Refuse a job that would end before its ranks.

    Args:
        job: ``launcher``, and ``options`` of the job.
        timeout: seconds for the ranks.
        stem: name of the step, with which the site's variables for it begin.

    Raises:
        StackError: there is no batch system, or the wall time is too short.
    """
    said = "the step %s" % stem
    if job.get("launcher") not in JOB_VARIABLES:
        raise StackError(
            "There is no batch system for %s: its launcher is %s." % (said, job.get("launcher") or "not given"),
            "launcher", "Set torchstack_jobs.launcher, or %s_in_job to false." % stem,
        )
    walltime = (job.get("options") or {}).get("walltime")
    if isinstance(walltime, str) and walltime_seconds(walltime) < timeout + SPARE_SECONDS:
        raise StackError(
            "The job of %s may take %s, which is too short for %s_timeout, %d s." % (said, walltime, stem, timeout),
            "launcher", "Set torchstack_jobs.steps.%s.walltime to a minute more than that at least." % stem,
        )


def ask(files: Files, question: Mapping[str, Any], run: Run, program: bytes, job: Mapping[str, Any]) -> dict[str, Any]:
    """Write what the job takes, or find that the same was asked before and not judged yet.

    Args:
        files: where the records are.
        question: what is asked.
        run: how to run it.
        program: the archive that every rank runs.
        job: see :func:`check_job`.

    Returns:
        ``state_dir``, ``script`` and ``inputs`` of the step.

    Raises:
        StackError: the records cannot be written.
    """
    place, digest = Place.of(files, run), _digest(question, run, program)
    with keeping_records(files), readable_by_all():
        asked = questions.pending(place.request)
        if asked is None or asked["digest"] != digest or not os.path.isdir(place.asked(asked["nonce"])):
            asked = questions.new(digest)
            os.makedirs(place.asked(asked["nonce"]))
            acceptance_job.write_files(place.asked(asked["nonce"]), dict(question, **run._asdict()), program)
            write_json(place.request, asked)
    return step(place, asked, question, run, job)


def planned(
    files: Files, question: Mapping[str, Any], run: Run, program: bytes, job: Mapping[str, Any]
) -> dict[str, Any]:
    """What :func:`ask` would return, but for the nonce; nothing is written."""
    asked = {"nonce": "planned", "digest": _digest(question, run, program)}
    return step(Place.of(files, run), asked, question, run, job)


def _digest(question: Mapping[str, Any], run: Run, program: bytes) -> str:
    known = hashlib.sha256(program).hexdigest()
    return digest_of(dict(question, program=known, run=[*run.account, *run.become, run.timeout]))


def step(
    place: Place, asked: Mapping[str, Any], question: Mapping[str, Any], run: Run, job: Mapping[str, Any]
) -> dict[str, Any]:
    """The step that runs the ranks on compute nodes, as options of build_step.

    The script ends well however the ranks do, for its record is the verdict; a step that has failed is one that
    the batch system has not let come to its end.
    """
    directory, output = place.asked(asked["nonce"]), place.output(asked["nonce"])
    keep = [*question["environment_keep"], *JOB_VARIABLES[job["launcher"]]]
    own = (job.get("options") or {}).get("python")
    pythons = [*([own] if own else []), *acceptance_job.pythons(question["python"])]
    supervisor = [
        *python_words(pythons), os.path.join(directory, acceptance_job.SUPERVISOR),
        os.path.join(directory, acceptance_job.SCRIPT), str(run.timeout), "unattended",
    ]
    script = [
        "# A fresh login, which knows its job.",
        *kept_in_job(keep),
        "rm -f %s*" % shlex.quote(place.output("")),
        "echo %s" % shlex.quote("What the ranks print is in " + output),
        ": > %s" % shlex.quote(output),
        "%s ${kept[@]+\"${kept[@]}\"} %s >> %s 2>&1 < /dev/null &" % (
            _words(fresh_words(run.account, [], login_environment(run.account, [], {}))),
            _words(supervisor), shlex.quote(output),
        ),
        "ranks=$!",
        "# How far they are, for whoever follows this step.",
        "tail --pid=$ranks -s 0.2 -n +1 -f %s | grep -a -o --line-buffered '%s' || true" % (
            shlex.quote(output), PROGRESS,
        ),
        "wait $ranks || echo \"ended with exit status $?\"",
    ]
    return {
        "state_dir": place.state_dir, "script": "\n".join(script) + "\n",
        "inputs": {key: asked[key] for key in ("nonce", "digest")},
    }


def _words(words: Sequence[str]) -> str:
    return " ".join(map(shlex.quote, words))


def judge(
    files: Files, question: Mapping[str, Any], run: Run, program: bytes, wait: float, conclude: Conclude
) -> dict[str, Any]:
    """Judge what the job has answered, and write the record.

    Args:
        files: where the records are.
        question: what was asked.
        run: how it was run.
        program: the archive that every rank runs.
        wait: seconds that a shared file system may take to show the answer.
        conclude: judges the answer and writes the record.

    Returns:
        The record, where all is well.

    Raises:
        StackError: it is not; or nobody has asked, or the answer cannot be seen.
    """
    place = Place.of(files, run)
    with keeping_records(files), acceptance_job.locked(files.state):
        asked = questions.pending(place.request)
        if asked is None or asked["digest"] != _digest(question, run, program):
            raise StackError("No compute node was asked this.", "job", "Run the whole role: it asks first.")
        try:
            with acceptance_job.shared_directory(files.state) as scratch:
                output = _answer(place.output(asked["nonce"]), run, wait, os.path.join(scratch, acceptance_job.OUTPUT))
            heard = hear(output)
            began, seconds = heard.event("began") or "", float(heard.event("seconds") or 0)
            record = conclude(files, question, run.account, output, began, seconds)
        except StackError:
            # The job has ended, and its answer would be the same for ever: the next question is another job.
            forget(place)
            raise
        forget(place)
        return record


def _answer(path: str, run: Run, wait: float, copy: str) -> str:
    """The output of the job, by way of a copy, as it may lie in somebody else's home.

    Raises:
        StackError: it cannot be seen, or there is no sign of the supervisor in it.
    """
    ended = ("%s exit\t" % EVENT).encode("ascii")
    words = [word.replace("{user}", run.account.name) for word in run.become] if run.account.other else []

    def read() -> str | None:
        with open(copy, "wb+") as stream:
            found = run_program(
                [*words, "/bin/cat", "--", path], stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.DEVNULL
            )
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - 1000))
            whole = ended in stream.read()
        return acceptance_job.begun_output(copy, run.account) if found.returncode == 0 and whole else None

    shared = "the home of " + run.account.name if run.account.other else "the root"
    try:
        return questions.awaited(path, read, wait, "job", shared)
    except OSError as error:
        raise StackError(
            "%s cannot be started: %s." % (words[0] if words else "cat", error.strerror), "user",
            acceptance_job.become_remedy(run.account),
        ) from error
    except StackError:
        if os.path.getsize(copy) == 0:
            raise
        return acceptance_job.begun_output(copy, run.account)


def forget(place: Place) -> None:
    """Remove what was asked; no job takes it any more, as a step has one job at a time."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(place.request)
    for directory in glob.glob(glob.escape(place.asked("")) + "*"):
        shutil.rmtree(directory, ignore_errors=True)
