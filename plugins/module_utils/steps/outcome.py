# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read and write the record of how an attempt at a step ended, the file ``exit``, and describe it."""

from __future__ import annotations

import os
import time
from typing import Any, Mapping, NamedTuple

from ..batch.outcomes import describe_end
from ..core.clock import utc
from ..core.files import write_json
from .files import StepFiles
from .json_record import read_as, split

_WORDS = {
    "exit": "failed with exit code %(code)d",
    "signal": "was ended by signal %(signal)d",
    "timeout": "was stopped after %(limit)g s (timeout)",
    "no_output_timeout": "printed nothing for %(limit)g s and was stopped (no_output_timeout)",
    "stopped": "was stopped: its supervisor was asked to by signal %(signal)d",
    "creates": "exited with 0, but did not create %(missing)s",
    "tmpdir": "has no place for temporary files: %(place)s on %(host)s: %(error)s",
    "needs": "is built on %(outdated)s, which was run again meanwhile",
}
"""How a step ended, by the reason of its end."""


class Outcome(NamedTuple):
    """How an attempt ended: ``exit``."""

    reason: str
    """``done``, ``exit``, ``signal``, ``timeout``, ``no_output_timeout``, ``stopped``, ``creates``, ``needs``,
    ``tmpdir``, ``error``, ``requeued``, ``rejected``, or one of :data:`..batch.outcomes.MEANINGS`."""
    facts: Mapping[str, Any] = {}
    """What belongs to that reason, as further keys: ``code``, ``signal``, ``limit``, ``missing``, ``outdated``,
    ``scheduler``, ``job_id``, ``node``, ``words``, ``advice``, ``notes``, ``refused``, ``stacks`` ..."""
    nonce: str = ""
    """Of the attempt; empty before it is recorded."""
    finished: str = ""
    seconds: float | None = None
    """How long the attempt took; None where nobody knows."""

    @classmethod
    def of(cls, reason: str, **facts: Any) -> Outcome:
        """Describe an end that is not recorded yet."""
        return cls(reason, facts)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Outcome:
        """Take the fields from parsed JSON; TypeError: there is no reason."""
        fields, facts = split(record, ("reason", "nonce", "finished", "seconds"))
        return cls(**fields, facts=facts)

    @classmethod
    def read(cls, files: StepFiles) -> Outcome | None:
        """Read ``exit``; see :func:`.json_record.read_as`."""
        return read_as(cls.from_json, files.exit)

    def as_json(self) -> dict[str, Any]:
        """Return the record with the keys of the file."""
        known = {"nonce": self.nonce, "finished": self.finished, "seconds": self.seconds}
        known = {key: value for key, value in known.items() if value not in ("", None)}
        return dict(self.facts, reason=self.reason, **known)

    def with_facts(self, **facts: Any) -> Outcome:
        """Add facts to an end, or replace some; ``reason`` among them replaces the reason."""
        reason = facts.pop("reason", self.reason)
        return self._replace(reason=reason, facts=dict(self.facts, **facts))

    def write(self, files: StepFiles, nonce: str) -> None:
        """Replace ``exit`` by this end of the attempt ``nonce``, which was now unless it says when."""
        write_json(files.exit, self._replace(nonce=nonce, finished=self.finished or utc(time.time())).as_json())


def outcome_of_status(status: int) -> Outcome:
    """Return the outcome that a wait status stands for."""
    if os.WIFSIGNALED(status):
        return Outcome.of("signal", signal=os.WTERMSIG(status))
    code = os.WEXITSTATUS(status)
    return Outcome.of("exit" if code else "done", code=code)


def describe_outcome(name: str, outcome: Outcome) -> str:
    """Describe how an attempt ended, as the beginning of a sentence; KeyError: it lacks a fact of its reason."""
    reason, facts = outcome.reason, outcome.facts
    if "scheduler" in facts:
        return describe_end(name, outcome.as_json())
    values = dict(facts, **{key: ", ".join(facts[key]) for key in ("missing", "outdated") if key in facts})
    return "step %s %s" % (name, _WORDS.get(reason, "could not be recorded: %(error)s") % values)
