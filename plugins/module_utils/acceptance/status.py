# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Tell whether a release is accepted, by the record of its last acceptance."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple

from .records import Files


class AcceptanceState(NamedTuple):
    """Hold a state (``passed``, ``failed``, ``missing``, ``other subject``) and a sentence."""

    state: str
    sentence: str


def acceptance_state(root: str, release: str, subject: str, partition: str = "") -> AcceptanceState:
    """Decide whether a release, in the state of this digest (empty: in any), may be called accepted."""
    files = Files.below(root, release, partition=partition)
    last, where = files.last(), " on partition %s" % partition if partition else ""
    if last is None:
        return AcceptanceState("missing", "Release %s has not been accepted%s: there is no %s." % (
            release, where, files.record))
    if last.get("passed") is not True:
        return AcceptanceState("failed", "Release %s failed its last acceptance%s (%s)." % (
            release, where, files.record))
    if subject and last.get("subject") != subject:
        text = "Release %s was accepted%s in another state than the one that is frozen now (%s)."
        return AcceptanceState("other subject", text % (release, where, files.record))
    return AcceptanceState("passed", "Release %s is accepted%s (%s)." % (release, where, files.record))


def required(partitions: Mapping[str, Any]) -> list[str]:
    """List the partitions on which a release has to be accepted, of what the site or a record says of all of them."""
    return [name for name, said in partitions.items() if not (said.get("optional") or said.get("left_out"))]


def state_on(root: str, release: str, subject: str, partitions: Mapping[str, Any]) -> AcceptanceState:
    """Decide the same for a site with partitions, on each of which the release has to be accepted.

    Of what is missing, all is told; what has failed counts first.
    """
    if not partitions:
        return acceptance_state(root, release, subject)
    wanted = required(partitions)
    if not wanted:
        return AcceptanceState("missing", "Release %s has been accepted on no partition: each is optional, or left out "
                               "for it." % release)
    found = [acceptance_state(root, release, subject, name) for name in wanted]
    bad = sorted((one for one in found if one.state != "passed"), key=lambda one: one.state != "failed")
    return AcceptanceState((bad or found)[0].state, " ".join(one.sentence for one in bad or found))
