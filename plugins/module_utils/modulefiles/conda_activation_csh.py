# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Write the lines of conda's activation scripts for csh and tcsh. Pure.

These have no functions, and no way to take a text apart that holds for every text: awk does it, from the environment.
An undefined variable ends a script; within backquotes double quotes end the outer ones, and a dollar is a variable.
"""

from __future__ import annotations

from typing import Iterator

from .conda_activation_sh import still_loaded
from .conda_activation_work import END, Work
from .description import parse_value

_ENTRY = "__TORCHSTACK_ENTRY"
_BEHIND = "__TORCHSTACK_BEHIND"
_HAS = "awk -v c=: -v n=%s -v e=" + _ENTRY + " 'BEGIN { print (index(c ENVIRON[n] c, c ENVIRON[e] c) > 0) }'"
_IN_PLACE = (
    "awk -v c=: -v n=%s -v e=" + _ENTRY + " -v b=" + _BEHIND + " 'BEGIN { v = c ENVIRON[n] c; s = c ENVIRON[b] c;"
    " a = index(v, s) + length(s) - 1; if (a < length(s)) a = 1;"
    " v = substr(v, 1, a) ENVIRON[e] substr(v, a); print substr(v, 2, length(v) - 2) }'")
_REST = "awk -v n=%s 'BEGIN { print substr(ENVIRON[n], 2) }'"
_WITHOUT = (
    "awk -v c=: -v n=%s -v k=%s 'BEGIN { v = c ENVIRON[n] c; m = split(substr(ENVIRON[k], 3), e, c);"
    " for (i = 1; i <= m; i++) { a = index(v, c e[i] c); if (a) v = substr(v, 1, a) substr(v, a + length(e[i]) + 2) }"
    " print substr(v, 2, length(v) - 2) }'")


def activate(work: Work) -> Iterator[str]:
    """Yield the lines of the script that activates."""
    yield from _loaded(work)
    yield 'if ("$torchstack_loaded" == "0") then'
    yield "  if ($?%s) then" % work.kept
    yield "    @ torchstack_loaded = $%s + 1" % work.kept
    yield '    setenv %s "$torchstack_loaded"' % work.kept
    yield "  else"
    yield "    setenv %s 1" % work.kept
    for name in [*work.setenv, *work.unsetenv]:
        yield "    if ($?%s) then" % name
        yield '      setenv %s "x${%s}"' % (_was(work, name), name)
        yield "    endif"
    yield from ("    setenv %s %s" % (name, value_of(value)) for name, value in work.setenv.items())
    yield from ("    unsetenv %s" % name for name in work.unsetenv)
    for name, entry, where in work.added:
        yield from ("    " + line for line in _add(work, name, entry, where))
    yield "    unsetenv %s" % _ENTRY
    yield "    unsetenv %s" % _BEHIND
    yield "  endif"
    yield "endif"
    yield "unset torchstack_loaded"


def deactivate(work: Work) -> Iterator[str]:
    """Yield the lines of the script that deactivates."""
    changed = [*work.unsetenv, *work.setenv]
    yield from _loaded(work)
    yield "if ($?%s) then" % work.kept
    yield "  if ($%s > 1) then" % work.kept
    yield "    @ torchstack_loaded = $%s - 1" % work.kept
    yield '    setenv %s "$torchstack_loaded"' % work.kept
    yield "  else"
    yield "    unsetenv %s" % work.kept
    yield '    if ("$torchstack_loaded" == "1") then'
    yield "      sh -c 'echo \"$0\" >&2' %s" % quoted(still_loaded(work.module))
    yield from ("      unsetenv %s" % _was(work, name) for name in [*changed, *work.paths])
    yield "    else"
    for name in work.paths:
        was = _was(work, name)
        if name == "PATH":
            yield "      setenv %s %s" % (_ENTRY, quoted(work.binaries))
            yield '      set torchstack_loaded = "`%s`"' % (_HAS % name)
            yield "      unsetenv %s" % _ENTRY
        yield "      if ($?%s && $?%s && $torchstack_loaded == 0) then" % (was, name)
        yield '        setenv %s "`%s`"' % (name, _WITHOUT % (name, was))
        yield '        if ("${%s}" == "" && "${%s}" =~ u*) unsetenv %s' % (name, was, name)
        yield "        unsetenv %s" % was
        yield "      endif"
        if name == "PATH":
            yield "      set torchstack_loaded = 0"
    for name in changed:
        yield "      if ($?%s) then" % _was(work, name)
        yield '        setenv %s "`%s`"' % (name, _REST % _was(work, name))
        yield "      else"
        yield "        unsetenv %s" % name
        yield "      endif"
        yield "      unsetenv %s" % _was(work, name)
    yield "    endif"
    yield "  endif"
    yield "endif"
    yield "unset torchstack_loaded"


def _loaded(work: Work) -> Iterator[str]:
    yield "set torchstack_loaded = 0"
    yield "if ($?LOADEDMODULES) then"
    for number, module in enumerate(work.modules):
        indent = "    " if number else "  "
        if number:
            yield '  if ("$torchstack_loaded" == "0") then'
        yield "%ssetenv %s %s" % (indent, _ENTRY, quoted(module))
        yield '%sset torchstack_loaded = "`%s`"' % (indent, _HAS % "LOADEDMODULES")
        yield "%sunsetenv %s" % (indent, _ENTRY)
        if number:
            yield "  endif"
    yield "endif"


def _add(work: Work, name: str, entry: str, where: str) -> Iterator[str]:
    was = _was(work, name)
    yield "if (! $?%s) then" % name
    yield '  setenv %s ""' % name
    yield "  setenv %s u" % was
    yield "else if (! $?%s) then" % was
    yield "  setenv %s s" % was
    yield "endif"
    yield "setenv %s %s" % (_ENTRY, value_of(entry))
    yield 'if ("`%s`" == "0") then' % (_HAS % name)
    yield '  setenv %s "${%s}:${%s}"' % (was, was, _ENTRY)
    yield '  if ("${%s}" == "") then' % name
    yield '    setenv %s "${%s}"' % (name, _ENTRY)
    yield "  else"
    if where == END:
        yield '    setenv %s "${%s}:${%s}"' % (name, name, _ENTRY)
    else:
        yield "    setenv %s %s" % (_BEHIND, quoted(where))
        yield '    setenv %s "`%s`"' % (name, _IN_PLACE % name)
    yield "  endif"
    yield "endif"


def _was(work: Work, name: str) -> str:
    return "%s_%s_WAS" % (work.kept, name)


def value_of(text: str) -> str:
    """Return a value of the description as a word of the shell."""
    return "".join('"`printenv %s`"' % content if kind == "variable" else quoted(content)
                   for kind, content in parse_value(text))


def quoted(text: str) -> str:
    """Return a text as one word of the shell."""
    return "'%s'" % text.replace("'", "'\\''").replace("!", "\\!").replace("\n", "\\\n")
