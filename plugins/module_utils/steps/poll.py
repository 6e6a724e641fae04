# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Poll a step by a line of shell on the target, for a hundredth of what a module call costs.

It reads records and the end of the log, and judges nothing: what is not plain is left to the module.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import NamedTuple

from .progress import WINDOW, parse_progress
from .records import JobRecord

_ATTEMPT = b"==== attempt "

# A terminal between (``ssh -tt``) writes CR LF for each LF, and what a login prints comes before.
_OUTPUT = re.compile(r"(?:\A|\n)=job\r?\n(.*?)\n=(ended|going (-?\d+))\r?\n(.*)\Z", re.DOTALL)

_COMMAND = """cd -- {directory} && echo =job && cat job.json && echo && if test -e exit; then echo =ended; else
n=$(($(wc -c < log) - {start})); echo "=going $n"; test $n -le 0 || tail -c $((n < {window} ? n : {window})) log; fi"""


class Snapshot(NamedTuple):
    """What one poll has shown."""

    job: JobRecord

    ended: bool
    """Whether there is a record of an end; the module knows what it says."""

    size: int
    """How many bytes of the log are this attempt's, as far as it is to be seen from here."""

    progress: dict[str, int] | None
    """The last mark in the log, as :func:`.progress.parse_progress` has it."""

    @property
    def running(self) -> bool:
        """Whether the supervisor has announced itself, and nothing speaks of an end."""
        return not self.ended and self.job.phase == "running"


def poll_command(directory: str, start: int) -> str:
    """Return the shell text of a poll of an attempt that begins at byte ``start`` of the log.

    The log's size is asked for first, so that nothing before ``start`` is ever taken for this attempt's: a shared file
    system may show the log late, and an older attempt's marks are at its end then.
    """
    return _COMMAND.format(directory=shlex.quote(directory), start=start, window=WINDOW)


def parse_snapshot(output: str, nonce: str) -> Snapshot | None:
    """Parse what :func:`poll_command` printed, however decoded; None where that has no readable record of this job."""
    found = _OUTPUT.search(output)
    if found is None:
        return None
    try:
        job = JobRecord.from_json(json.loads(found.group(1)))
    except (ValueError, TypeError, AttributeError):
        return None
    if job.nonce != nonce:
        return None
    log = found.group(4).encode("utf-8", "replace")
    # A job that the scheduler has started again goes on in the same log.
    attempt = log.rpartition(_ATTEMPT)
    mark = parse_progress(attempt[2], cut=not attempt[1] and len(log) >= WINDOW)
    return Snapshot(job, found.group(2) == "ended", max(0, int(found.group(3) or 0)), mark)
