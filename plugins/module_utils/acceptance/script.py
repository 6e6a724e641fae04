# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Write the script that loads a release's module and starts the ranks, as a user would."""

from __future__ import annotations

import os
import shlex
from typing import Any, Mapping, Sequence

from ..modulefiles import site_system
from ..ranks.socket_group import SECRET
from .output import (
    EM,
    ENVIRONMENT,
    EVENT,
    LMOD,
    NONE,
)

PROGRAM, QUESTION = "ranks.pyz", "question.json"
"""Names of the program that every rank runs, and of what it is asked."""


def _module_lines(question: Mapping[str, Any]) -> list[str]:
    """Write the lines that load the module, or set the environment where there are no modules."""
    system, name = question["module_system"], question["module"]
    lines = [". %s" % shlex.quote(path) for path in question["module_init"]]
    lines += site_system.finding_lines()
    if system == NONE or not name:
        reason = "the inventory names no module" if system != NONE else "the inventory says that there are none"
        lines += ["through=%s" % ENVIRONMENT, "reason=%s" % shlex.quote(reason)]
    elif system in (LMOD, EM):
        lines += site_system.defining_lines(system, question.get("module_definition") or "")
        message = "no module system in a login of this user, where %s is expected" % system
        lines.append('[ "$through" != %s ] || problem module %s' % (ENVIRONMENT, shlex.quote(message)))
        message = " is what module is in a login of this user, where %s is expected" % system
        lines.append('[ "$through" = %s ] || problem module "$through"%s' % (system, shlex.quote(message)))
    return [
        *lines,
        'event through "$through"',
        'if [ "$through" = %s ]; then' % ENVIRONMENT,
        '    event without_module "$reason"',
        *("    export %s=%s" % (key, shlex.quote(str(value))) for key, value in question["environment"].items()),
        "else",
        *("    " + line for line in _load_lines(name, question["modulepaths"])),
        "fi",
    ]


def _load_lines(name: str, modulepaths: Mapping[str, Any]) -> list[str]:
    """Write the lines that load the module from its own directory, and check that it came from there.

    To be in front in MODULEPATH is not enough: Lmod takes a file that is marked as the default elsewhere rather than
    one of the same full name there, and neither Lmod nor Environment Modules loads what the login has loaded already.
    With LMOD_CACHED_LOADS, Lmod finds what its spider cache has seen in a directory, which may be older than the file.
    """
    quoted, family = shlex.quote(name), shlex.quote(name.rpartition("/")[0] or name)
    lines = []
    for kind, tree in ((LMOD, "lmod"), (EM, "tcl")):
        path = shlex.quote((modulepaths.get(tree) or "").rstrip("/"))
        problem = shlex.quote("acceptance_modulepaths names no directory for %s" % kind)
        lines.append('if [ "$through" = %s ]; then from=%s; [ -n "$from" ] || problem module %s; fi' % (
            kind, path, problem))
    return [
        *lines,
        'case ":${LOADEDMODULES:-}:" in *:%s:*|*:%s/*) module unload %s ;; esac' % (family, family, family),
        'IFS=: read -r -a places <<< "${MODULEPATH:-}"',
        'for place in "${places[@]}"; do',
        '    if [ -e "$place"/%s ] || [ -e "$place"/%s.lua ]; then module unuse "$place"; fi' % (quoted, quoted),
        "done",
        'module use "$from"',
        "LMOD_IGNORE_CACHE=1 module load %s || problem module \"$through cannot load \"%s" % (quoted, quoted),
        'case ":${LOADEDMODULES:-}:" in',
        "    *:%s:*|*:%s/*) ;;" % (quoted, quoted),
        '    *) problem module "$through did not load "%s ;;' % quoted,
        "esac",
        'modulefile=$(tr : "\\n" <<< "${_LMFILES_:-}" | grep -m 1 -F -e "$from/")',
        '[ -n "$modulefile" ] || problem module %s" was loaded from elsewhere than $from"' % quoted,
        'event modulefile "$modulefile"',
    ]


SECRET_LINE = (
    'export %s="${%s:-$(od -A n -t x1 -N 16 /dev/urandom 2> /dev/null | tr -d \' \\n\')}"' % (SECRET, SECRET))


def job_script(question: Mapping[str, Any], launcher: Sequence[str], directory: str, seconds: int) -> str:
    """Write the script: log in, load the module, start the ranks.

    Args:
        question: ``module``, ``module_system``, ``module_init``, ``modulepaths``, ``environment``, ``python``;
            ``module_definition`` where there is one.
        seconds: after so long, counted from the beginning of the script, a rank that still works prints its stack.
    """
    python = shlex.quote(question["python"])
    program = [os.path.join(directory, name) for name in (PROGRAM, QUESTION)]
    first = shlex.quote(launcher[0])
    return "\n".join([
        "#!/bin/bash",
        "event() { printf '%s %%s\\t%%s\\n' \"$1\" \"$2\"; }" % EVENT,
        "problem() { event problem \"$1 $2\"; exit 70; }",
        "printf -v acceptance_deadline '%(%s)T' -1",
        "acceptance_deadline=$((acceptance_deadline + %d))" % seconds,
        "if [ -r /etc/profile ]; then . /etc/profile; fi" if not question["module_init"] else "# as module_init says",
        *_module_lines(question),
        'event launcher "$(type -P %s)"' % first,
        "type -P %s > /dev/null || problem launcher %s" % (
            first, shlex.quote("%s is not on PATH after the module is loaded" % launcher[0])),
        'event python "$(type -P %s)"' % python,
        "type -P %s > /dev/null || problem python %s" % (
            python, shlex.quote("%s is not on PATH after the module is loaded" % question["python"])),
        # Ranks that meet by an address alone know each other by it. It is in no argument, as everybody sees these.
        SECRET_LINE,
        "exec %s $acceptance_deadline" % " ".join([*map(shlex.quote, launcher), python, *map(shlex.quote, program)]),
        "",
    ])
