# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Write the batch script of a step for Flux, by flux-batch(1) and RFC 36. Pure.

``flux batch`` starts an instance of Flux on the nodes of the job, with the script as its first program, so that ``flux
run`` in it starts ranks there. That instance asks the script to end by SIGALRM at the end of its time (src/modules/
job-exec), and by SIGHUP, SIGTERM and others when it ends itself (src/broker). A supervisor ignores most of them, as
those of a lost terminal: it is told by SIGTERM.
"""

from __future__ import annotations

import re
import shlex
from typing import Any, Mapping, Sequence

from ..core.errors import StackError
from .directives import Directives
from .flux_states import LOG_NOT_OPENED
from .options import walltime_seconds

DIRECTIVE = "#flux: "

DIRECTIVES = Directives(
    long=frozenset(re.findall(r"\S+", """
        add-brokers add-file bank begin-time broker-opts conf cores-per-slot cwd dependency dry-run dump env env-file
        env-remove error exclusive flags gpus-per-slot help input job-name label-io list-plugins nodes nslots output
        queue quiet requires rlimit setattr setopt signal time-limit unbuffered urgency wrap
    """)),
    short="BSNcglnoqtux", example="--requires=a100",
)
"""The options of flux batch, as flux-core 0.88 has them."""

OWN_DIRECTIVES = re.compile(
    r"--(?:cwd|dry-run|error|flags|help|input|job-name|list-plugins|output|quiet|wrap)(?:[\s=]|\Z)"
    r"|(?:-o\s*|--setopt[\s=])output\.")

GPUS = re.compile(r"(?:-g\s*|--gpus-per-slot[\s=])(\d+)")

_SLOTS = re.compile(r"-[nN](?:[^-]|\Z)|--(?:nodes|nslots)[\s=]")

_OPTIONS = (("account", "--bank=%s"), ("queue", "--queue=%s"), ("constraint", "--requires=%s"))

_BODY = """\
# Written by hpcml.torchstack.build_step. The step itself is in script.sh, next to this file.
umask 022
true >> {log} || exit {not_opened}
exec >> {log} 2>&1
# Which job this is, in ASCII; Flux before 0.71 does not say it by itself.
: "${{FLUX_ENCLOSING_ID:=$(flux getattr jobid)}}"
case $FLUX_ENCLOSING_ID in ƒ*) FLUX_ENCLOSING_ID=f${{FLUX_ENCLOSING_ID#ƒ}} ;; esac
export FLUX_ENCLOSING_ID
# By whichever signal Flux asks the script to end, its supervisor wants SIGTERM.
step= asked=
trap 'asked=yes; [ -z "$step" ] || kill -s TERM "$step"' ALRM HUP INT QUIT TERM
{command} &
step=$!
[ -z "$asked" ] || kill -s TERM "$step"
# A wait that a signal has ended says nothing of the step.
while :; do
  asked=
  wait "$step"
  status=$?
  [ -n "$asked" ] || exit "$status"
done
"""


def batch_script(name: str, options: Mapping[str, Any], log: str, command: Sequence[str]) -> str:
    """Write the script; see :meth:`.scheduler.BatchSystem.script`.

    Of two equal directives, the site's first, the last wins. What the broker itself prints stays in the job's records,
    where ``flux job attach`` shows it. StackError: a line break would end a command, or a directive cannot be read.
    """
    if "\n" in "".join([log, *command]):
        raise StackError(
            "The log or the command of a Flux job holds a line break.", "options", "Use another state_dir.")
    for line in options.get("directives", []):
        _check_quotes(line)
    own = ["--job-name=" + name, "--cwd=/", "--output=kvs"]
    directives = [*options.get("directives", []), *resource_directives(options), *own]
    return "#!/bin/sh\n%s%s" % ("".join("%s%s\n" % (DIRECTIVE, line) for line in directives), _BODY.format(
        log=shlex.quote(log), not_opened=LOG_NOT_OPENED, command=" ".join(map(shlex.quote, command))))


def resource_directives(options: Mapping[str, Any]) -> list[str]:
    """Return what the site asks for: a slot on each node, with its cores and GPUs, or whole nodes without ``cores``."""
    lines = [form % shlex.quote(options[key]) for key, form in _OPTIONS if options.get(key)]
    if options.get("walltime"):
        lines.append("--time-limit=%ds" % walltime_seconds(options["walltime"]))
    asked = any(options.get(key) for key in ("nodes", "cores", "gpus", "exclusive"))
    if not asked and any(_SLOTS.match(line) for line in options.get("directives", [])):
        return lines
    nodes = options.get("nodes", 1)
    lines += ["--nodes=%d" % nodes, "--nslots=%d" % nodes]
    if options.get("cores"):
        lines.append("--cores-per-slot=%d" % options["cores"])
    if options.get("gpus"):
        lines.append("--gpus-per-slot=%d" % options["gpus"])
    if options.get("exclusive") or not options.get("cores"):
        lines.append("--exclusive")
    return lines


def _check_quotes(directive: str) -> None:
    try:
        shlex.split(directive)
    except ValueError:
        raise StackError(
            "launcher_options: the directive %r has a quotation mark too many." % directive, "options", "Correct it."
        ) from None
