# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find the files of a step. Pure."""

from __future__ import annotations

import os
import re
import shlex
from typing import NamedTuple, Sequence

from ..core.errors import StackError

STEP_NAME = re.compile(r"[a-z0-9_][a-z0-9._-]*\Z")


class _Step(NamedTuple):
    name: str
    directory: str

    def path(self, name: str) -> str:
        """Return the path of a file in the step's directory."""
        return os.path.join(self.directory, name)


class _File:
    """The path of a file of this name, as an attribute of a step."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, step: _Step, owner: object = None) -> str:
        return step.path(self.name)


class StepFiles(_Step):
    """Where a step keeps its records."""

    script = _File("script.sh")
    """The shell script that an operator can read and run by hand."""
    inputs = _File("inputs.json")
    """What the digest was made of."""
    log = _File("log")
    """Everything that all attempts printed."""
    exit = _File("exit")
    """How the last attempt ended; see :class:`.records.Outcome`."""
    result = _File("result.json")
    """What the step has produced, file by file."""
    own = _File("keep-to-itself")
    """Left by a script that has made something that no other release should get."""
    again = _File("again")
    """There while the step has to run by itself, whatever another release has."""
    stamp = _File("stamp.json")
    """Written last, and only after success; see :class:`.records.Stamp`."""
    job = _File("job.json")
    """Who runs the step, or ran it last; see :class:`.records.JobRecord`."""
    submission = _File("submission.json")
    """The last submission to a batch system; see :class:`.records.Submission`."""
    batch_script = _File("batch.sh")
    """The batch script of that submission."""
    archive = _File(".supervisor.zip")
    """The supervisor's code: a job that outlives its module cannot use the module's own copy."""

    @property
    def by_hand(self) -> str:
        """The command that repeats the step by hand."""
        return "bash " + shlex.quote(self.script)


def step_files(state_dir: str, name: str) -> StepFiles:
    """Find the records of step ``name``; StackError: the name could not be a directory of its own."""
    if not STEP_NAME.match(name):
        raise StackError(
            "The step name %r is not usable." % name, "options",
            "Use lower-case letters, digits, dot, dash and underscore, and start with a letter, digit or underscore.",
        )
    if not os.path.isabs(state_dir):
        raise StackError("state_dir %r is not an absolute path." % state_dir, "options", "Give it from the root.")
    return StepFiles(name, os.path.join(state_dir, name))


def absolute_paths(paths: Sequence[str], chdir: str | None, normal: bool = False) -> list[str]:
    """Return paths from the root; relative ones start at ``chdir``. A normal one has no parts such as ``..``."""
    found = [os.path.join(chdir or "/", path) for path in paths]
    return [os.path.normpath(path) for path in found] if normal else found
