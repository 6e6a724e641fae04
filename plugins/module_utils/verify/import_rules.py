# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Parse what a release says about its imports into rules that are ready to match."""

from __future__ import annotations

import functools
import json
import re
from typing import Any, Mapping, NamedTuple, Sequence

from ..core.errors import StackError
from .library_rules import Forbidden
from .rule_globs import rule_path_glob, soname_glob

EACH = "*"
"""The rule of ``single`` that looks at each soname for itself."""


class Provider(NamedTuple):
    """Describe where a library has to come from, and whether it has to be there at all."""

    name: str
    path: str
    reason: str
    required: bool
    sonames: re.Pattern[str]
    paths: re.Pattern[str]


class Single(NamedTuple):
    """Describe sonames of which one file may be mapped."""

    name: str
    sonames: re.Pattern[str]


class Allowance(NamedTuple):
    """Describe libraries about which nothing is wrong, with the reason; ``path`` may be empty."""

    name: str
    path: str
    reason: str
    sonames: re.Pattern[str]
    paths: re.Pattern[str] | None


class Expectation(NamedTuple):
    """Describe an expression and what it has to be: a value, or a text that a pattern matches whole."""

    value: str
    equals: Any
    matches: re.Pattern[str] | None
    reason: str

    def is_met(self, actual: Any) -> bool:
        """Tell whether a value is what was expected."""
        if self.matches is None:
            return values_equal(actual, self.equals)
        return self.matches.fullmatch(actual if isinstance(actual, str) else as_text(actual)) is not None

    @property
    def expected_text(self) -> str:
        """Return what was expected, in words."""
        return "match %s" % self.matches.pattern if self.matches else "be %s" % as_text(self.equals)


class Rules(NamedTuple):
    """Describe all rules of a verification of imports."""

    modules: tuple[str, ...]
    providers: tuple[Provider, ...]
    single: tuple[Single, ...]
    forbid: tuple[Forbidden, ...]
    allow: tuple[Allowance, ...]
    expect: tuple[Expectation, ...]


def parse_rules(given: Mapping[str, Any]) -> Rules:
    """Make the module's options ready to match; refuse those that can never do what they are for."""
    for module in given["modules"]:
        if not all(part.isidentifier() for part in module.split(".")):
            raise _wrong("%r under modules is not the name of a module." % module, "Write it as import would.")
    if not given["modules"]:
        raise _wrong("modules is empty.", "Name what the release is for.")
    paths = functools.partial(rule_path_glob, failed_step="plan", here=not given.get("container"))
    return Rules(
        modules=tuple(given["modules"]),
        providers=tuple(
            Provider(
                rule["name"], rule["path"], rule.get("reason") or "", bool(rule.get("required")),
                _sonames("providers", rule["name"]), paths("providers", rule["path"]),
            )
            for rule in given.get("providers") or []
        ),
        single=tuple(Single(name, _sonames("single", name)) for name in given.get("single") or []),
        forbid=tuple(
            Forbidden(rule["path"], rule["reason"], paths("forbid", rule["path"], below=True))
            for rule in given.get("forbid") or []
        ),
        allow=tuple(
            Allowance(
                rule["name"], rule.get("path") or "", rule["reason"], _sonames("allow", rule["name"]),
                paths("allow", rule["path"]) if rule.get("path") else None,
            )
            for rule in given.get("allow") or []
        ),
        expect=tuple(_expectation(rule) for rule in given.get("expect") or []),
    )


def values_equal(one: Any, other: Any) -> bool:
    """Tell whether two plain values are equal: 2 is 2.0, and neither 1 is true nor "2" is 2."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(values_equal(one[key], other[key]) for key in one)
    if isinstance(one, Sequence) and isinstance(other, Sequence) and not isinstance(one, str):
        return not isinstance(other, str) and len(one) == len(other) and all(map(values_equal, one, other))
    return bool(one == other)


def as_text(value: Any) -> str:
    """Render a plain value as JSON."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _expectation(rule: Mapping[str, Any]) -> Expectation:
    if not rule["value"].strip():
        raise _wrong("An entry of expect has an empty value.", "Write a Python expression over the modules.")
    expression = None
    if rule.get("matches") is not None:
        try:
            expression = re.compile(rule["matches"])
        except re.error as error:
            message = "%r under expect is not a regular expression: %s." % (rule["matches"], error)
            raise _wrong(message, "Correct it.") from error
    return Expectation(rule["value"].strip(), rule.get("equals"), expression, rule.get("reason") or "")


def _sonames(kind: str, pattern: str) -> re.Pattern[str]:
    if not pattern or "/" in pattern:
        raise _wrong("%r under %s is not a glob over sonames." % (pattern, kind), "Write a file name, as libmpi.so.*.")
    return soname_glob(pattern)


def _wrong(message: str, remedy: str) -> StackError:
    return StackError(message, "plan", remedy)
