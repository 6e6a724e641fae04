# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read and write the records of a step: job.json, stamp.json, submission.json and inputs.json.

They are what all processes know of it. Each class is one file, and its fields are the file's keys. Keys that another
version of this collection wrote are kept where a record is written again, and keys that an older one did not write have
a default. How an attempt ended is in :mod:`.outcome`.
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple

from ..core.files import write_json
from .files import StepFiles, absolute_paths
from .json_record import read_as, read_record, split, write_in_place
from .outcome import Outcome

SCHEMA = 1
"""Version of the recipe of digests, and of stamps; a change of it builds every step again."""


class Limits(NamedTuple):
    """How long a step may take, and what happens when it hangs. Seconds; 0 stands for no limit."""

    timeout: float = 0
    no_output_timeout: float = 0
    grace: float = 10
    hang_signal: str = "USR1"
    on_hang: Mapping[str, list[str]] = {}


class BatchStart(NamedTuple):
    """Which start of a batch job a supervisor belongs to."""

    job_id: str | None = None
    restarts: int | None = None
    """How often the batch system had put the job back; None where it does not say."""
    turn: int | None = None
    """See :mod:`.batch_claim`."""


class JobRecord(NamedTuple):
    """Who runs a step, or ran it last: ``job.json``. It belongs to the supervisor as soon as there is one."""

    nonce: str
    digest: str
    launcher: str
    host: str
    boot_id: str
    started: str
    heartbeat: str
    phase: str
    """``starting`` until the supervisor has recorded itself, then ``running``."""
    attempt: int = 1
    """From 1."""
    begun: str | None = None
    """When the supervisor took over; by the clock of its host, as the heartbeat is."""
    cache: str | None = None
    child_pid: int | None = None
    child_start_time: int | None = None
    former: Mapping[str, Any] | None = None
    """The supervisor of the attempt before that may still be there; see :func:`.turn_records.former_of`."""
    foundation: bool = False
    ground: str | None = None
    """What the step is made on; None where that is not known before."""
    last_nonce: str | None = None
    """Of the attempt before."""
    limits: Limits = Limits()
    log_offset: int = 0
    """Where in the log this attempt begins, in bytes."""
    needs: Mapping[str, str] = {}
    """What the step is judged by of each step that it needs."""
    options: Mapping[str, Any] = {}
    """What it asks its batch system for, as :func:`.registry.check_options` returns it."""
    pid: int | None = None
    result: str | None = None
    """What others judge it by; None where that is not known before it has run."""
    secrets: tuple[str, ...] = ()
    start_time: int | None = None
    """Of the supervisor's process: its 22nd field in /proc/<pid>/stat."""
    batch: BatchStart | None = None
    """Its keys are ``job_id``, ``restarts`` and ``turn``; there are none before the supervisor of a job has begun."""
    other: Mapping[str, Any] = {}
    """Keys of other versions."""

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> JobRecord:
        """Take the fields from parsed JSON; TypeError: keys are missing."""
        fields, other = split(record, _JOB_KEYS)
        fields["secrets"] = tuple(fields.get("secrets", ()))
        if "limits" in fields:
            fields["limits"] = Limits(**split(fields["limits"], Limits._fields)[0])
        start, other = split(other, BatchStart._fields)
        return cls(**fields, batch=BatchStart(**start) if start else None, other=other)

    @classmethod
    def read(cls, files: StepFiles) -> JobRecord | None:
        """Read ``job.json``; see :func:`.json_record.read_as`."""
        return read_as(cls.from_json, files.job)

    def as_json(self) -> dict[str, Any]:
        """Return the record with the keys of the file."""
        record = {name: value for name, value in zip(self._fields, self) if name in _JOB_KEYS}
        if self.begun is None:
            del record["begun"]
        start = self.batch._asdict() if self.batch else {}
        return {**self.other, **record, **start, "limits": self.limits._asdict()}

    def write(self, files: StepFiles) -> None:
        """Replace ``job.json``, and flush it to disk."""
        write_json(files.job, self.as_json())

    def beat(self, files: StepFiles) -> None:
        """Replace ``job.json`` for its heartbeat only; see :func:`.json_record.write_in_place`."""
        write_in_place(files.job, self.as_json())

    @property
    def is_local(self) -> bool:
        """Whether it runs on the machine itself, without a batch system."""
        return self.launcher == "local"

    def is_same(self, job: JobRecord | None) -> bool:
        """Tell whether a record is about this very attempt."""
        return job is not None and job.nonce == self.nonce

    def has_stamped(self, stamp: Stamp | None) -> bool:
        """Tell whether this very attempt has written the stamp, which its supervisor does last."""
        return stamp is not None and stamp.nonce == self.nonce


