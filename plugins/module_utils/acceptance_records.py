# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The records of a release's acceptances: where they are, what they say, and one run with its record."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from ansible_collections.hpcml.torchstack.plugins.module_utils import acceptance, acceptance_job
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance_login import Account
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance_output import (
    Heard,
    hear,
    last_lines,
    readable,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.files import read_json, write_atomic, write_json


class Run(NamedTuple):
    """How an acceptance is run: the account of the ranks, the words to become it, and the seconds for it all."""

    account: Account
    become: Sequence[str]
    timeout: int


class Files(NamedTuple):
    """The files about a release's acceptances, outside the frozen release."""

    state: str
    record: str
    history: str
    log: str

    @classmethod
    def below(cls, root: str, release: str) -> Files:
        """The files of ``release`` below ``root``.

        Raises:
            StackError: the root is no absolute path, or the name of the release leads out of it.
        """
        if not os.path.isabs(root):
            raise StackError("The root is %r, not an absolute path." % root, "root", "Set acceptance_root.")
        if not release or "/" in release or release.startswith("."):
            raise StackError(
                "%r is not the name of a release." % release, "release", "Give the directory's name below the root."
            )
        state = os.path.join(root, ".torchstack", release)
        return cls(state, *(os.path.join(state, "acceptance." + end) for end in ("json", "jsonl", "log")))

    def last(self) -> dict[str, Any] | None:
        """The last record; None where there is none.

        Raises:
            StackError: the file is there and is not a record.
        """
        try:
            record = read_json(self.record)
        except (ValueError, OSError) as error:
            raise StackError(
                "The record of the last acceptance, %s, cannot be read: %s." % (self.record, error), "records",
                "Look at it; all records are in %s too. Move it away, then run this again." % self.history, self.record,
            ) from error
        if record is not None and not isinstance(record, dict):
            raise StackError("%s is not a record." % self.record, "records", "Move it away.", self.record)
        return record

    def add(self, record: Mapping[str, Any]) -> None:
        """Append a record to the history, then make it the last one."""
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


def modulefile_digests(through: str, path: str) -> dict[str, str]:
    """sha256 of a modulefile by its kind, ``lmod`` or ``tcl``; empty without one, or if it cannot be read.

    Args:
        through: the module system that loaded it.
        path: the file.
    """
    kinds = {acceptance.LMOD: "lmod", acceptance.EM: "tcl"}
    try:
        with open(path, "rb") as stream:
            return {kinds[through]: hashlib.sha256(stream.read()).hexdigest()}
    except (OSError, KeyError):
        return {}


def reason_to_run(last: dict[str, Any] | None, question: dict[str, Any], again: bool) -> str:
    """Why an acceptance has to run (see :func:`.acceptance.reason_to_run`), with the modulefile as it is now."""
    loaded = last or {}
    now = modulefile_digests(str(loaded.get("through", "")), str(loaded.get("modulefile", "")))
    return acceptance.reason_to_run(last, question, again, now)


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


def perform(files: Files, question: Mapping[str, Any], run: Run, program: str) -> dict[str, Any]:
    """Run an acceptance from this machine and write its record.

    Args:
        files: where the records are.
        question: what is asked; goes into the record.
        run: how to run it.
        program: text of the rank program.

    Returns:
        The record of a passed acceptance.

    Raises:
        StackError: it did not pass, or could not be tried.
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
            "The acceptance could not keep its records: %s." % error, "records",
            "Run this as the account that owns the root, and look at the space that is left.", files.state,
        ) from error


def conclude(
    files: Files,
    question: Mapping[str, Any],
    account: Account,
    output: str,
    started: str,
    seconds: float,
) -> dict[str, Any]:
    """Judge an acceptance that has ended, and write its record.

    Args:
        files: where the records are.
        question: what was asked.
        account: who ran the ranks.
        output: what it printed.
        started: its begin in UTC.
        seconds: its length.

    Returns:
        The record of a passed acceptance.

    Raises:
        StackError: it did not pass.
        OSError: as the system reports it.
    """
    heard = hear(output)
    verdict = acceptance.judge(dict(question), heard)
    record = _record(question, heard, verdict, account, started, seconds)
    write_atomic(files.log, readable(output).encode("utf-8"))
    files.add(record)
    if verdict.failures:
        release = os.path.basename(files.state)
        message, remedy = acceptance.failure_sentence(release, verdict.failures, files.record, files.log)
        raise StackError(
            message, verdict.failures[0].check, remedy, changed=True, passed=False, record=files.record,
            log=files.log, failures=[failure.message for failure in verdict.failures], table=described(record)["table"],
            not_checked=record["not_checked"], last_lines=last_lines(output),
        )
    return record


def _record(
    question: Mapping[str, Any],
    heard: Heard,
    verdict: acceptance.Verdict,
    account: Account,
    started: str,
    seconds: float,
) -> dict[str, Any]:
    """The record of one run."""
    asked = {key: value for key, value in question.items() if key != "subject"}
    through, modulefile = heard.event("through") or "", heard.event("modulefile") or ""
    gaps = acceptance.own_account_gaps(account.name, account.uid, account.name if account.other else "")
    return {
        "schema": 1,
        "passed": not verdict.failures,
        "subject": question["subject"],
        "user": account.name,
        "ordinary_user": account.other,
        "through": through,
        "module": question["module"],
        "modulefile": modulefile,
        "modulefiles": modulefile_digests(through, modulefile),
        "launcher": question["launcher"],
        "launcher_path": heard.event("launcher") or "",
        "ranks": verdict.ranks,
        "checks": verdict.checks,
        "failures": [
            {"check": failure.check, "message": failure.message, "remedy": failure.remedy}
            for failure in verdict.failures
        ],
        "not_checked": gaps + verdict.not_checked,
        "question": asked,
        "started": started,
        "seconds": seconds,
    }


def described(record: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a result says about a record."""
    if record is None:
        return {}
    hosts = {row["host"] for row in record["ranks"]}
    counts = "%d rank%s on %d host%s" % (
        len(record["ranks"]), "" if len(record["ranks"]) == 1 else "s", len(hosts), "" if len(hosts) == 1 else "s"
    )
    who = record["user"] if record["ordinary_user"] else "the rollout account %s itself" % record["user"]
    how = "through %s" % record["through"] if record["through"] else "before any module was loaded"
    if record["through"] == acceptance.ENVIRONMENT:
        how = "not through the module"
    summary = "%s: %s as %s, %s, in %.1f s." % (
        "Accepted" if record["passed"] else "Not accepted", counts, who, how, record["seconds"]
    )
    table = acceptance.table(record["ranks"])
    return {
        "passed": record["passed"], "summary": summary, "table": table, "not_checked": record["not_checked"],
        "acceptance": dict(record),
    }


def difference(last: Mapping[str, Any] | None, subject: str, reason: str) -> dict[str, str]:
    """The plan as Ansible shows a difference."""

    def text(verdict: str, of: object) -> str:
        return "acceptance: %s\nsubject: %s\n" % (verdict, of or "not known yet")

    before = ""
    if last is not None:
        before = text("passed" if last.get("passed") is True else "failed", last.get("subject"))
    return {"before": before, "after": text("to be run", subject) if reason else before}
