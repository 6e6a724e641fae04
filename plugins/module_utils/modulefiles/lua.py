# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Render a description as a Lua modulefile, for Lmod 8.6 and later. Pure.

Lmod reverses a modulefile on unload by giving its functions the opposite meaning: ``setenv`` unsets, ``prepend_path``
removes, ``pushenv`` brings back what it saved. That does not give back what was there before:

- ``setenv`` knows nothing of it, and ``pushenv`` takes the latest off its stack, whoever put it there: it brings back
  values of modules that are gone, as where Lmod replaces one of the same family. It also keeps values as base64, and
  loses an empty one, damages what is not ASCII, and loses the end of one whose base64 form ends in a slash;
- ``prepend_path`` counts who brought an entry, so that entries are left to Lmod; but it drops repeated and empty
  entries, rewrites paths that are not in their shortest form, of the whole variable, and moves entries that the user
  already had.

So the file keeps, for each variable, what was there before it and what it set, in one variable that all modules of this
kind share, and sets a former value again through Lmod's table of variables, which an unloading modulefile reaches by no
documented function. A Lmod without that table gets the ordinary way.
"""

from __future__ import annotations

import re
from typing import Mapping

from . import module_ranges
from .description import (
    comment_lines,
    first_files,
    parse_value,
    search_paths,
)
from .lua_helpers import FIRST_FILE, HELPERS

KEPT = "__TORCHSTACK_BEFORE_"
"""Start of the names of variables in which modules keep what was there before them; the same for all of them."""

_PLAIN = re.compile("[\\n\\t\\x20-\\x7e\\x80-\U0010ffff]*\\Z")


def filled_helpers(helpers: str, name: str, first_file: str) -> str:
    """Return the functions that a modulefile begins with; ``name`` is quoted, ``first_file`` has the one for files."""
    text = helpers.replace("@FIRST_FILE@", first_file)
    return text.replace("@ME@", name).replace("@KEPT@", '"%s"' % KEPT)


def _first_file_lines(entry: Mapping, description: Mapping) -> list[str]:
    """Return the lines that set the variables of one entry of ``first_file``."""
    lines = ["local file = first_file({%s}, %s)" % (
        ", ".join(map(quoted, entry["candidates"])), quoted(entry["missing"]))]
    for name in entry["variables"]:
        lines.extend("-- " + reason for reason in comment_lines(description, name))
        lines.append("replace(%s, file)" % quoted(name))
    return lines


def _extension_lines(description: Mapping) -> list[str]:
    """Return the lines by which ``module spider`` finds what is inside; Lmod knows the function since 8.2."""
    entries = description.get("extensions", [])
    if not entries:
        return []
    return ["if extensions then", "   extensions(%s)" % ",\n      ".join(map(quoted, entries)), "end"]


def quoted(text: str) -> str:
    """Return a text as a Lua string on one line, for any text."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}
    return '"%s"' % "".join(escapes.get(char, char if _PLAIN.match(char) else "\\%03d" % ord(char)) for char in text)


def long_text(text: str) -> str:
    """Return a text as a Lua string that reads as it is written, where that is possible."""
    if "\n" not in text or not _PLAIN.match(text):
        return quoted(text)
    level = ""
    while "]%s]" % level in text + "]":
        level += "="
    return "[%s[\n%s]%s]" % (level, text, level)


def value_of(text: str) -> str:
    """Return a value of the description as a Lua expression."""
    return " .. ".join(
        quoted(content) if kind == "text" else "from_environment(%s)" % quoted(content)
        for kind, content in parse_value(text))


def render_lua(description: Mapping, header: str) -> str:
    """Return the Lua modulefile of a description without faults; ``header`` has one sentence per line."""
    lines = ["-- " + line for line in header.splitlines()]
    if description["help"]:
        lines.append("help(%s)" % long_text(description["help"]))
    lines.extend("whatis(%s)" % quoted(line) for line in whatis_lines(description))
    lines.extend(_extension_lines(description))
    if description["family"]:
        lines.append("family(%s)" % quoted(description["family"]))
    lines.extend("conflict(%s)" % quoted(name) for name in description["conflicts"])
    for name in description["depends_on"]:
        wanted = module_ranges.parse(name)
        expression = module_ranges.lua_expression(wanted) if wanted else quoted(name)
        lines.append("depends_on(%s)" % expression)
        if wanted:
            # Where no version of the range is there, Lmod is content with any other one that is loaded.
            lines.append("prereq(%s)" % expression)
    work = [(name, "replace(%s, %s)" % (quoted(name), value_of(description["setenv"][name])))
            for name in sorted(description["setenv"])]
    work.extend((name, "replace(%s, false)" % quoted(name)) for name in sorted(description["unsetenv"]))
    work.extend(
        (name, "extend(%s, {%s}, {%s})" % (
            quoted(name), ", ".join(map(value_of, before)), ", ".join(map(value_of, after))))
        for name, (before, after) in search_paths(description).items())
    files = first_files(description)
    if work or files:
        lines.extend(filled_helpers(
            HELPERS, quoted(description["name"]), FIRST_FILE if files else "").splitlines())
        lines.append("")
    for entry in files:
        lines.extend(_first_file_lines(entry, description))
    for name, line in work:
        # The space keeps a reason that begins with brackets from being a comment of many lines.
        lines.extend("-- " + reason for reason in comment_lines(description, name))
        lines.append(line)
    lines.extend("set_alias(%s, %s)" % (quoted(name), quoted(description["aliases"][name]))
                 for name in sorted(description["aliases"]))
    for name in sorted(description["functions"]):
        body = description["functions"][name]
        # Lmod leaves the csh half of set_shell_function behind as an empty alias.
        lines.append('if myShellType() == "csh" then')
        if body["csh"]:
            lines.append("   set_alias(%s, %s)" % (quoted(name), quoted(body["csh"])))
        if body.get("fish"):
            # Since 8.7, Lmod defines no functions there.
            lines += ['elseif myShellType() == "fish" then',
                      "   set_alias(%s, %s)" % (quoted(name), quoted(body["fish"]))]
        lines += ["else", "   set_shell_function(%s, %s, %s)" % (quoted(name), quoted(body["sh"]), quoted("")), "end"]
    if description["load_message"]:
        lines += ['if mode() == "load" then', "   LmodMessage(%s)" % long_text(description["load_message"]), "end"]
    return "\n".join(lines) + "\n"


def whatis_lines(description: Mapping) -> list[str]:
    """Return the short lines by which ``module whatis`` and ``module keyword`` know the module."""
    lines = ["Name: %s" % description["name"], "Version: %s" % description["version"]]
    if description["category"]:
        lines.append("Category: %s" % description["category"])
    if description["keywords"]:
        lines.append("Keywords: %s" % ", ".join(description["keywords"]))
    lines.extend("%s: %s" % (key, description["whatis"][key]) for key in sorted(description["whatis"]))
    return lines
