# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Decide what the mode of each kind of entry becomes in a state.

A policy has one rule for files, one for executables (files with any x bit) and one for directories. A rule is an octal
mode or a list of symbolic clauses as chmod(1) has them, each with an explicit who, so that no umask takes part. The
default rules of ``frozen`` together equal ``chmod -R a-w,a+rX``: a file gets 444, an executable 555, a directory 555.
setuid, setgid and sticky are never taken away; a directory's rule may add setgid or sticky.
"""

from __future__ import annotations

import re
import stat
from typing import Mapping

from ..core.errors import StackError

FROZEN, WRITABLE = "frozen", "writable"
KINDS = ("files", "executables", "directories")
DEFAULTS = {
    FROZEN: {"files": "0444", "executables": "0555", "directories": "0555"},
    WRITABLE: {"files": "u+w", "executables": "u+w", "directories": "u+w"},
}

_OCTAL = re.compile(r"0?[0-7]{3,4}")
_CLAUSE = re.compile(r"([ugoa]+)((?:[-+=][rwxX]*)+)")
_CHANGE = re.compile(r"([-+=])([rwxX]*)")
_WHO = {"u": 0o700, "g": 0o070, "o": 0o007, "a": 0o777}
_BITS = {"r": 0o444, "w": 0o222, "x": 0o111}
_ANY_X, _ANY_W = 0o111, 0o222


def apply_rule(rule: str, mode: int, directory: bool) -> int:
    """Return the permission bits (07777) that an octal or symbolic rule makes of a mode; ValueError: it is neither.

    ``X`` means x for directories and for what has an x bit already.
    """
    special = mode & 0o7000
    if _OCTAL.fullmatch(rule):
        return int(rule, 8) | special
    bits = mode & 0o777
    for clause in rule.split(","):
        match = _CLAUSE.fullmatch(clause)
        if match is None:
            raise ValueError(
                "%r is neither an octal mode nor clauses such as a-w,a+rX with an explicit u, g, o or a" % rule
            )
        who = 0
        for letter in match.group(1):
            who |= _WHO[letter]
        for sign, letters in _CHANGE.findall(match.group(2)):
            wanted = 0
            for letter in letters:
                if letter != "X":
                    wanted |= _BITS[letter]
                elif directory or bits & _ANY_X:
                    wanted |= _BITS["x"]
            wanted &= who
            bits = bits & ~wanted if sign == "-" else (bits & ~who if sign == "=" else bits) | wanted
    return bits | special


class Policy:
    """Hold the rules of one state, some or none replaced; :meth:`target` says what an entry's mode becomes.

    StackError: a rule is no mode, or does not bring about what the state promises for every mode there is: ``frozen``
    leaves no write bit, ``writable`` gives the owner one; a directory stays readable and searchable for its owner, or
    nobody but root could ever look into it again; a file is not given setuid, setgid or sticky.
    """

    def __init__(self, state: str, rules: Mapping[str, str | None] | None = None) -> None:
        self.state = state
        self.rules = dict(DEFAULTS[state])
        self.rules.update((kind, rule) for kind, rule in (rules or {}).items() if rule is not None)
        for kind in KINDS:
            try:
                self._check(kind)
            except ValueError as error:
                raise StackError(
                    "The policy for %s cannot be used: %s." % (kind, error), "policy", "Correct policy.%s." % kind
                ) from error

    def _check(self, kind: str) -> None:
        rule = self.rules[kind]
        directory = kind == "directories"
        if not directory and _OCTAL.fullmatch(rule) and int(rule, 8) & 0o7000:
            raise ValueError("%s would set setuid, setgid or sticky on files" % rule)
        if directory and _OCTAL.fullmatch(rule) and int(rule, 8) & stat.S_ISUID:
            raise ValueError("%s would set setuid on directories" % rule)
        for mode in range(0o1000):
            if not directory and bool(mode & _ANY_X) != (kind == "executables"):
                continue
            after = apply_rule(rule, mode, directory)
            if self.state == FROZEN and after & _ANY_W:
                raise ValueError("%s leaves a write bit in mode %04o (%04o)" % (rule, mode, after))
            if self.state == WRITABLE and not after & stat.S_IWUSR:
                raise ValueError("%s leaves mode %04o without a write bit for its owner (%04o)" % (rule, mode, after))
            # Of modes without u=rx, a relative rule need not make one: such a directory is reported when it is met.
            if directory and mode & 0o500 == 0o500 and after & 0o500 != 0o500:
                raise ValueError("%s takes r or x from the owner of directories (%04o)" % (rule, after))

    def target(self, mode: int) -> int:
        """Return the permission bits that an entry with this ``st_mode`` gets.

        Everything but a directory counts as a file: a pipe or socket that others may write to is not frozen either.
        """
        if stat.S_ISDIR(mode):
            return apply_rule(self.rules["directories"], mode & 0o7777, True)
        kind = "executables" if mode & _ANY_X else "files"
        return apply_rule(self.rules[kind], mode & 0o7777, False)
