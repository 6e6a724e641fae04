# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run the commands of a batch system: without the caller's settings, and with a time limit.

A command that could not be asked is a StackError with ``failed_step="scheduler"``, never an answer.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from typing import NamedTuple, Sequence

from ..core.build_environment import without_secrets
from ..core.errors import StackError
from ..core.processes import start_program

ASK_SECONDS = 60.0
"""How long a question may take; a busy scheduler takes its commands' own time-outs, which are shorter."""

SUBMIT_SECONDS = 240.0
"""How long a submission may take before the next run has to look for it."""

_PLAIN = {"LC_ALL": "C", "TZ": "UTC0"}
"""Under which a question is asked: no translations, and times in UTC."""


class Answer(NamedTuple):
    """What a command said."""

    status: int
    output: str
    complaint: str

    @property
    def text(self) -> str:
        """Its complaint, or else its output, in one line."""
        return " ".join((self.complaint or self.output).split())[:1000]

    def says(self, phrases: Sequence[str]) -> bool:
        """Tell whether one of these phrases, in small letters, is part of its text."""
        text = self.text.lower()
        return any(phrase in text for phrase in phrases)


class Commands:
    """The commands of one batch system, in a directory or on PATH.

    ``check`` begins the sentence that says how an operator finds out whether it is up. Variables that begin as
    ``cleared`` says would change what a command does or shows; ``kept`` are those among them that stay.
    """

    def __init__(
        self, title: str, check: str, bin_directory: str, cleared: Sequence[str], kept: Sequence[str] = ()
    ) -> None:
        self.title = title
        self.check = check
        self.bin_directory = bin_directory
        self.cleared = tuple(cleared)
        self.kept = tuple(kept)

    def environment(self, secrets: Sequence[str] = ()) -> dict[str, str]:
        """Return the caller's environment without what would change the commands, and without unnamed secrets."""
        own = without_secrets(os.environ, [*self.kept, *secrets])
        return {key: value for key, value in own.items() if key in self.kept or not key.startswith(self.cleared)}

    def unanswered(self, name: str, answer: Answer) -> StackError:
        """Make the error for a command that has not brought an answer of the batch system."""
        return StackError(
            "%s did not answer %s: %s." % (self.title, name, answer.text.rstrip(".") or "status %d" % answer.status),
            "scheduler", "%s, and run this again when it answers." % self.check,
        )

    def program(self, name: str) -> str | None:
        """Find the path of a command, or None where there is none."""
        return shutil.which(name, path=self.bin_directory or None)

    def ask(self, *words: str) -> Answer:
        """Run a command that changes nothing, or cancels; StackError: it is not there, or takes :data:`ASK_SECONDS`."""
        return self._run(words, dict(self.environment(), **_PLAIN), (), ASK_SECONDS, True)

    def submit(self, *words: str, keep: Sequence[int] = (), secrets: Sequence[str] = ()) -> Answer:
        """Run a command that submits, in a session of its own, with descriptors to keep and secrets that the job gets.

        It has the caller's locale, which the job may inherit. When it does not end in :data:`SUBMIT_SECONDS` it is left
        alone: whoever kills it knows even less. StackError: it is not there, or has not answered.
        """
        return self._run(words, self.environment(secrets), keep, SUBMIT_SECONDS, False)

    def _run(
        self, words: Sequence[str], environment: dict[str, str], keep: Sequence[int], limit: float, kill: bool
    ) -> Answer:
        program = self.program(words[0])
        if program is None:
            raise StackError(
                "The command %s of %s is not %s." % (
                    words[0], self.title, "in " + self.bin_directory if self.bin_directory else "on PATH"),
                "scheduler", "Name the directory of the commands in launcher_options: bin.",
            )
        # Files rather than pipes: the command must not die of a pipe when this process does.
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as complaint:
            process = start_program(
                [program, *words[1:]], stdin=subprocess.DEVNULL, stdout=output, stderr=complaint, env=environment,
                pass_fds=list(keep), start_new_session=True,
            )
            try:
                status = process.wait(limit)
            except subprocess.TimeoutExpired:
                if kill:
                    process.kill()
                    process.wait()
                raise StackError(
                    "%s did not answer: %s took longer than %d s." % (self.title, words[0], limit), "scheduler",
                    "Run this again when it answers.",
                ) from None
            for stream in (output, complaint):
                stream.seek(0)
            return Answer(status, output.read().decode("utf-8", "replace"), complaint.read().decode("utf-8", "replace"))
