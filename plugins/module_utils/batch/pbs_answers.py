# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The jobs in an answer of ``qstat -f -F json``, also where that is no JSON. Pure.

OpenPBS up to 23.06 writes the text itself (src/lib/Libcmds/pbs_json.c) and copies a backslash with the character behind
it, so that a value such as ``echo "\\\\"`` ends early; names of variables, bytes of other encodings and control
characters are copied as they are, and a value that strtod(3) reads, such as ``inf`` or ``00``, stands without quotes.
What a user passed on with ``qsub -v`` or ``-V``, or put into the arguments of a job, can thus spoil an answer. In each
version every member stands in a line of its own, so that only the spoilt value is lost.
"""

from __future__ import annotations

import json
import re
from typing import Any

_OPENING = re.compile(r'\s*"(?P<key>.*?)"\s*:\s*\{\s*\Z')
_MEMBER = re.compile(r'\s*"(?P<key>.*?)"\s*:\s*(?P<value>.*?),?\s*\Z')
_CLOSING = re.compile(r"\s*\},?\s*\Z")


def jobs_of(text: str) -> dict[str, dict[str, Any]] | None:
    """The attributes of each job by its identifier.

    Args:
        text: the standard output of qstat.

    Returns:
        None where the text is no answer of a PBS server; empty where the server knows none of the jobs.
    """
    document = _document(text)
    if "pbs_version" not in document:
        return None
    jobs = document.get("Jobs")
    if not isinstance(jobs, dict):
        return {}
    return {job_id: job for job_id, job in jobs.items() if isinstance(job, dict)}


def _document(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text, strict=False)
    except ValueError:
        document = _read_lines(text)
    return document if isinstance(document, dict) else {}


def _read_lines(text: str) -> dict[str, Any]:
    """The document line by line: an object opens and closes in lines of their own, a member takes one line."""
    top: dict[str, Any] = {}
    path = [top]
    # Not splitlines(): a value may hold bytes that count as line ends there, and JSON's own are written as \n.
    for line in text.split("\n"):
        opening = _OPENING.match(line)
        if opening:
            inner: dict[str, Any] = {}
            path[-1][opening.group("key")] = inner
            path.append(inner)
        elif _CLOSING.match(line):
            if len(path) > 1:
                path.pop()
        else:
            member = _MEMBER.match(line)
            if member:
                path[-1][member.group("key")] = _value(member.group("value"))
    return top


def _value(text: str) -> Any:
    """One value; the bare text where it is no JSON."""
    try:
        return json.loads(text, strict=False)
    except ValueError:
        return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
