# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a release are asked: the files that it takes, the run on this machine, and what it printed."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any, BinaryIO, Iterator, Mapping, NamedTuple, Sequence

from ..core import processes
from ..core.errors import StackError
from ..core.zipapp import program_archive
from ..definition import launch_command as rank_launcher
from . import supervisor as acceptance_supervisor
from .login import (
    Account,
    fresh_words,
    login_environment,
    python_words,
)
from .output import EVENT
from .script import PROGRAM, QUESTION, job_script

MARGIN = 5
"""Seconds before the time limit at which a rank that still works prints its stack by itself."""

LOST = 60.0
"""Seconds after the time limit at which a supervisor that has not reported the end counts as lost."""

RUN, OUTPUT = "ranks.run.", "output"
"""Beginning of the name of a run's directory, and the name of the file in it that has what the job prints."""

SUPERVISOR, SCRIPT = "supervisor.zip", "job.sh"
"""Names of the program that owns a run, and of what it runs."""

OWN = ("account", "become", "timeout")
"""What of a question is for whoever starts the ranks, not for them."""

OUTPUT_LIMIT = 64 << 20
"""Bytes of the output that are read back; the reports come at the end."""


class Ended(NamedTuple):
    """How a run went: its output, and its length in seconds."""

    output: str
    seconds: float


