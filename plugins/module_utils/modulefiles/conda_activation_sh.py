# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Write the lines of conda's activation scripts for shells of the Bourne family: bash, zsh, dash. Pure."""

from __future__ import annotations

from typing import Iterator

from .conda_activation_work import Work
from .description import parse_value

_KEEP = r"""
    __torchstack_keep() {
      \eval "\set -- \"\$1\" \"\${$1+x\${$1}}\""
      if [ -n "$2" ]; then \export "@K@_$1_WAS=$2"; fi
    }
    __torchstack_add() {
      \eval "\set -- \"\$1\" \"\$2\" \"\$3\" \"\${$1-}\" \"\${@K@_$1_WAS:-\${$1+s}}\""
      # In zsh some search paths are set without having been.
      if [ "${ZSH_VERSION+$5}" = s ]; then
        \eval "case \${(t)$1} in *export*) ;; *) \set -- \"\$1\" \"\$2\" \"\$3\" \"\$4\" u ;; esac"
      fi
      case ":$4:" in *":$2:"*) \set -- "$1" ;; esac
      if [ "$#" -gt 1 ]; then
        if [ -z "$4" ]; then \export "$1=$2"
        elif [ "$3" = end ]; then \export "$1=$4:$2"
        else
          \set -- "$1" "$2" ":$3:" ":$4:" "$5"
          case "$4" in
          *"$3"*) \set -- "$1" "$2" "$3" "${4%%"$3"*}$3$2:${4#*"$3"}" "$5" ;;
          *) \set -- "$1" "$2" "$3" ":$2$4" "$5" ;;
          esac
          \set -- "$1" "$2" "$3" "${4#:}" "$5"
          \export "$1=${4%:}"
        fi
        \export "@K@_$1_WAS=${5:-u}:$2"
      fi
    }"""

_RESTORE = r"""
    __torchstack_restore() {
      \eval "\set -- \"\$1\" \"\${@K@_$1_WAS-}\""
      \unset -v "@K@_$1_WAS" "$1"
      case "$2" in x*) \export "$1=${2#x}" ;; esac
    }
    __torchstack_remove() {
      \eval "\set -- \"\$1\" \":\${$1-}:\" \"\${@K@_$1_WAS-}\""
      \set -- "$1" "$2" "${3#?}" "${3%%:*}"
      while [ -n "$3" ]; do
        \set -- "$1" "$2" "${3#:}" "$4"
        \set -- "$1" "$2" "$3" "$4" ":${3%%:*}:"
        case "$2" in *"$5"*) \set -- "$1" "${2%%"$5"*}:${2#*"$5"}" "$3" "$4" ;; esac
        case "$3" in *:*) \set -- "$1" "$2" ":${3#*:}" "$4" ;; *) \set -- "$1" "$2" "" "$4" ;; esac
      done
      \set -- "$1" "${2#:}" "$4"
      \set -- "$1" "${2%:}" "$3"
      if [ -n "$3" ]; then
        \unset -v "@K@_$1_WAS"
        if [ "$2$3" = u ]; then \unset -v "$1"; else \export "$1=$2"; fi
      fi
    }"""


def activate(work: Work) -> Iterator[str]:
    """Yield the lines of the script that activates."""
    yield 'case ":${LOADEDMODULES-}:" in'
    yield "  %s) ;;" % _loaded(work)
    yield "  *)"
    yield '    case "${%s:-0}" in' % work.kept
    yield "    0)"
    yield "    \\export %s=1" % work.kept
    yield _KEEP.strip("\n").replace("@K@", work.kept)
    for name, value in work.setenv.items():
        yield "    __torchstack_keep %s" % name
        yield "    \\export %s=%s" % (name, value_of(value))
    for name in work.unsetenv:
        yield "    __torchstack_keep %s" % name
        yield "    \\unset -v %s" % name
    for name, entry, where in work.added:
        yield "    __torchstack_add %s %s %s" % (name, value_of(entry), quoted(where))
    yield "    \\unset -f __torchstack_keep __torchstack_add"
    yield "    ;;"
    yield '    *) \\export %s="$((%s + 1))" ;;' % (work.kept, work.kept)
    yield "    esac"
    yield "    ;;"
    yield "esac"


def deactivate(work: Work) -> Iterator[str]:
    """Yield the lines of the script that deactivates."""
    changed = [*work.unsetenv, *work.setenv]
    yield 'case "${%s:-0}" in' % work.kept
    yield "0) ;;"
    yield "1)"
    yield '  case ":${LOADEDMODULES-}:" in'
    yield "  %s)" % _loaded(work)
    yield "    echo %s >&2" % quoted(still_loaded(work.module))
    yield "    \\unset -v %s" % " ".join("%s_%s_WAS" % (work.kept, name) for name in [*changed, *work.paths])
    yield "    ;;"
    yield "  *)"
    yield _RESTORE.strip("\n").replace("@K@", work.kept)
    for name in work.paths:
        line = "__torchstack_remove %s" % name
        if name == "PATH":
            line = 'case ":$PATH:" in *%s*) ;; *) %s ;; esac' % (quoted(":%s:" % work.binaries), line)
        yield "    " + line
    yield from ("    __torchstack_restore %s" % name for name in changed)
    yield "    \\unset -f __torchstack_restore __torchstack_remove"
    yield "    ;;"
    yield "  esac"
    yield "  \\unset -v %s" % work.kept
    yield "  ;;"
    yield '*) \\export %s="$((%s - 1))" ;;' % (work.kept, work.kept)
    yield "esac"


def _loaded(work: Work) -> str:
    return " | ".join("*%s*" % quoted(":%s:" % module) for module in work.modules)


def still_loaded(module: str) -> str:
    """Say what a deactivation leaves that came after a load."""
    return ("%s was loaded after conda activate: its variables stay. Next time unload it before conda deactivate."
            % module)


def value_of(text: str) -> str:
    """Return a value of the description as a word of the shell."""
    return "".join('"${%s-}"' % content if kind == "variable" else quoted(content)
                   for kind, content in parse_value(text))


def quoted(text: str) -> str:
    """Return a text as one word of the shell."""
    return "'%s'" % text.replace("'", "'\\''")
