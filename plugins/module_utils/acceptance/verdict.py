# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The record of an acceptance: what is written when it has ended, what it says, and whether it still answers."""

from __future__ import annotations

import hashlib
import os
from typing import Any, Mapping

from ..core.errors import StackError
from ..core.files import write_atomic
from . import acceptance_table
from . import checks as acceptance
from .acceptance_failures import failure_sentence
from .acceptance_gaps import own_account_gaps
from .login import Account
from .output import (
    EM,
    ENVIRONMENT,
    LMOD,
    Heard,
    hear,
    last_lines,
    readable,
)
from .records import Files


def modulefile_digests(through: str, path: str) -> dict[str, str]:
    """sha256 of a modulefile by its kind, ``lmod`` or ``tcl``; empty without one, or if it cannot be read.

    Args:
        through: the module system that loaded it.
        path: the file.
    """
    kinds = {LMOD: "lmod", EM: "tcl"}
    try:
        with open(path, "rb") as stream:
            return {kinds[through]: hashlib.sha256(stream.read()).hexdigest()}
    except (OSError, KeyError):
        return {}


def reason_to_run(last: dict[str, Any] | None, question: dict[str, Any], again: bool) -> str:
    """Why an acceptance has to run, as a sentence's end; empty where a record answers the question.

    Args:
        last: the last record, or None.
        question: what would be asked now, with ``subject``.
        again: whether the operator wants it in any case.
    """
    if last is None:
        return "there is no acceptance of this release yet"
    if again:
        return "it was asked for again"
    answered = last.get("question")
    if last.get("passed") is not True or not isinstance(answered, dict):
        return "the last acceptance did not pass"
    if last.get("subject") != question["subject"]:
        return "the last acceptance was of another state of this release"
    now = modulefile_digests(str(last.get("through", "")), str(last.get("modulefile", "")))
    if last.get("modulefiles", {}) != now:
        return "the modulefile has changed since the last acceptance"
    changed = sorted(key for key in question if key != "subject" and answered.get(key) != question[key])
    return "the site now asks for something else: %s" % ", ".join(changed) if changed else ""


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
        message, remedy = failure_sentence(release, verdict.failures, files.record, files.log)
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
    gaps = own_account_gaps(account.name, account.uid, account.name if account.other else "")
    return {
        "schema": 2,
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
        **verdict.evidence,
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
    if record["through"] == ENVIRONMENT:
        how = "not through the module"
    summary = "%s: %s as %s, %s, in %.1f s." % (
        "Accepted" if record["passed"] else "Not accepted", counts, who, how, record["seconds"]
    )
    table = acceptance_table.table(record["ranks"])
    return {
        "passed": record["passed"], "summary": summary, "table": table, "not_checked": record["not_checked"],
        "acceptance": dict(record),
    }