_JOB_KEYS = tuple(name for name in JobRecord._fields if name not in ("batch", "other"))


class Stamp(NamedTuple):
    """The last success of a step: ``stamp.json``."""

    digest: str
    nonce: str = ""
    attempt: int = 1
    finished: str = ""
    from_cache: bool = False
    ground: str | None = ""
    """What it was made on, see :func:`.needs.ground_of`; None for a step that produces, which has no ground."""
    host: str = ""
    needs: Mapping[str, str] = {}
    result: str = ""
    """What others judge it by."""
    schema: int = SCHEMA
    seconds: float = 0.0
    started: str = ""
    taken_over: Mapping[str, Any] | None = None
    """Of whom, where it did not run; see :func:`.build_cache.origin_of`."""

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Stamp:
        """Take the fields from parsed JSON; of an old stamp, the digest is the result. TypeError: it has none."""
        stamp = cls(**split(record, cls._fields)[0])
        return stamp._replace(result=stamp.result or stamp.digest)

    @classmethod
    def read(cls, files: StepFiles) -> Stamp | None:
        """Read ``stamp.json``; see :func:`.json_record.read_as`."""
        return read_as(cls.from_json, files.stamp)


class Submission(NamedTuple):
    """The last submission of a step to its batch system, or the intent: ``submission.json``.

    It is no part of ``job.json``, which is the supervisor's, so that neither overwrites what the other has written.
    """

    nonce: str
    job_name: str
    job_id: str | None = None
    """None from before the submission until its answer."""
    requeues: int = 0
    """How often the job was submitted again."""
    script: str = ""
    submitted: str = ""

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Submission:
        """Take the fields from parsed JSON; TypeError: keys are missing."""
        return cls(**split(record, cls._fields)[0])

    @classmethod
    def read(cls, files: StepFiles, job: JobRecord) -> Submission | None:
        """Read the last submission of a job; None where it was not to be submitted yet, or runs without one."""
        submission = None if job.is_local else read_as(cls.from_json, files.submission)
        return submission if submission is not None and submission.nonce == job.nonce else None

    def write(self, files: StepFiles) -> None:
        """Replace ``submission.json``, and flush it to disk."""
        write_json(files.submission, self._asdict())


class StepInputs(NamedTuple):
    """What a supervisor needs to know of the inputs of its step."""

    created: list[str]
    """Paths that have to exist after the script."""
    produced: list[str]
    is_fetched: bool
    """Whether the script fetches packages from an index."""
    has_network: bool
    secrets: list[str]
    """Names of variables."""

    @classmethod
    def read(cls, files: StepFiles) -> StepInputs:
        """Read inputs.json as it was written at the start; StackError: it is no record, KeyError: it is gone."""
        facts = (read_record(files.inputs) or {})["facts"]
        produced = absolute_paths(facts.get("produces", []), facts["chdir"], normal=True)
        created = absolute_paths(facts["creates"], facts["chdir"])
        return cls(
            [*created, *(path for path in produced if path not in created)], produced, bool(facts.get("places")),
            facts.get("network", True), facts.get("secrets", []),
        )


class StepRecords(NamedTuple):
    """The records of a step as they were read, one after the other: they may be of two moments."""

    stamp: Stamp | None
    job: JobRecord | None
    outcome: Outcome | None
    """Of this job, or of an older one; see :attr:`end`."""

    @classmethod
    def read(cls, files: StepFiles) -> StepRecords:
        """Read all records of a step; StackError: one of them is none."""
        return cls(Stamp.read(files), JobRecord.read(files), Outcome.read(files))

    @property
    def end(self) -> Outcome | None:
        """How this very job ended, if that is recorded."""
        return self.outcome if self.job and self.outcome and self.outcome.nonce == self.job.nonce else None

    def is_stamped(self, digest: str) -> bool:
        """Tell whether the step has succeeded for exactly this digest."""
        return self.stamp is not None and self.stamp.digest == digest

    @property
    def succeeded(self) -> bool:
        """Whether this very job has written its stamp."""
        return self.job is not None and self.job.has_stamped(self.stamp)
