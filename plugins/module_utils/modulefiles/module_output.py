# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Parse what a module system printed: variables from its Python output, the rest from bash. Pure.

Both systems print statements for a shell to evaluate. None of that is evaluated here. The quoting rules are those of
the printing code: Lmod writes its Python strings with Lua's ``%q`` (so ``\\9`` is a decimal escape and a backslash
before a line break means the line break; Python itself would read both wrongly), Environment Modules puts a backslash
before each single quote and changes nothing else, backslashes included.
"""

from __future__ import annotations

import re
from typing import Callable, NamedTuple

_LUA_STRING = rb'"((?:[^"\\]|\\.)*)"'
_LMOD_STATEMENT = re.compile(
    rb"^(?:del os\.environ\[%s\]$|os\.environ\[%s\] = %s;$|_mlstatus = (True|False)$)"
    % (_LUA_STRING, _LUA_STRING, _LUA_STRING),
    re.M | re.S)
_LUA_ESCAPE = re.compile(rb"\\(\d{1,3}|.)", re.S)
_LUA_LETTERS = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}

_EM_START = re.compile(
    rb"^(?:del os\.environ\['([^'\n]+)'\]$|os\.environ\['([^'\n]+)'\] = '|_mlstatus = (True|False)$)", re.M)
_EM_END = re.compile(rb"'(?:\n|\Z)")
_EM_NEXT = re.compile(rb"os\.environ\['|del os\.environ\['|_mlstatus = |import |os\.chdir\('|subprocess\.|\Z")

_NAME = rb"[A-Za-z_][A-Za-z0-9_]*"
_ASSIGNMENT = re.compile(rb"(%s)=" % _NAME)
_EXPORT = re.compile(rb"[ \t]*;\s*export (%s);[ \t]*(?:\n|\Z)" % _NAME)
_UNSET = re.compile(rb"unset (%s);[ \t]*(?:\n|\Z)" % _NAME)
_ALIAS = re.compile(rb"alias ([^\s=]+)=")
_STATEMENT_END = re.compile(rb"[ \t]*;[ \t]*(?:\n|\Z)")
_REMOVED = re.compile(rb"(unalias|unset -f) (\S+?)(?: 2> ?/dev/null \|\| true)?;[ \t]*(?:\n|\Z)")
_FUNCTION = re.compile(rb"([^\s=;()]+) \(\) \{ ")
_COMPLETE = re.compile(rb'(?:\[\[ -n "\$\{BASH_VERSION:-\}" \]\] && )?(complete [^\n]*?);[ \t]*(?:\n|\Z)')
_STATUS = re.compile(rb"(?:test 0(?: = 1)?;|false)[ \t]*(?:\n|\Z)")


class Variables(NamedTuple):
    """The variables that a module command sets (a text) or unsets (None), in order, and its verdict if it gave one."""

    changes: dict[str, str | None]
    status: bool | None


class ShellParts(NamedTuple):
    """What only a shell gets from a module command.

    ``functions`` and ``aliases`` map a name to its text, or to None where the command removes it. ``commands`` are
    stretches of text that the shell would execute. ``differing`` names variables which the shell would not get with
    the value that the modulefile asked for. ``failed`` is the command's verdict.
    """

    functions: dict[str, str | None]
    aliases: dict[str, str | None]
    commands: list[str]
    completions: list[str]
    differing: list[str]
    failed: bool


def _text(raw: bytes) -> str:
    """Return a name or value, as Python itself holds those of its own environment."""
    return raw.decode("utf-8", "surrogateescape")


def _shown(raw: bytes) -> str:
    """Return a text to report, which any output can hold."""
    return raw.decode("utf-8", "backslashreplace")


def unquote_lua(raw: bytes) -> bytes:
    """Undo Lua's ``%q`` (reference manual, string.format and 3.1): the text between the double quotes, as bytes."""

    def plain(match: re.Match[bytes]) -> bytes:
        escape = match.group(1)
        if escape.isdigit():
            return bytes([int(escape) & 0xFF])
        return _LUA_LETTERS.get(escape, escape)

    return _LUA_ESCAPE.sub(plain, raw)


def parse_lmod_python(output: bytes) -> Variables:
    """Read what ``lmod python ...`` printed; text that a modulefile itself printed is skipped."""
    changes: dict[str, str | None] = {}
    status = None
    for match in _LMOD_STATEMENT.finditer(output):
        removed, name, value, verdict = match.groups()
        if verdict:
            status = verdict == b"True"
        elif removed is not None:
            changes[_text(unquote_lua(removed))] = None
        else:
            changes[_text(unquote_lua(name))] = _text(unquote_lua(value))
    return Variables(changes, status)


def _em_value_end(output: bytes, start: int) -> int:
    """Tell where the value beginning at ``start`` ends: at its closing quote.

    A quote inside a value always carries a backslash, so a bare quote closes. One that follows a backslash closes a
    value ending in a backslash only where a new statement begins behind it; inside a value, that statement's own
    quotes would carry backslashes.
    """
    for match in _EM_END.finditer(output, start):
        at = match.start()
        if at == start or output[at - 1:at] != b"\\" or _EM_NEXT.match(output, match.end()):
            return at
    return len(output)


