# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run the ranks of a release from this machine, and write the record."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from typing import Any, BinaryIO, Mapping, NamedTuple, Sequence

from ..core import processes
from ..core.errors import StackError
from ..definition import launch_command
from .login import (
    Account,
    login_command,
    login_environment,
    python_command,
)
from .output import EVENT
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

LOST_SECONDS = 60.0
"""Seconds after the time limit at which a supervisor that has not reported the end counts as lost."""


class RunResult(NamedTuple):
    """Hold the output of a run, and its length in seconds."""

    output: str
    seconds: float


def launcher_command(launcher: Sequence[str], ranks: int, nodes: int = 1, named: str = "acceptance") -> list[str]:
    """Fill the numbers of ranks and nodes into the launcher's words, which have placeholders.

    Raises:
        StackError: no rank is asked for, the ranks do not spread evenly over the nodes, or :mod:`.launch_command`
            finds a problem; the site's variables in the error begin with ``named``.
    """
    if ranks < 1:
        raise StackError("%s_ranks is %d." % (named, ranks), "launcher", "Ask for at least one rank, better for two.")
    if nodes < 1 or ranks % nodes:
        raise StackError(
            "%s_ranks is %d, which does not spread evenly over %s_nodes, %d." % (named, ranks, named, nodes),
            "launcher", "Ask for the same number of ranks on every node.")
    trouble = launch_command.problem(launcher)
    if trouble:
        raise StackError(
            "%s_launcher %s." % (named, trouble), "launcher", "Correct it, or the site's torchstack_ranks.")
    return launch_command.filled(launcher, nodes, ranks // nodes)


def run_job(question: Mapping[str, Any], program: bytes, state: str) -> RunResult:
    """Run the ranks from this machine and wait for the end.

    Args:
        question: everything that the script and the ranks have to know: ``account``, ``become``, ``launcher`` (words),
            ``timeout``, ``environment_keep``, and what :func:`.script.job_script` and the rank program read;
            the ranks get all of it as JSON but for :data:`OWN`, with ``patience``, the seconds after their deadline at
            which they are killed.
    """
    account: Account = question["account"]
    timeout = question["timeout"]
    with shared_directory(state) as directory:
        started = time.time()
        write_files(directory, question, program)
        environment = login_environment(account, question["environment_keep"], os.environ)
        command = [
            *login_command(account, question["become"], environment),
            *python_command(python_candidates(question["python"])),
            os.path.join(directory, SUPERVISOR), os.path.join(directory, SCRIPT), str(timeout),
        ]
        with open(os.path.join(directory, OUTPUT), "wb") as output:
            _follow(command, account, timeout, output)
        seconds = round(time.time() - started, 1)
        return RunResult(read_output(os.path.join(directory, OUTPUT), account), seconds)


def _follow(command: Sequence[str], account: Account, timeout: float, output: BinaryIO) -> None:
    """Start the supervisor and wait for it; its standard input is open as long as this waits."""
    try:
        process = processes.start_program(
            command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, cwd="/")
    except OSError as error:
        raise StackError(
            "%s cannot be started: %s." % (command[0], error.strerror), "user", become_remedy(account)) from error
    try:
        process.wait(timeout + LOST_SECONDS)
    except subprocess.TimeoutExpired:
        output.write(b"\n%s problem\tjob its supervisor did not report the end\n" % EVENT.encode("ascii"))
        output.flush()
    finally:
        with contextlib.suppress(OSError):
            if process.stdin:
                process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LOST_SECONDS)


def run_locally(
    files: Files, question: Mapping[str, Any], run: Run, program: bytes, conclude: Conclude
) -> dict[str, Any]:
    """Run the ranks from this machine, judge what they print, write the record, and return it where all is well."""
    with writing_records(files), locked(files.state):
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        ended = run_job(dict(question, **run._asdict()), program, files.state)
        return conclude(files, question, run.account, ended.output, started, ended.seconds)
