# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read and write the records of what a release's ranks were asked."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Dict, Iterator, Mapping, NamedTuple, Sequence, cast

from ..core.errors import StackError
from ..core.files import read_json, write_json
from ..core.redaction import redacted_data
from ..modulefiles.layout import PARTITIONS, stage_directory
from .failures import Failure

NOT_OF_RELEASE = ("subject", "module_definition")
"""Keys of a question of which a record is not held to another value: whose it is, and where ``module`` is defined."""


def changed_keys(answered: Mapping[str, Any], question: Mapping[str, Any], through: str) -> list[str]:
    """Return the keys of a question in which a record answers another one.

    A record that took the module system of a login answers the question for ``through``, the one that it went through.
    """
    if answered.get("module_system") == "auto" and question.get("module_system") == through:
        answered = {**answered, "module_system": through}
    return sorted(
        key for key in question if key not in NOT_OF_RELEASE and answered.get(key) != question[key])


class Files(NamedTuple):
    """Locate the records of a release, or of its use on one partition, outside the frozen release."""

    state: str
    record: str
    history: str
    log: str

    @classmethod
    def below(cls, root: str, release: str, stem: str = "acceptance", partition: str = "") -> Files:
        """Locate the records of ``release`` below ``root``, whose names begin with ``stem``."""
        check_place(root, release, stem)
        if "/" in partition or partition.startswith("."):
            raise StackError("%r is not the name of a partition." % partition, "partition",
                             "Give the name that it has in the site's data.")
        state = stage_directory(root, release, partition)
        return cls(state, *(os.path.join(state, "%s.%s" % (stem, end)) for end in ("json", "jsonl", "log")))

    @property
    def stem(self) -> str:
        """Return the beginning of the files' names, which is also the name of the step."""
        return os.path.splitext(os.path.basename(self.record))[0]

    @property
    def partition(self) -> str:
        """Return the partition of the site; empty for the site as a whole."""
        above, name = os.path.split(self.state)
        return name if os.path.basename(above) == PARTITIONS else ""

    @property
    def release(self) -> str:
        """Return the name of the release."""
        return os.path.basename(os.path.dirname(os.path.dirname(self.state)) if self.partition else self.state)

    @property
    def title(self) -> str:
        """Name the release, and the partition, for a sentence."""
        return "%s on partition %s" % (self.release, self.partition) if self.partition else self.release

    def last(self) -> dict[str, Any] | None:
        """Read the last record; None where there is none, StackError where the file is no record."""
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

    def error(self, what: str, failures: Sequence[Failure], **details: Any) -> StackError:
        """Make the error of an acceptance or a sweep from its failures, the one that explains most first."""
        first = failures[0]
        more = " (and %d more in the record)" % (len(failures) - 1) if len(failures) > 1 else ""
        return StackError(
            "The %s %s failed at %s: %s%s." % (
                what, self.title, first.check, first.message.rstrip("."), more),
            first.check, "%s Record: %s, log: %s." % (first.remedy, self.record, self.log), changed=True,
            record=self.record, log=self.log, failures=[failure.message for failure in failures], **details)

    def add(self, record: Mapping[str, Any]) -> None:
        """Append a record to the history, then make it the last one; credentials in it are masked."""
        named = {"partition": self.partition} if self.partition else {}
        record = cast(Dict[str, Any], redacted_data({**record, **named}))
        line = json.dumps(record, sort_keys=True) + "\n"
        with open(self.history, "ab+") as stream:
            if stream.seek(0, os.SEEK_END):
                # A line that a crash has cut must not be joined with this one.
                stream.seek(-1, os.SEEK_END)
                line = line if stream.read(1) == b"\n" else "\n" + line
            stream.write(line.encode("utf-8"))
            stream.flush()
            os.fsync(stream.fileno())
            os.fchmod(stream.fileno(), 0o644)
        write_json(self.record, record)


def check_place(root: str, release: str, stem: str) -> None:
    """Refuse a root that is no absolute path, and a name of a release that leads out of it."""
    if not os.path.isabs(root):
        raise StackError("The root is %r, not an absolute path." % root, "root", "Set %s_root." % stem)
    if not release or "/" in release or release.startswith("."):
        raise StackError(
            "%r is not the name of a release." % release, "release", "Give the directory's name below the root.")


@contextlib.contextmanager
def writing_records(files: Files) -> Iterator[None]:
    """Create the directory of the records, and translate errors while something is written there."""
    try:
        os.makedirs(files.state, mode=0o755, exist_ok=True)
        yield
    except OSError as error:
        raise StackError(
            "The records in %s could not be kept: %s." % (files.state, error), "records",
            "Run this as the account that owns the root, and look at the space that is left.", files.state) from error
