# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Write the batch script of a step for PBS, and the qsub command that submits it, by qsub(1B). Pure.

PBS starts a batch script with a login shell, whatever ``-S`` names (src/resmom/start_exec.c of OpenPBS puts a ``-``
before its name), so that a user's .profile runs before it. A job that is given as ``qsub -- program arguments`` is
started as it is. The directives of the script therefore become arguments of qsub, and its commands those of ``sh -c``;
submitted by hand with ``qsub FILE`` the script does the same after the login files. What runs is a copy that PBS keeps:
a file that changes while the job waits does not change the job.
"""

from __future__ import annotations

import re
import shlex
from typing import Any, Mapping, Sequence

from ..core.errors import StackError
from .directives import Directives
from .options import (
    batch_system_requeues,
    walltime_seconds,
)
from .pbs_states import LOG_NOT_OPENED

DIRECTIVE = "#PBS "

DIRECTIVES = Directives(short="aAcCefGhIjJklmMnNoPpqrRSuvVWxXz", example="-l place=excl")
"""The options of qsub, as the manuals of PBS Professional 2022.1 and OpenPBS 23.06 have them."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+.-]{0,229}\Z")
"""A job name that PBS takes: PBS_MAXJOBNAME of src/include/pbs_ifl.h and src/lib/Libcmds/ck_job_name.c of OpenPBS."""

_SELECT = re.compile(r"-l\s*(?:\S*,)?select=")


def batch_script(name: str, options: Mapping[str, Any], log: str, command: Sequence[str]) -> str:
    """Write the script; see :meth:`.scheduler.BatchSystem.script`.

    The site's directives come first, and of two equal ones the last wins. Standard output goes to the log directly: PBS
    itself would copy it there at the end, over what is there. StackError: the name is none for PBS, a line break would
    end a command, a directive cannot be read, or the resources are given twice.
    """
    if not _NAME.match(name):
        raise StackError(
            "%r is no name for a PBS job." % name, "options",
            "Give the step a shorter name of letters, digits, '_', '+', '.' and '-'.",
        )
    if "\n" in "".join([log, *command]):
        raise StackError("The log or the command of a PBS job holds a line break.", "options", "Use another state_dir.")
    directives = [*options.get("directives", []), *resource_directives(options), *_others(name, options)]
    for line in directives:
        _words_of(line)
    return "\n".join([
        "#!/bin/sh",
        *(DIRECTIVE + line for line in directives),
        "# Written by hpcml.torchstack.build_step. The step itself is in script.sh, next to this file.",
        "umask 022",
        "cd /",
        # Not with ':': a special built-in that cannot be redirected ends the shell, with a status of its choice.
        "true >> %s || exit %d" % (shlex.quote(log), LOG_NOT_OPENED),
        "exec >> %s 2>&1" % shlex.quote(log),
        "exec " + " ".join(map(shlex.quote, command)),
        "",
    ])


def resource_directives(options: Mapping[str, Any]) -> list[str]:
    """Return the directives for what a site asks of PBS, without ``#PBS``."""
    chunk = []
    if options.get("cores"):
        chunk.append("ncpus=%d" % options["cores"])
    if options.get("tasks", 1) > 1:
        chunk.append("mpiprocs=%d" % options["tasks"])
    if options.get("gpus"):
        chunk.append("ngpus=%d" % options["gpus"])
    if options.get("memory"):
        # PBS's units are kb, mb, gb and tb, each of 1024 of the one before (pbs_resources(7B)).
        chunk.append("mem=%sb" % options["memory"].lower())
    lines = []
    nodes = options.get("nodes", 1)
    if chunk or nodes > 1:
        if any(_SELECT.match(line) for line in options.get("directives", [])):
            raise StackError(
                "launcher_options: directives has select=, and nodes, cores, tasks, memory or gpus is given too.",
                "options", "Ask for all of them in one place.",
            )
        lines.append("-l select=" + ":".join([str(nodes), *chunk]))
    place = [word for word, asked in (("scatter", nodes > 1), ("excl", options.get("exclusive"))) if asked]
    if place:
        lines.append("-l place=" + ":".join(place))
    if options.get("walltime"):
        minutes, seconds = divmod(walltime_seconds(options["walltime"]), 60)
        lines.append("-l walltime=%02d:%02d:%02d" % (*divmod(minutes, 60), seconds))
    lines += [form % options[key] for key, form in (("account", "-A %s"), ("queue", "-q %s")) if options.get(key)]
    return lines


def _others(name: str, options: Mapping[str, Any]) -> list[str]:
    return [
        "-r y" if batch_system_requeues(options) else "-r n", "-N " + name, "-S /bin/sh", "-j oe",
        # That of the job's node. Without a host PBS takes it for the submitting host's and sends the output there:
        # where no copy arrives, the job stays for minutes in state E, with its nodes.
        "-o localhost:/dev/null", "-W umask=022",
    ]


def submission(script: str) -> list[str]:
    """Return the qsub command for a batch script.

    ``-f`` keeps qsub from leaving a process behind that lives on for a minute with whatever is open, such as a lock.
    """
    words, body = ["qsub", "-f"], []
    for line in script.splitlines():
        if line.startswith(DIRECTIVE):
            words += _words_of(line[len(DIRECTIVE):])
        elif not line.startswith("#"):
            body.append(line)
    return [*words, "--", "/bin/sh", "-c", "\n".join(body)]


def _words_of(directive: str) -> list[str]:
    try:
        words = shlex.split(directive)
    except ValueError:
        raise StackError(
            "launcher_options: the directive %r has a quotation mark too many." % directive, "options", "Correct it."
        ) from None
    if "--" in words:
        raise StackError(
            "launcher_options: the directive %r names a program." % directive, "options", "Remove what '--' begins."
        )
    return words
