# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Mask passwords on the command lines of programs that take one by an option whose name does not say so. Pure."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from .masks import MASK, is_reference

_VALUE = r"(\"[^\"\r\n]*\"|'[^'\r\n]*'|[^\s\"']+)"


class Program(NamedTuple):
    """One program's option: what has to stand in a line, what stands before the value, what parts user and password."""

    hints: tuple[str, ...]
    """Small letters, one of which is in each line with it."""
    called: tuple[re.Pattern[str], ...]
    option: re.Pattern[str]
    parted: str = ""


def _program(hints: str, called: str, option: str, parted: str = "") -> Program:
    # Only the program itself may be named by its path.
    needed = tuple(
        re.compile(r"(?<![-\w%s])(?:%s)(?![\w./])" % ("/" if number else "", names))
        for number, names in enumerate(called.split()))
    return Program(tuple(hints.split()), needed, re.compile(option + _VALUE), parted)


PROGRAMS = (
    _program("curl", "curl", r"(\s(?:-[A-Za-z#]{0,8}[uU]|--(?:proxy-)?user(?:=|\s))\s{0,4})", ":"),
    _program("creds", "", r"(--(?:src-|dest-)?creds(?:=|\s)\s{0,4})", ":"),
    _program(
        "login", "docker|podman|buildah|nerdctl|helm|oras|skopeo|apptainer|singularity|az login",
        r"(\s-p(?:=|\s)\s{0,4})"),
    _program("sshpass", "sshpass", r"(\s-p\s{0,4})"),
    _program("mysql mariadb", "mysql\\w*|mariadb[\\w-]*", r"(\s-p)"),
    _program("ldap", "ldap(?:add|compare|delete|modify|passwd|search|whoami)", r"(\s-w\s{0,4})"),
    _program("redis-cli", "redis-cli", r"(\s-a\s{1,4})"),
    _program("smbclient", "smbclient", r"(\s-U\s{0,4})", "%"),
    _program("-pass", "", r"(-pass(?:in|out)?\s{1,4}pass:)"),
    _program(
        "secret session", "aws configure set", r"(\bset\s{1,4}\S{0,80}(?:secret_access_key|session_token)\s{1,4})"),
)
"""The manual pages of these programs say how they take a password; ``openssl`` and ``skopeo`` by the option alone."""

HINTS = tuple(hint for program in PROGRAMS for hint in program.hints)


def without_passwords(line: str) -> str:
    """Mask the passwords of one line."""
    small = line.lower()
    for program in PROGRAMS:
        if any(hint in small for hint in program.hints) and all(called.search(line) for called in program.called):
            line = program.option.sub(functools.partial(_masked, program.parted), line)
    return line


def _masked(parted: str, match: re.Match[str]) -> str:
    before, value = match.groups()
    mark = value[0] if value[0] in "'\"" else ""
    bare = value.strip("'\"")
    user, separator, password = bare.partition(parted) if parted else ("", "", bare)
    if not password or is_reference(password) or is_reference(value):
        return match.group()
    return before + mark + user + separator + MASK + mark
