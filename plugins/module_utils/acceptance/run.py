# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Prepare a run of a release's ranks, here or in a job: its settings, its files, its lock, its output."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import shutil
import sys
import tempfile
from typing import Any, Callable, Dict, Iterator, Mapping, NamedTuple, Sequence

from ..core.errors import StackError
from ..core.zipapp import program_archive
from . import supervisor
from .login import Account
from .output import EVENT
from .records import Files
from .script import PROGRAM, QUESTION, job_script

MARGIN = 5
"""Seconds before the time limit at which a rank that still works prints its stack by itself."""

RUN, OUTPUT = "ranks.run.", "output"
"""Beginning of the name of a run's directory, and the name of the file in it that has what the job prints."""

SUPERVISOR, SCRIPT = "supervisor.zip", "job.sh"
"""Names of the program that owns a run, and of what it runs."""

OWN = ("account", "become", "timeout")
"""Keys of a question that are for starting the ranks, and not passed to them."""

OUTPUT_LIMIT = 64 << 20
"""Bytes of the output that are read back; the reports come at the end."""


class Run(NamedTuple):
    """Describe how ranks are run: their account, the words to become it, and the time limit."""

    account: Account
    become: Sequence[str]
    timeout: int


Conclude = Callable[[Files, Mapping[str, Any], Account, str, str, float], Dict[str, Any]]
"""What judges an output and writes the record: of the files, the question, the account of the ranks, what they printed,
their begin in UTC, and the seconds that they took. Returns the record, or raises StackError where all is not well."""


@contextlib.contextmanager
def locked(state: str) -> Iterator[None]:
    """Lock the ranks of a release by the directory of its records, for one question at a time."""
    descriptor = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # On a file system without locks two runs would disturb each other, but not damage the records.
        with contextlib.suppress(OSError):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                remedy = "Wait for it, then run this again; its output is %s." % os.path.join(state, RUN + "*", OUTPUT)
                raise StackError(
                    "Ranks of this release are at work for another acceptance or sweep.", "lock", remedy, state
                ) from None
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def shared_directory(state: str) -> Iterator[str]:
    """Make a directory beside the records, which all nodes see and every account can read."""
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
    """Write all that a run takes into a directory, for every account to read."""
    timeout = question["timeout"]
    margin = min(float(MARGIN), timeout / 4.0)
    asked = {key: value for key, value in question.items() if key not in OWN}
    script = job_script(question, question["launcher"], directory, int(timeout - margin))
    files = {
        PROGRAM: program, SUPERVISOR: program_archive(supervisor), SCRIPT: script.encode("utf-8"),
        QUESTION: json.dumps(dict(asked, patience=int(margin) + MARGIN)).encode("utf-8"),
    }
    for name, content in files.items():
        with open(os.path.join(directory, name), "wb") as stream:
            stream.write(content)
            os.fchmod(stream.fileno(), 0o644)


def python_candidates(python: str) -> list[str]:
    """List interpreters for the supervisor: this one, that of the ranks, that of the system.

    What starts ranks in a container is called otherwise than an interpreter, and would start the supervisor there, too.
    """
    own = [python] if os.path.basename(python).startswith("python") else []
    return [sys.executable, *own, "/usr/bin/python3"]


def read_output(path: str, account: Account) -> str:
    """Read the output of a run that has ended; StackError where there is no sign of the supervisor in it."""
    with open(path, "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        begun = ("%s started\t" % EVENT).encode("ascii") in stream.read(1 << 20)
        stream.seek(max(0, size - OUTPUT_LIMIT))
        output = stream.read().decode("utf-8", "replace")
    if not begun:
        said = " ".join(output.split())[:400] or "it printed nothing"
        raise StackError(
            "The ranks did not start as %s: %s" % (account.name, said if said.endswith(".") else said + "."),
            "user", become_remedy(account))
    return output


def become_remedy(account: Account) -> str:
    """Say what to do when the account cannot be used."""
    if not account.other:
        return "Look at the mode of the directories above the release's root."
    return ("Let this account run commands as %s without a password, and let that account read the release's root; or "
            "leave acceptance_user empty." % account.name)
