# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Join what a pair sweep has measured with what an earlier sweep that ended early has left."""

from __future__ import annotations

from typing import Any, Mapping

from ..ranks import pair_rounds, sweep_levels, sweep_repeat
from .output import JobOutput

MAX_TOLD = 3
"""Ranks and pairs whose trouble is told; of the others there is the log."""


class SweepResults:
    """Join what is known of all pairs: from an earlier sweep of the same nodes that ended early, and from this output.
    """

    def __init__(self, known: Mapping[str, Any], job_output: JobOutput) -> None:
        begun = (job_output.messages.get("sweep") or [{}])[0]
        before = list(known.get("hosts") or [])
        self.hosts: list[str] = begun.get("hosts") or before
        self.per_node: int = begun.get("per_node") or known.get("per_node", 0)
        measured, self.repeated, late = (
            pair_rounds.translate_rows(known.get(key, []), before, self.hosts)
            for key in ("measured", "repeated", "unanswered"))
        self.resumed = bool(measured)
        values = {(one, other): value for one, other, value in measured}
        late_times = {(one, other): times for one, other, times in late}
        begun_pairs: set[tuple[int, int]] = set()
        self.troubles: dict[tuple[int, int], str] = {}
        # Every message is printed twice.
        for kind in ("begun", "round", "again"):
            for message in {message["number"]: message for message in job_output.messages.get(kind, [])}.values():
                rows = [(row[0], row[1]) for row in [*message["pairs"], *message.get("troubles", [])]]
                if kind == "begun":
                    if message["kind"] == "round":
                        begun_pairs.update(rows)
                    continue
                begun_pairs.difference_update(rows)
                self.troubles.update({(one, other): text for one, other, text in message["troubles"]})
                if kind == "round":
                    values.update({(one, other): value for one, other, value in message["pairs"]})
                else:
                    self.repeated += message["pairs"]
        self.measured = [[*pair, value] for pair, value in sorted(values.items())]
        late_times.update({pair: late_times.get(pair, 0) + 1 for pair in begun_pairs})
        self.unanswered = [[*pair, times] for pair, times in sorted(late_times.items()) if pair not in values]
        self.rounds = pair_rounds.schedule(len(self.hosts)) if len(self.hosts) > 1 else []
        left = pair_rounds.missing_rounds(self.rounds, list(values))
        self.done = len(self.rounds) - len(left)

    def failed_pairs(self) -> list[str]:
        """Describe nodes of which no pair could be measured, and the first other failed pairs."""
        measured = {node for one, other, _value in self.measured for node in (one, other)}
        sentences, told = [], set()
        for node, host in enumerate(self.hosts):
            own = [pair for pair in self.troubles if node in pair]
            if len(own) > 1 and node not in measured:
                told.update(own)
                sentences.append("%s: all its %d pairs failed; %s" % (host, len(own), self._told(own[0])))
        others = [pair for pair in self.troubles if pair not in told]
        sentences += [self._told(pair) for pair in others[:MAX_TOLD]]
        if len(others) > MAX_TOLD:
            sentences.append("%d more pairs failed" % (len(others) - MAX_TOLD))
        return sentences

    def _told(self, pair: tuple[int, int]) -> str:
        return "%s and %s: %s" % (self.hosts[pair[0]], self.hosts[pair[1]], self.troubles[pair])

    def complete(self, seen: sweep_levels.Analysis | None) -> bool:
        """Tell whether nothing is left to measure."""
        return bool(self.rounds) and self.done == len(self.rounds) and not sweep_repeat.next_rounds(seen, self.repeated)
