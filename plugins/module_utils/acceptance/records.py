# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The records of what a release's ranks were asked: where they are, and one run with its record."""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any, Callable, Dict, Iterator, Mapping, NamedTuple, Sequence, cast

from ..core.errors import StackError
from ..core.files import read_json, write_json
from ..core.redaction import redacted_data
from . import local_run as acceptance_job
from .login import Account


class Run(NamedTuple):
    """How an acceptance is run: the account of the ranks, the words to become it, and the seconds for it all."""

    account: Account
    become: Sequence[str]
    timeout: int


Conclude = Callable[["Files", Mapping[str, Any], Account, str, str, float], Dict[str, Any]]
"""What judges an output and writes the record: of the files, the question, the account of the ranks, what they printed,
their begin in UTC, and the seconds that they took. Returns the record, or raises StackError where all is not well."""


class Files(NamedTuple):
    """The files about what was asked of a release's ranks, outside the frozen release."""

    state: str
    record: str
    history: str
    log: str

    @classmethod
    def below(cls, root: str, release: str, stem: str = "acceptance") -> Files:
        """The files of ``release`` below ``root``.

        Args:
            root: the directory of the site's releases.
            release: name of one.
            stem: what the names of the files begin with; the acceptance's own by default.

        Raises:
            StackError: the root is no absolute path, or the name of the release leads out of it.
        """
        if not os.path.isabs(root):
            raise StackError("The root is %r, not an absolute path." % root, "root", "Set %s_root." % stem)
        if not release or "/" in release or release.startswith("."):
            raise StackError(
                "%r is not the name of a release." % release, "release", "Give the directory's name below the root."
            )
        state = os.path.join(root, ".torchstack", release)
        return cls(state, *(os.path.join(state, "%s.%s" % (stem, end)) for end in ("json", "jsonl", "log")))

    @property
    def stem(self) -> str:
        """What the names of the files begin with, and the name of the step that asks the ranks in a job."""
        return os.path.splitext(os.path.basename(self.record))[0]

    def last(self) -> dict[str, Any] | None:
        """The last record; None where there is none.

        Raises:
            StackError: the file is there and is not a record.
        """
        try:
            record = read_json(self.record)
        except (ValueError, OSError) as error:
            raise StackError(
                "The last record, %s, cannot be read: %s." % (self.record, error), "records",
                "Look at it; all records are in %s too. Move it away, then run this again." % self.history, self.record,
            ) from error
        if record is not None and not isinstance(record, dict):
            raise StackError("%s is not a record." % self.record, "records", "Move it away.", self.record)
        return record

    def add(self, record: Mapping[str, Any]) -> None:
        """Append a record to the history, then make it the last one; credentials in it are masked."""
        record = cast(Dict[str, Any], redacted_data(record))
        line = json.dumps(record, sort_keys=True)
        with open(self.history, "ab+") as stream:
            torn = False
            if stream.seek(0, os.SEEK_END):
                # A line that a crash has cut must not swallow this one.
                stream.seek(-1, os.SEEK_END)
                torn = stream.read(1) != b"\n"
            stream.write((("\n" if torn else "") + line + "\n").encode("utf-8"))
            stream.flush()
            os.fsync(stream.fileno())
            os.fchmod(stream.fileno(), 0o644)
        write_json(self.record, record)


class Standing(NamedTuple):
    """What the last acceptance says: ``passed``, ``failed``, ``missing`` or ``other subject``, and a sentence."""

    state: str
    sentence: str


def standing(root: str, release: str, subject: str) -> Standing:
    """Whether a release may be called accepted.

    Args:
        root: the directory of the site's releases.
        release: name of one.
        subject: digest of the frozen release as it is now; empty where any will do.

    Raises:
        StackError: as :meth:`Files.below` and :meth:`Files.last`.
    """
    files = Files.below(root, release)
    last = files.last()
    if last is None:
        return Standing("missing", "Release %s has not been accepted: there is no %s." % (release, files.record))
    if last.get("passed") is not True:
        return Standing("failed", "Release %s failed its last acceptance (%s)." % (release, files.record))
    if subject and last.get("subject") != subject:
        text = "Release %s was accepted in another state than the one that is frozen now (%s)."
        return Standing("other subject", text % (release, files.record))
    return Standing("passed", "Release %s is accepted (%s)." % (release, files.record))


def missing(prefix: str, subject: str) -> StackError | None:
    """What keeps an acceptance from being possible, as the error to raise."""
    if not os.path.isdir(prefix):
        return StackError(
            "The release %s does not exist." % prefix, "prefix", "Build and freeze it first, or correct prefix.", prefix
        )
    if not subject:
        return StackError(
            "There is no subject: an acceptance belongs to one frozen state of a release.", "subject",
            "Freeze the release first, and give its digest.", prefix,
        )
    return None


def perform(
    files: Files, question: Mapping[str, Any], run: Run, program: bytes, conclude: Conclude
) -> dict[str, Any]:
    """Run the ranks from this machine and write the record.

    Args:
        files: where the records are.
        question: what is asked; goes into the record.
        run: how to run it.
        program: the archive that every rank runs.
        conclude: judges what they print, and writes the record, as :func:`.acceptance_verdict.conclude` does.

    Returns:
        The record, where all is well.

    Raises:
        StackError: it is not, or could not be tried.
    """
    with keeping_records(files), acceptance_job.locked(files.state):
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        ended = acceptance_job.run_job(dict(question, **run._asdict()), program, files.state)
        return conclude(files, question, run.account, ended.output, started, ended.seconds)


@contextlib.contextmanager
def keeping_records(files: Files) -> Iterator[None]:
    """For as long as something is written beside the records, whose directory is made.

    Raises:
        StackError: that was not possible.
    """
    try:
        os.makedirs(files.state, mode=0o755, exist_ok=True)
        yield
    except OSError as error:
        raise StackError(
            "The records in %s could not be kept: %s." % (files.state, error), "records",
            "Run this as the account that owns the root, and look at the space that is left.", files.state,
        ) from error


def difference(what: str, last: Mapping[str, Any] | None, subject: str, reason: str) -> dict[str, str]:
    """The plan as Ansible shows a difference.

    Args:
        what: is asked of the ranks.
        last: the last record, or None.
        subject: digest of the release as it is now; empty where it is not known yet.
        reason: why it has to be asked now; empty where the record answers.
    """

    def text(verdict: str, of: object) -> str:
        return "%s: %s\nsubject: %s\n" % (what, verdict, of or "not known yet")

    before = ""
    if last is not None:
        before = text("passed" if last.get("passed") is True else "failed", last.get("subject"))
    return {"before": before, "after": text("to be run", subject) if reason else before}
