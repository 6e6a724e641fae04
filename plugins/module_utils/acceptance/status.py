# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Tell whether a release is accepted, by the record of its last acceptance."""

from __future__ import annotations

from typing import NamedTuple

from .records import Files


class AcceptanceState(NamedTuple):
    """Hold a state (``passed``, ``failed``, ``missing``, ``other subject``) and a sentence."""

    state: str
    sentence: str


def acceptance_state(root: str, release: str, subject: str) -> AcceptanceState:
    """Decide whether a release, in the state of this digest (empty: in any), may be called accepted."""
    files = Files.below(root, release)
    last = files.last()
    if last is None:
        return AcceptanceState("missing", "Release %s has not been accepted: there is no %s." % (release, files.record))
    if last.get("passed") is not True:
        return AcceptanceState("failed", "Release %s failed its last acceptance (%s)." % (release, files.record))
    if subject and last.get("subject") != subject:
        text = "Release %s was accepted in another state than the one that is frozen now (%s)."
        return AcceptanceState("other subject", text % (release, files.record))
    return AcceptanceState("passed", "Release %s is accepted (%s)." % (release, files.record))