def parse_em_python(output: bytes) -> Variables:
    """Read what ``modulecmd.tcl python ...`` printed; text that a modulefile itself printed is skipped."""
    changes: dict[str, str | None] = {}
    status = None
    position = 0
    while True:
        match = _EM_START.search(output, position)
        if match is None:
            return Variables(changes, status)
        removed, name, verdict = match.groups()
        position = match.end()
        if verdict:
            status = verdict == b"True"
        elif removed is not None:
            changes[_text(removed)] = None
        else:
            end = _em_value_end(output, position)
            changes[_text(name)] = _text(output[position:end].replace(b"\\'", b"'"))
            position = end + 1


def read_word(output: bytes, position: int) -> tuple[bytes, int, bool]:
    """Read one shell word (POSIX shell command language, 2.2 quoting) up to an unquoted semicolon.

    Returns the value, the position of the semicolon (or the end), and whether the word is broken: holds an unquoted
    line break, at which the shell would end the command; the value then has what follows as well.
    """
    value = bytearray()
    broken = quoted = False
    while position < len(output):
        character = output[position:position + 1]
        if character == b";":
            break
        if character == b"'":
            end = output.find(b"'", position + 1)
            end = len(output) if end < 0 else end
            value += output[position + 1:end]
            position = end
        elif character == b"\\":
            position += 1
            value += output[position:position + 1]
        elif character == b'"':
            quoted = not quoted
        else:
            broken = broken or (character == b"\n" and not quoted)
            value += character
        position += 1
    return bytes(value), position, broken


class _ShellReader:
    """Takes a module command's bash output apart, statement by statement, from its beginning."""

    def __init__(self, output: bytes, changes: dict[str, str | None]) -> None:
        self.output = output
        self.changes = changes
        self.functions: dict[str, str | None] = {}
        self.aliases: dict[str, str | None] = {}
        self.completions: list[str] = []
        self.commands: list[bytes] = [b""]
        self.seen: dict[str, str] = {}
        self.failed = False
        self.forms: list[tuple[re.Pattern[bytes], Callable[[re.Match[bytes]], int]]] = [
            (_ASSIGNMENT, self.assignment), (_UNSET, self.unset), (_ALIAS, self.alias), (_REMOVED, self.removed),
            (_FUNCTION, self.function), (_COMPLETE, self.completion), (_STATUS, self.status)]

    def assignment(self, match: re.Match[bytes]) -> int:
        name = _text(match.group(1))
        if self.changes.get(name) is None:
            return 0
        value, end, broken = read_word(self.output, match.end())
        if not broken:
            self.seen[name] = _text(value)
        export = _EXPORT.match(self.output, end)
        return export.end() if export else end + 1

    def unset(self, match: re.Match[bytes]) -> int:
        name = _text(match.group(1))
        return match.end() if name in self.changes and self.changes[name] is None else 0

    def alias(self, match: re.Match[bytes]) -> int:
        value, end, _broken = read_word(self.output, match.end())
        self.aliases[_shown(match.group(1))] = _shown(value)
        closing = _STATEMENT_END.match(self.output, end)
        return closing.end() if closing else end + 1

    def removed(self, match: re.Match[bytes]) -> int:
        table = self.aliases if match.group(1) == b"unalias" else self.functions
        table[_shown(match.group(2))] = None
        return match.end()

    def function(self, match: re.Match[bytes]) -> int:
        name = match.group(1)
        for ending in (b"; \n};\n", b"; }; export -f " + name + b";\n", b"; };\n"):
            end = self.output.find(ending, match.end())
            if end >= 0:
                self.functions[_shown(name)] = _shown(self.output[match.end():end])
                return end + len(ending)
        return 0

    def completion(self, match: re.Match[bytes]) -> int:
        self.completions.append(_shown(match.group(1)))
        return match.end()

    def status(self, match: re.Match[bytes]) -> int:
        self.failed = match.group(0).rstrip() != b"test 0;"
        return match.end()

    def statement(self, position: int) -> int:
        """Take the statement at ``position``; return where the next begins, or 0 for none of a known form."""
        for form, take in self.forms:
            match = form.match(self.output, position)
            end = take(match) if match else 0
            if end:
                return end
        return 0

    def read(self) -> None:
        position = 0
        while position < len(self.output):
            end = self.statement(position)
            if end and self.commands[-1]:
                self.commands.append(b"")
            elif not end:
                end = self.output.find(b"\n", position) + 1 or len(self.output)
                self.commands[-1] += self.output[position:end]
            position = end


def parse_shell(output: bytes, changes: dict[str, str | None]) -> ShellParts:
    """Read what ``lmod bash ...`` or ``modulecmd.tcl bash ...`` printed.

    ``changes``: the variables of the same command's Python output. Statements for these are taken out; whatever is no
    statement of a known form is text that the shell would execute.
    """
    reader = _ShellReader(output, changes)
    reader.read()
    commands = [_shown(text.strip()) for text in reader.commands if text.strip()]
    differing = sorted(name for name, value in changes.items() if value is not None and reader.seen.get(name) != value)
    return ShellParts(reader.functions, reader.aliases, commands, reader.completions, differing, reader.failed)
