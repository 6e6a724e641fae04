# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Render a description as a Tcl modulefile, for Environment Modules 4 and 5. Pure.

Environment Modules reverses a modulefile on unload: ``setenv`` unsets, ``prepend-path`` removes, and ``unsetenv NAME
VALUE`` sets. By the latter the file gives back what was there before, kept as :mod:`.lua` keeps it. ``pushenv`` (5.1
and later) is not used: it keeps its stack as one colon-separated variable, and a value with a colon in it, such as any
address of a proxy, comes back cut off at the colon. ``setenv`` of a search path is not used alone: it throws away the
counts by which entries are known that several modules bring.
"""

from __future__ import annotations

from typing import Mapping

from . import module_ranges
from .description import (
    comment_lines,
    first_files,
    parse_value,
    search_paths,
)
from .lua import filled_helpers, whatis_lines
from .tcl_helpers import FIRST_FILE, VALUES
from .tcl_path_helpers import SEARCH_PATHS

_ESCAPES = {char: "\\" + char for char in '\\"$[]{}'}
_ESCAPES.update({"\n": "\\n", "\t": "\\t"})


def _first_file_lines(entry: Mapping, description: Mapping) -> list[str]:
    """Return the lines that set the variables of one entry; see its namesake in :mod:`.lua`."""
    lines = ["set file [first_file [list %s] %s]" % (
        " ".join(map(quoted, entry["candidates"])), quoted(entry["missing"]))]
    for name in entry["variables"]:
        lines.extend("# " + reason for reason in comment_lines(description, name))
        lines.append("replace %s $file" % name)
    return lines


def _family_lines(family: str) -> list[str]:
    """Return the lines of a family. Where it is taken, Environment Modules advises to unload a module of its name."""
    variable = "env(MODULES_FAMILY_%s)" % family.upper()
    return [
        "if {[module-info mode load] && [info exists %s] && [is-loaded $%s]} {" % (variable, variable),
        '   puts stderr "Of the family %s one module can be loaded, and $%s is: '
        'module switch $%s [module-info name]"' % (family, variable, variable), "}",
        "if {[llength [info commands family]]} {", "   family %s" % quoted(family), "} else {",
        "   conflict %s" % quoted(family), "}"]


def quoted(text: str) -> str:
    """Return any text as one Tcl word on one line; braces too are escaped, as Tcl counts them before quotes."""
    return '"%s"' % "".join(
        _ESCAPES.get(char, char if char >= " " and char != "\x7f" else "\\%03o" % ord(char)) for char in text)


def value_of(text: str) -> str:
    """Return a value of the description as one Tcl word."""
    return '"%s"' % "".join(
        quoted(content)[1:-1] if kind == "text" else "[from_environment %s]" % content
        for kind, content in parse_value(text))


def render_tcl(description: Mapping, header: str) -> str:
    """Return the Tcl modulefile of a description without faults; ``header`` has one sentence per line."""
    lines = ["#%Module1.0"]
    lines.extend("# " + line for line in header.splitlines())
    if description["help"]:
        lines.append("proc ModulesHelp {} {")
        lines.extend("   puts stderr %s" % quoted(line) for line in description["help"].splitlines())
        lines.append("}")
    lines.extend("module-whatis %s" % quoted(line) for line in whatis_lines(description))
    lines.append("conflict %s" % quoted(description["name"]))
    if description["family"]:
        lines.extend(_family_lines(description["family"]))
    lines.extend("conflict %s" % quoted(name) for name in description["conflicts"])
    ranges = {name: module_ranges.parse(name) for name in description["depends_on"]}
    if any(ranges.values()):
        lines.extend(module_ranges.TCL.splitlines())
    lines.extend("module load %s" % (
        '[in_range %s "%s" "%s"]' % wanted if wanted else quoted(name)) for name, wanted in ranges.items())
    work = [(name, "replace %s %s" % (name, value_of(description["setenv"][name])))
            for name in sorted(description["setenv"])]
    work.extend((name, "without %s" % name) for name in sorted(description["unsetenv"]))
    work.extend(
        (name, "extend %s [list%s] [list%s]" % (
            name, "".join(" " + value_of(value) for value in before),
            "".join(" " + value_of(value) for value in after)))
        for name, (before, after) in search_paths(description).items())
    files = first_files(description)
    if work or files or description["functions"]:
        lines.extend(filled_helpers(
            VALUES + SEARCH_PATHS, quoted(description["name"]), FIRST_FILE if files else "").splitlines())
        lines.append("")
    for entry in files:
        lines.extend(_first_file_lines(entry, description))
    for name, line in work:
        lines.extend("# " + reason for reason in comment_lines(description, name))
        lines.append(line)
    lines.extend("set-alias %s %s" % (name, quoted(description["aliases"][name]))
                 for name in sorted(description["aliases"]))
    for name in sorted(description["functions"]):
        body = description["functions"][name]
        lines.append('if {[module-info shelltype csh]} {')
        if body["csh"]:
            lines.append("   set-alias %s %s" % (name, quoted(body["csh"])))
        if body.get("fish"):
            lines += ["} elseif {[module-info shelltype fish] && [can_define]} {",
                      "   set-function %s %s" % (name, quoted(body["fish"] + " $argv"))]
        lines += ["} elseif {[can_define]} {", "   set-function %s %s" % (name, quoted(body["sh"])), "}"]
    if description["load_message"]:
        lines.append("if {[module-info mode load]} {")
        lines.extend("   puts stderr %s" % quoted(line) for line in description["load_message"].splitlines())
        lines.append("}")
    return "\n".join(lines) + "\n"
