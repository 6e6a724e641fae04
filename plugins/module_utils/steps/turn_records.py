# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read the records of the turns that supervisors of a step have taken; see :mod:`.batch_claim`."""

from __future__ import annotations

import os
import re
from typing import Any, Mapping, NamedTuple

from .files import StepFiles
from .json_record import read_record
from .records import JobRecord

PREFIX = ".turn."
LEFT = ".left"


class Owner(NamedTuple):
    """The supervisor that has taken a turn, as the record of the turn names it."""

    host: str
    boot_id: str
    pid: int
    job_id: str | None
    """Of the batch job that it is part of."""
    requeues: int
    """How often the attempt had been submitted again."""
    start_time: int | None


class Claim(NamedTuple):
    """A turn that was taken."""

    nonce: str
    number: int
    owner: Owner

    def path(self, files: StepFiles) -> str:
        """Name the record of the turn, whose owner alone writes it."""
        return turn_path(files, self.nonce, self.number)

    def has_left(self, files: StepFiles) -> bool:
        """Tell whether its owner has said that nothing of it is left running."""
        return os.path.lexists(self.path(files) + LEFT)


def turn_path(files: StepFiles, nonce: str, number: int) -> str:
    """Name the file in which a turn of an attempt is recorded, if it was taken."""
    return files.path("%s%s.%d" % (PREFIX, nonce, number))


def claims_of(files: StepFiles, nonce: str) -> list[Claim]:
    """Read the turns of an attempt that were taken so far, in their order."""
    pattern = re.compile(re.escape("%s%s." % (PREFIX, nonce)) + r"(\d+)\Z")
    numbers = sorted(int(match.group(1)) for match in map(pattern.match, os.listdir(files.directory)) if match)
    records = [read_record(turn_path(files, nonce, number)) or {} for number in numbers]
    return [Claim(nonce, number, _owner(record)) for number, record in zip(numbers, records)]


def _owner(record: Mapping[str, Any]) -> Owner:
    fields: dict[str, Any] = {name: record.get(name) for name in Owner._fields}
    return Owner(**fields)


def still_there(files: StepFiles, nonce: str) -> dict[str, Any] | None:
    """Describe the last supervisor of an attempt, for the record of the next; None where it has left."""
    claims = claims_of(files, nonce)
    if not claims or claims[-1].has_left(files):
        return None
    return dict(claims[-1]._asdict(), owner=claims[-1].owner._asdict())


def former_of(job: JobRecord) -> list[Claim]:
    """Read the last supervisor of the attempt before this one, where that had not said that it has left."""
    former = job.former
    return [Claim(former["nonce"], former["number"], _owner(former["owner"]))] if former else []
