# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find the lines of a log that say what went wrong, the cause before its consequences."""

from __future__ import annotations

import itertools
import re
from typing import Any, Iterable, Iterator, Mapping, NamedTuple, Sequence

from . import patterns
from .lines import Line, plain_text, raw_lines

OWN_ENDS = ("exit", "signal", "creates", "timeout", "no_output_timeout", "out_of_memory")
"""The reasons of an end that a step has by itself; its log may say why."""

MAX_ERRORS = 3
"""Errors that are told; those after them are mostly consequences."""

MAX_LINES_BELOW = 6
"""Lines that are told with an error."""

MAX_WIDTH = 600

_BATCH = 256
"""Lines that are in memory at a time."""

_MAX_KEPT = 8
"""Errors of a rank that are remembered."""

_MAX_TRACEBACK_LINES = 5000
"""Lines after which the end of a traceback is no longer waited for."""

_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")
_MESSAGE = re.compile(r"(?:error|Error|ERROR|undefined reference)\b.*")
_BELOW_SOURCE = re.compile(r"\s*\d* +\|")


class LogError(NamedTuple):
    """Something that went wrong, as a log says it."""

    kind: str
    rank: int
    lines: tuple[Line, ...]

    @property
    def text(self) -> str:
        """All of it on one line; CMake's sentence stands below the line that names its place."""
        return " ".join(line.text.strip() for line in self.lines)

    def as_record(self) -> dict[str, Any]:
        """Return the error as plain data."""
        return {
            "kind": self.kind, "line": self.lines[0].number,
            "lines": [{"line": line.number, "text": line.text} for line in self.lines],
        }


class _Open:
    """An error whose further lines are still being read."""

    def __init__(self, rule: patterns.Rule, line: Line) -> None:
        self.rule, self.lines, self.read = rule, [line], 0
        self.indent = _indent(line.text)

    def takes(self, line: Line) -> bool:
        """Take the line if it belongs to the error; beyond :data:`MAX_LINES_BELOW` none is kept."""
        self.read += 1
        if self.rule.follow == patterns.TRACEBACK:
            return self._takes_of_traceback(line)
        if self.rule.follow == patterns.SOURCE:
            taken = bool(_BELOW_SOURCE.match(line.text)) and self.read <= MAX_LINES_BELOW
        elif self.rule.follow == patterns.NOTED:
            taken = line.text.startswith(patterns.OWN + "  ")
        else:
            taken = not line.text.strip() or _indent(line.text) > self.indent
        if taken and line.text.strip() and len(self.lines) <= MAX_LINES_BELOW:
            self.lines.append(line)
        return taken

    def _takes_of_traceback(self, line: Line) -> bool:
        """Take lines up to the exception at the end, and its message where that begins on a line of its own."""
        if self.rule.expression.match(self.lines[0].text.strip()):
            if not line.text.strip() or _indent(line.text) > self.indent:
                return self.read < _MAX_TRACEBACK_LINES
            if not patterns.EXCEPTION.match(line.text.strip()):
                return False
            self.lines, self.read = [line], 0
            return True
        if not self.lines[0].text.endswith(":") or self.read > 3 or not line.text.strip():
            return False
        self.lines.append(line)
        return True

    def closed(self) -> LogError | None:
        """Return the error; None for a traceback that has no end."""
        kind, rank = self.rule.kind, self.rule.rank
        said = " ".join(line.text.strip() for line in self.lines)
        if self.rule.follow == patterns.TRACEBACK:
            if self.rule.expression.match(said):
                return None
            rule = _rule_of(said)
            if rule is not None and rule.kind != "error":
                kind, rank = rule.kind, rule.rank
        if rank in (patterns.CAUSE, patterns.LIKELY):
            kind = next((refined for refined, found in patterns.REFINED if found.search(said)), kind)
        return LogError(kind, rank, tuple(Line(line.number, line.text[:MAX_WIDTH]) for line in self.lines))


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _rule_of(said: str) -> patterns.Rule | None:
    """Find the rule for a line without its indentation."""
    return next((rule for rule in patterns.RULES if rule.expression.search(said)), None)


