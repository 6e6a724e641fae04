# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Write the lines of conda's activation scripts for fish, where a variable that ends in PATH is a list. Pure."""

from __future__ import annotations

from typing import Iterator

from .conda_activation_sh import still_loaded
from .conda_activation_work import Work
from .description import parse_value

_ADD = r"""
    function __torchstack_add --argument-names name entry where
      set -l value "$$name"
      set -l was @K@_{$name}_WAS
      if not set -q $was
        set -q $name; and set -gx $was s; or set -gx $was u
      end
      contains -- $entry (string split : -- $value); and return
      set -gx $was "$$was:$entry"
      if test -z "$value"
        set -gx $name $entry
      else if test $where = end
        set -gx $name "$value:$entry"
      else
        set -l entries (string split : -- $value)
        if set -l at (contains -i -- $where $entries)
          set entries[$at] "$where:$entry"
        else
          set -p entries $entry
        end
        set -gx $name (string join : -- $entries)
      end
    end"""

_REMOVE = r"""
      function __torchstack_remove --argument-names name
        set -l was @K@_{$name}_WAS
        set -q $was; or return
        set -l entries (string split : -- "$$was")
        set -l rest (string split : -- "$$name")
        for entry in $entries[2..-1]
          set -l at (contains -i -- $entry $rest); and set -e rest[$at]
        end
        if test -z "$rest" -a $entries[1] = u
          set -e $name
        else
          set -gx $name (string join : -- $rest)
        end
        set -e $was
      end
      function __torchstack_restore --argument-names name
        set -l was @K@_{$name}_WAS
        if set -q $was
          set -gx $name (string sub -s 2 -- "$$was" | string collect)
          set -e $was
        else
          set -e $name
        end
      end"""


def activate(work: Work) -> Iterator[str]:
    """Yield the lines of the script that activates."""
    yield "if not %s" % _loaded(work)
    yield "  if set -q %s" % work.kept
    yield "    set -gx %s (math $%s + 1)" % (work.kept, work.kept)
    yield "  else"
    yield "    set -gx %s 1" % work.kept
    yield _ADD.strip("\n").replace("@K@", work.kept)
    for name in [*work.setenv, *work.unsetenv]:
        yield '    set -q %s; and set -gx %s_%s_WAS "x$%s"' % (name, work.kept, name, name)
    yield from ("    set -gx %s %s" % (name, value_of(value)) for name, value in work.setenv.items())
    yield from ("    set -e %s" % name for name in work.unsetenv)
    yield from ("    __torchstack_add %s %s %s" % (name, value_of(entry), quoted(where))
                for name, entry, where in work.added)
    yield "    functions -e __torchstack_add"
    yield "  end"
    yield "end"


def deactivate(work: Work) -> Iterator[str]:
    """Yield the lines of the script that deactivates."""
    changed = [*work.unsetenv, *work.setenv]
    yield "if set -q %s" % work.kept
    yield "  if test $%s -gt 1" % work.kept
    yield "    set -gx %s (math $%s - 1)" % (work.kept, work.kept)
    yield "  else"
    yield "    set -e %s" % work.kept
    yield "    if %s" % _loaded(work)
    yield "      echo %s >&2" % quoted(still_loaded(work.module))
    yield from ("      set -e %s_%s_WAS" % (work.kept, name) for name in [*changed, *work.paths])
    yield "    else"
    yield _REMOVE.strip("\n").replace("@K@", work.kept)
    for name in work.paths:
        stays = "contains -- %s $PATH; or " % quoted(work.binaries) if name == "PATH" else ""
        yield "      %s__torchstack_remove %s" % (stays, name)
    yield from ("      __torchstack_restore %s" % name for name in changed)
    yield "      functions -e __torchstack_remove __torchstack_restore"
    yield "    end"
    yield "  end"
    yield "end"


def _loaded(work: Work) -> str:
    tests = ["contains -- %s (string split : -- \"$LOADEDMODULES\")" % quoted(module) for module in work.modules]
    return tests[0] if len(tests) == 1 else "begin; %s; end" % "; or ".join(tests)


def value_of(text: str) -> str:
    """Return a value of the description as a word of the shell."""
    return "".join('"$%s"' % content if kind == "variable" else quoted(content)
                   for kind, content in parse_value(text))


def quoted(text: str) -> str:
    """Return a text as one word of the shell."""
    return "'%s'" % text.replace("\\", "\\\\").replace("'", "\\'")
