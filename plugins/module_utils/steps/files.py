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


class StepFiles(NamedTuple):
    """Where a step keeps its records."""

    name: str
    directory: str

    def path(self, name: str) -> str:
        """Return the path of a file in the step's directory."""
        return os.path.join(self.directory, name)

    @property
    def script(self) -> str:
        """The shell script that an operator can read and run by hand."""
        return self.path("script.sh")

    @property
    def inputs(self) -> str:
        """What the digest was made of."""
        return self.path("inputs.json")

    @property
    def log(self) -> str:
        """Everything that all attempts printed."""
        return self.path("log")

    @property
    def exit(self) -> str:
        """How the last attempt ended; see :class:`.records.Outcome`."""
        return self.path("exit")

    @property
    def result(self) -> str:
        """What the step has produced, file by file."""
        return self.path("result.json")

    @property
    def own(self) -> str:
        """Left by a script that has made something that no other release should get."""
        return self.path("keep-to-itself")

    @property
    def again(self) -> str:
        """There while the step has to run by itself, whatever another release has."""
        return self.path("again")

    @property
    def stamp(self) -> str:
        """Written last, and only after success; see :class:`.records.Stamp`."""
        return self.path("stamp.json")

    @property
    def job(self) -> str:
        """Who runs the step, or ran it last; see :class:`.records.JobRecord`."""
        return self.path("job.json")

    @property
    def submission(self) -> str:
        """The last submission to a batch system; see :class:`.records.Submission`."""
        return self.path("submission.json")

    @property
    def batch_script(self) -> str:
        """The batch script of that submission."""
        return self.path("batch.sh")

    @property
    def archive(self) -> str:
        """The supervisor's code: a job that outlives its module cannot use the module's own copy."""
        return self.path(".supervisor.zip")

    @property
    def by_hand(self) -> str:
        """The command that repeats the step by hand."""
        return "bash " + shlex.quote(self.script)


def step_files(state_dir: str, name: str) -> StepFiles:
    """Find the records of step ``name`` below ``state_dir``.

    Raises:
        StackError: the name could not be a directory of its own.
    """
    if not STEP_NAME.match(name):
        raise StackError(
            "The step name %r is not usable." % name,
            "options",
            "Use lower-case letters, digits, dot, dash and underscore, and start with a letter, digit or underscore.",
        )
    if not os.path.isabs(state_dir):
        raise StackError("state_dir %r is not an absolute path." % state_dir, "options", "Give it from the root.")
    return StepFiles(name, os.path.join(state_dir, name))


def absolute_paths(paths: Sequence[str], chdir: str | None, normal: bool = False) -> list[str]:
    """Return paths from the root; relative ones start at ``chdir``.

    Args:
        paths: as they were given.
        chdir: the working directory; None where all of them are absolute.
        normal: without parts such as ``..``.
    """
    found = [os.path.join(chdir or "/", path) for path in paths]
    return [os.path.normpath(path) for path in found] if normal else found
