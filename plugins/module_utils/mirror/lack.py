# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Describe what a release needs and a mirror lacks. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

from ..core.errors import StackError
from .requirements import (
    Need,
)


class Lack(NamedTuple):
    """Something that is needed, and that is not there."""

    need: Need
    problem: str
    """what was found instead, as the end of a sentence; empty for nothing at all"""

    def as_result(self) -> dict[str, Any]:
        """Return plain data for the module's result."""
        need = self.need
        return {
            "name": need.name, "version": need.version, "hashes": list(need.hashes), "commit": need.commit,
            "needed_by": need.who, "problem": self.problem}

    @property
    def described(self) -> str:
        """Return a line for the message: name, version, digest, who needs it, and what was found instead."""
        need = self.need
        pin = " (commit %s)" % need.commit if need.commit else ""
        if need.hashes:
            pin = " (sha256 %s%s)" % (
                "one of %d, the first " % len(need.hashes) if len(need.hashes) > 1 else "", need.hashes[0])
        return "%s%s, for %s%s" % (need.described, pin, need.who, ": " + self.problem if self.problem else "")


def missing_error(directory: str, release: str, lacks: Sequence[Lack], may_fetch: bool) -> StackError:
    """Return the error for what is nowhere, all of it at once."""
    lines = "".join("\n  - %s" % lack.described for lack in lacks)
    count = "1 thing" if len(lacks) == 1 else "%d things" % len(lacks)
    missing = [lack.as_result() for lack in lacks]
    if may_fetch:
        return StackError(
            "%s that release %s needs cannot be found:%s\n" % (count, release, lines), "plan",
            "Nothing was fetched. Correct the release file, the network or pip's configuration ('pip config list').",
            missing=missing)
    return StackError(
        "The mirror %s lacks %s that release %s needs:%s\n" % (directory, count, release, lines), "look at the mirror",
        "Nothing was changed. Fetch it where there is a network: make mirror RELEASE=%s TO=<the mirror>." % release,
        missing=missing)
