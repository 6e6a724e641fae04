# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Evaluate the environment markers of requirements for an interpreter. Pure.

The grammar is that of the specification "Dependency specifiers" (PEP 508). Versions are compared by their release
numbers, with pre-releases before them; that is all that locks write.
"""

from __future__ import annotations

import re
from typing import Any, Mapping

_TOKEN = re.compile(
    r"\s*(?:(?P<bracket>[()])|(?P<quoted>'[^']*'|\"[^\"]*\")|(?P<compare>===|~=|==|!=|<=|>=|<|>)|(?P<word>[A-Za-z_.]+))"
)
_VERSION = re.compile(r"v?(\d+(?:\.\d+)*)((?:a|b|c|rc)\d*)?(?:[.+].*)?\Z", re.IGNORECASE)
_OTHER_NAMES = {"os.name": "os_name", "sys.platform": "sys_platform", "python_implementation":
                "platform_python_implementation"}


MOST_BRACKETS = 50
"""Far more than markers have."""


def environment(version: str, implementation: str, platform: str) -> dict[str, str]:
    """Tell what markers ask of an interpreter on Linux, such as ``3.11.2``, ``cpython`` and ``linux_x86_64``."""
    titles = {"cpython": "CPython", "pypy": "PyPy"}
    return {
        "python_full_version": version,
        "python_version": ".".join(version.split(".")[:2]),
        "implementation_name": implementation,
        "implementation_version": version,
        "platform_python_implementation": titles.get(implementation, implementation),
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": platform.partition("_")[2],
        "platform_release": "",
        "platform_version": "",
        "extra": "",
    }


def applies(marker: str, variables: Mapping[str, str]) -> bool:
    """Tell whether a requirement with this marker is meant for an interpreter; an empty one always is.

    Raises ValueError: it is no marker; the message is the end of a sentence.
    """
    return not marker.strip() or _Reader(marker, variables).read()


class _Reader:
    """Reads a marker from left to right, and judges as it goes."""

    def __init__(self, marker: str, variables: Mapping[str, str]) -> None:
        self.marker = marker
        self.variables = variables
        self.tokens: list[tuple[str, str]] = []
        position = 0
        text = marker.rstrip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise self.refusal()
            self.tokens.append((str(match.lastgroup), match.group(str(match.lastgroup))))
            position = match.end()
        # Each is read by calls within calls, of which Python has a limit.
        if self.tokens.count(("bracket", "(")) > MOST_BRACKETS:
            raise self.refusal()

    def refusal(self) -> ValueError:
        return ValueError("'%s' is no marker that is understood" % self.marker.strip())

    def read(self) -> bool:
        found = self.either()
        if self.tokens:
            raise self.refusal()
        return found

    def taken(self, kind: str, text: str) -> bool:
        if self.tokens and self.tokens[0] == (kind, text):
            self.tokens.pop(0)
            return True
        return False

    def either(self) -> bool:
        found = self.both()
        while self.taken("word", "or"):
            found = self.both() or found
        return found

    def both(self) -> bool:
        found = self.comparison()
        while self.taken("word", "and"):
            found = self.comparison() and found
        return found

    def comparison(self) -> bool:
        if self.taken("bracket", "("):
            found = self.either()
            if not self.taken("bracket", ")"):
                raise self.refusal()
            return found
        left = self.value()
        operator = self.operator()
        return _compared(left, operator, self.value())

    def operator(self) -> str:
        if self.taken("word", "not"):
            if not self.taken("word", "in"):
                raise self.refusal()
            return "not in"
        if self.tokens and (self.tokens[0][0] == "compare" or self.tokens[0] == ("word", "in")):
            return self.tokens.pop(0)[1]
        raise self.refusal()

    def value(self) -> str:
        if not self.tokens:
            raise self.refusal()
        kind, text = self.tokens.pop(0)
        if kind == "quoted":
            return text[1:-1]
        name = _OTHER_NAMES.get(text, text)
        if kind != "word" or name not in self.variables:
            raise self.refusal()
        return self.variables[name]


def _compared(left: str, operator: str, right: str) -> bool:
    if operator == "in":
        return left in right
    if operator == "not in":
        return left not in right
    if operator in ("==", "!=") and right.endswith(".*") and _VERSION.match(left):
        return _has_prefix(left, right[:-2]) == (operator == "==")
    sides: tuple[Any, Any] = (_version_key(left), _version_key(right))
    if None in sides or operator == "===":
        sides = (left, right)
    if operator == "~=":
        return bool(sides[0] >= sides[1]) and _has_prefix(left, right.rpartition(".")[0])
    return {
        "==": sides[0] == sides[1], "===": sides[0] == sides[1], "!=": sides[0] != sides[1],
        "<": sides[0] < sides[1], "<=": sides[0] <= sides[1], ">": sides[0] > sides[1], ">=": sides[0] >= sides[1],
    }[operator]


def _has_prefix(version: str, start: str) -> bool:
    """Tell whether the release numbers of a version begin with others; those that it lacks are zeros."""
    found = _VERSION.match(version)
    numbers = [int(part) for part in found.group(1).split(".")] if found else []
    wanted = [int(part) for part in start.split(".") if part.isdigit()]
    return (numbers + [0] * len(wanted))[: len(wanted)] == wanted


def _version_key(text: str) -> tuple[tuple[int, ...], str] | None:
    """Return something that versions can be ordered by; None for what is no version."""
    match = _VERSION.match(text.strip())
    if match is None:
        return None
    numbers = [int(part) for part in match.group(1).split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return (tuple(numbers), (match.group(2) or "z").lower())