def launcher_words(launcher: Sequence[str], ranks: int, nodes: int = 1, named: str = "acceptance") -> list[str]:
    """The launcher's words with the numbers of ranks and nodes filled in.

    Args:
        launcher: words with placeholders (see :mod:`.rank_launcher`).
        ranks: how many processes.
        nodes: on how many nodes.
        named: what the site's variables for them begin with, for the errors.

    Raises:
        StackError: there are none, a word has a placeholder that is not known, no rank is asked for, or the ranks do
            not spread evenly over the nodes.
    """
    if ranks < 1:
        raise StackError("%s_ranks is %d." % (named, ranks), "launcher", "Ask for at least one rank, better for two.")
    if nodes < 1 or ranks % nodes:
        raise StackError(
            "%s_ranks is %d, which does not spread evenly over %s_nodes, %d." % (named, ranks, named, nodes),
            "launcher", "Ask for the same number of ranks on every node.",
        )
    trouble = rank_launcher.problem(launcher)
    if trouble:
        raise StackError(
            "%s_launcher %s." % (named, trouble), "launcher", "Correct it, or the site's torchstack_ranks."
        )
    return rank_launcher.filled(launcher, nodes, ranks // nodes)


@contextlib.contextmanager
def locked(state: str) -> Iterator[None]:
    """One question to the ranks of a release at a time.

    Args:
        state: the directory of the records.

    Raises:
        StackError: another one is running.
    """
    descriptor = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # A file system without locks: two of them would get in each other's way, not spoil the records.
        with contextlib.suppress(OSError):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StackError(
                    "Ranks of this release are at work for another acceptance or sweep.", "lock",
                    "Wait for it, then run this again; its output is %s." % os.path.join(state, RUN + "*", OUTPUT),
                    state,
                ) from None
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def shared_directory(state: str) -> Iterator[str]:
    """A directory beside the records, on the file system that all nodes see, which every account can read.

    Args:
        state: the directory of the records.
    """
    prefix = os.path.join(state, RUN)
    for leftover in glob.glob(glob.escape(prefix) + "*"):
        shutil.rmtree(leftover, ignore_errors=True)
    directory = tempfile.mkdtemp(prefix=prefix)
    try:
        os.chmod(directory, 0o755)
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def write_files(directory: str, question: Mapping[str, Any], program: bytes) -> None:
    """Write all that a run takes, for every account to read.

    Args:
        directory: where.
        question: see :func:`run_job`.
        program: the archive that every rank runs.
    """
    timeout = question["timeout"]
    margin = min(float(MARGIN), timeout / 4.0)
    asked = {key: value for key, value in question.items() if key not in OWN}
    script = job_script(question, question["launcher"], directory, int(timeout - margin))
    files = {
        PROGRAM: program, SUPERVISOR: program_archive(acceptance_supervisor), SCRIPT: script.encode("utf-8"),
        QUESTION: json.dumps(dict(asked, patience=int(margin) + MARGIN)).encode("utf-8"),
    }
    for name, content in files.items():
        with open(os.path.join(directory, name), "wb") as stream:
            stream.write(content)
            os.fchmod(stream.fileno(), 0o644)


def run_job(question: Mapping[str, Any], program: bytes, state: str) -> Ended:
    """Run the ranks from this machine and wait for the end.

    Args:
        question: everything that the script and the ranks have to know: ``account``, ``become``, ``launcher`` (words),
            ``timeout``, ``environment_keep``, and what :func:`.acceptance_script.job_script` and the rank program read;
            the ranks get all of it as JSON but for :data:`OWN`, with ``patience``, the seconds after their deadline at
            which they are killed.
        program: the archive that every rank runs, as :func:`.zipapp.program_archive` makes it.
        state: directory of the records.

    Raises:
        StackError: the supervisor did not start under that account.
    """
    account: Account = question["account"]
    timeout = question["timeout"]
    with shared_directory(state) as directory:
        started = time.time()
        write_files(directory, question, program)
        environment = login_environment(account, question["environment_keep"], os.environ)
        command = [
            *fresh_words(account, question["become"], environment), *python_words(pythons(question["python"])),
            os.path.join(directory, SUPERVISOR), os.path.join(directory, SCRIPT), str(timeout),
        ]
        with open(os.path.join(directory, OUTPUT), "wb") as output:
            _follow(command, account, timeout, output)
        seconds = round(time.time() - started, 1)
        return Ended(begun_output(os.path.join(directory, OUTPUT), account), seconds)


def pythons(python: str) -> list[str]:
    """Interpreters for the supervisor: this one, that of the ranks, that of the system.

    What starts ranks in a container is called otherwise than an interpreter, and would start the supervisor there, too.
    """
    own = [python] if os.path.basename(python).startswith("python") else []
    return [sys.executable, *own, "/usr/bin/python3"]


def _follow(command: Sequence[str], account: Account, timeout: float, output: BinaryIO) -> None:
    """Start the supervisor and wait for it; its standard input stays open exactly as long as this waits."""
    try:
        process = processes.start_program(
            list(command), stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            cwd="/",
        )
    except OSError as error:
        raise StackError(
            "%s cannot be started: %s." % (command[0], error.strerror), "user", become_remedy(account)
        ) from error
    try:
        process.wait(timeout + LOST)
    except subprocess.TimeoutExpired:
        output.write(b"\n%s problem\tjob its supervisor did not report the end\n" % EVENT.encode("ascii"))
        output.flush()
    finally:
        with contextlib.suppress(OSError):
            if process.stdin:
                process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LOST)


def begun_output(path: str, account: Account) -> str:
    """The output of a run that has ended.

    Raises:
        StackError: there is no sign of the supervisor in it.
    """
    with open(path, "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        begun = ("%s started\t" % EVENT).encode("ascii") in stream.read(1 << 20)
        stream.seek(max(0, size - OUTPUT_LIMIT))
        output = stream.read().decode("utf-8", "replace")
    if not begun:
        said = " ".join(output.split())[:400] or "it printed nothing"
        raise StackError(
            "The ranks did not start as %s: %s" % (account.name, said if said.endswith(".") else said + "."),
            "user", become_remedy(account),
        )
    return output


def become_remedy(account: Account) -> str:
    """What to do when the account cannot be used."""
    if not account.other:
        return "Look at the mode of the directories above the release's root."
    return (
        "Let this account run commands as %s without a password, and let that account read the release's root; or "
        "leave acceptance_user empty." % account.name
    )
