# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Write what users see beyond the verified bytes: known problems, a message on load, or that a module is gone.

The verified bytes stay as they are, so nothing has to be verified again. A modulefile that is gone says so before
anything else, and the verified bytes behind that still undo what they did in sessions that have it loaded.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple, Sequence

from ..core.text import printable
from .lua import quoted as lua_quoted
from .tcl import quoted as tcl_quoted

_MARK = {"tcl": "#", "lmod": "--"}
_BEGIN = "%s Added when the release was published; what was verified is %s.\n%s torchstack: %s\n"
_RECORD = re.compile(r"^(?:#|--) torchstack: (\{.*\})$", re.M)
_TCL_COOKIE = "#%Module1.0\n"


class Added(NamedTuple):
    """What a visible modulefile says beyond the verified one."""

    notice: str = ""
    """The sentence that loading it says; with ``gone``, the one that it fails with."""
    known_problems: Sequence[str] = ()
    """Sentences that the module's help ends with."""
    gone: bool = False
    """Loading fails."""


def one_line(text: str) -> str:
    """Return a sentence without line breaks and what a terminal obeys, as a module command prints it."""
    return " ".join(printable(text).split())


def visible_bytes(syntax: str, verified: bytes, added: Added) -> bytes:
    """Return the modulefile as users shall see it."""
    if not (added.notice or added.known_problems or added.gone):
        return verified
    record = json.dumps(
        {"notice": added.notice, "known_problems": list(added.known_problems), "gone": added.gone}, sort_keys=True)
    begin = _BEGIN % (_MARK[syntax], "behind this" if added.gone else "before this", _MARK[syntax], record)
    if added.gone:
        front = (_TCL_COOKIE if syntax == "tcl" else "") + begin + _refusal(syntax, added.notice) + "\n"
        return front.encode("utf-8") + verified
    block = begin + _help(syntax, added) + (_message(syntax, added.notice) if added.notice else "")
    return verified + (b"" if verified.endswith(b"\n") else b"\n") + b"\n" + block.encode("utf-8")


def read_added(content: bytes | None) -> Added:
    """Parse what a visible modulefile says beyond the verified one; nothing where nothing was added."""
    found = _RECORD.findall((content or b"").decode("utf-8", "replace"))
    for line in found:
        try:
            record = json.loads(line)
            return Added(str(record["notice"]), tuple(map(str, record["known_problems"])), record["gone"] is True)
        except (ValueError, KeyError, TypeError):
            continue
    return Added()


def _help(syntax: str, added: Added) -> str:
    lines = [*([added.notice] if added.notice else []),
             *(["Known problems:"] if added.known_problems else []), *("- " + text for text in added.known_problems)]
    if syntax == "lmod":
        return "help(%s)\n" % lua_quoted("\n" + "\n".join(lines))
    texts = " ".join(tcl_quoted(line) for line in ["", *lines])
    return (
        "set more {}\n"
        "if {[llength [info procs ModulesHelp]]} {\n   lappend more [info body ModulesHelp]\n}\n"
        "foreach line [list %s] {\n   lappend more [list puts stderr $line]\n}\n"
        "proc ModulesHelp {} [join $more \"\\n\"]\n" % texts)


def _message(syntax: str, notice: str) -> str:
    if syntax == "lmod":
        return 'if mode() == "load" then LmodMessage(%s) end\n' % lua_quoted(notice)
    return "if {[module-info mode load]} {\n   puts stderr %s\n}\n" % tcl_quoted(notice)


def _refusal(syntax: str, notice: str) -> str:
    if syntax == "lmod":
        return 'if mode() == "load" then LmodError(%s) end\n' % lua_quoted(notice)
    return "if {[module-info mode load]} {\n   puts stderr %s\n   break\n}\n" % tcl_quoted(notice)