class _Kept:
    """The first errors of each rank, each of them once."""

    def __init__(self) -> None:
        self.found: dict[int, list[LogError]] = {rank: [] for rank in range(patterns.FOLLOWS + 1)}
        self.known: set[str] = set()

    def add(self, error: LogError | None) -> None:
        """Remember it, unless there are enough or it is there already."""
        if error is None or len(self.found[error.rank]) >= _MAX_KEPT:
            return
        message = _MESSAGE.search(error.text)
        key = _NUMBERS.sub("0", message.group() if message else error.text)
        if key not in self.known:
            self.known.add(key)
            self.found[error.rank].append(error)

    def mark_survived(self) -> None:
        """Rank down what was found so far: it did not keep a tool from ending well."""
        survived = self.found[patterns.SURVIVED]
        for rank in (patterns.CAUSE, patterns.LIKELY):
            survived += [error._replace(rank=patterns.SURVIVED) for error in self.found[rank]]
            self.found[rank] = []
        self.found[patterns.SURVIVED] = sorted(survived, key=lambda error: error.lines[0])[-_MAX_KEPT:]
        self.found[patterns.FOLLOWS], self.known = [], set()

    def best(self) -> list[LogError]:
        """Choose the most telling ones; what only follows from others where there are no others."""
        causes = [error for rank in range(patterns.FOLLOWS) for error in self.found[rank]]
        causes.sort(key=lambda error: (error.rank, error.lines[0].number))
        return (causes or self.found[patterns.FOLLOWS])[:MAX_ERRORS]


def find_errors(lines: Iterable[tuple[int, bytes]]) -> list[LogError]:
    """Find what numbered lines of a log say of a failure: :data:`MAX_ERRORS` at most, the most telling one first."""
    kept, opened = _Kept(), None
    for number, raw, suspicious in _suspected(lines):
        if opened is not None:
            line = Line(number, plain_text(raw))
            if opened.takes(line):
                continue
            kept.add(opened.closed())
            opened = None
        if not suspicious:
            continue
        line = Line(number, plain_text(raw))
        said = line.text.strip()
        if patterns.WELL.search(said):
            kept.mark_survived()
            continue
        rule = patterns.TRACE if patterns.TRACE.expression.match(said) else _rule_of(said)
        if rule is None or patterns.IGNORED.search(said) or (said.startswith(patterns.OWN) and rule.rank):
            continue
        opened = _Open(rule, line)
        if not rule.follow:
            kept.add(opened.closed())
            opened = None
    if opened is not None:
        kept.add(opened.closed())
    return kept.best()


def _suspected(lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes, bool]]:
    """Go through the lines, and tell of each whether it may be of an error.

    Most lines are not, and a log has millions: words that a whole batch does not have are not looked for in its lines.
    """
    remaining = iter(lines)
    for batch in iter(lambda: list(itertools.islice(remaining, _BATCH)), []):
        text = b"".join(raw for _number, raw in batch)
        words = [word for word in patterns.WORDS if word in text]
        for number, raw in batch:
            yield number, raw, any(word in raw for word in words) and not patterns.DOING.match(raw)


def find_attempt_errors(path: str, offset: int, end: Mapping[str, Any]) -> list[LogError]:
    """Find what the log of an attempt, which began at a byte of it, says of its failure.

    What cannot be read says nothing, and what was ended from outside did not end for what its log says.
    """
    if end.get("reason") not in OWN_ENDS:
        return []
    try:
        with open(path, "rb") as stream:
            return find_errors(raw_lines(stream, offset))
    except OSError:
        return []


def kind_of(end: Mapping[str, Any], found: Sequence[LogError]) -> str:
    """Return the kind of the cause, for its remedy; empty where nothing is known of it."""
    if found:
        return found[0].kind
    return "killed" if end.get("signal") == 9 or end.get("code") == 137 else ""
