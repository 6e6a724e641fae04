# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Examine a step that hangs: ask its processes where they are, then run the site's own commands.

The commands tell somebody, or end what no signal reaches. They run after the stacks are in the log, where the step
runs, as the account that builds; that they fail is noted and changes nothing. The step is stopped elsewhere.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from typing import Callable, Mapping, MutableMapping, Sequence

from ..core.errors import StackError
from ..core.processes import Process, default_signals, run_program
from ..core.redaction import credential_in
from ..logs.masking import masked
from . import stack_dumps
from .files import StepFiles
from .records import JobRecord, Limits

ACTIONS = ("notify", "kill")
"""The actions, in the order in which they run."""

FACTS = ("step", "host", "log", "pid", "job_id")
"""What ``{name}`` in a word stands for: the step, its host, its log, its supervisor's process id, its batch job."""

ACTION_SECONDS = 60

_PLACEHOLDER = re.compile(r"\{([a-z_]*)\}")


def check_actions(actions: Mapping[str, Sequence[str] | None] | None) -> dict[str, list[str]]:
    """Check the actions of the option, and return those that are to be run.

    StackError: a word has a placeholder that is not known, or a credential, which the job's record would show.
    """
    found = {name: [str(word) for word in (actions or {}).get(name) or []] for name in ACTIONS}
    for name, words in found.items():
        unknown = [key for word in words for key in _PLACEHOLDER.findall(word) if key not in FACTS]
        if unknown:
            raise StackError(
                "on_hang: %s has {%s}, which stands for nothing." % (name, unknown[0]), "options",
                "Use %s, or write the text without braces." % ", ".join("{%s}" % key for key in FACTS),
            )
        exposed = credential_in("\n".join(words))
        if exposed:
            raise StackError(
                "on_hang: %s has %s, and everybody may read it in the job's record." % (name, exposed), "options",
                "Put it into a program or a file that only this account can read.",
            )
    return {name: words for name, words in found.items() if words}


def run_actions(
    actions: Mapping[str, Sequence[str]], facts: Mapping[str, str], log: int, note: Callable[[str], None],
    environment: Mapping[str, str], secrets: Sequence[str] = (),
) -> list[str]:
    """Run checked actions one after the other; return a sentence for each that failed.

    The facts have a value for each of :data:`FACTS`; ``log`` is the descriptor of what they print, ``note`` writes a
    line of our own there. Secrets must not be seen.
    """
    problems = []
    for name in ACTIONS:
        if name not in actions:
            continue
        words = [_PLACEHOLDER.sub(lambda found: facts[found.group(1)], word) for word in actions[name]]
        note("on_hang, %s: %s" % (name, " ".join(words)))
        with masked(log, secrets) as output:
            obstacle = _run(words, output, environment)
        if obstacle:
            problems.append("on_hang: the command of %s, %s, %s." % (name, words[0], obstacle))
            note(problems[-1])
    return problems


def _run(words: Sequence[str], output: int, environment: Mapping[str, str]) -> str:
    """Run a command, and say how it failed, as the end of a sentence; empty where it did not."""
    try:
        status = run_program(
            list(words), stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=dict(environment), cwd="/",
            timeout=ACTION_SECONDS, start_new_session=True, preexec_fn=default_signals,
        ).returncode
    except subprocess.TimeoutExpired:
        return "did not end within %d s" % ACTION_SECONDS
    except (OSError, ValueError) as error:
        return "cannot be run: %s" % (getattr(error, "strerror", None) or error)
    return "ended with status %d" % status if status else ""


def prepare(environment: MutableMapping[str, str], limits: Limits) -> None:
    """Give a job that may be found silent what its Python processes need to say where they are."""
    if limits.no_output_timeout and limits.hang_signal != "none":
        environment.setdefault(stack_dumps.VARIABLE, "1")


def examine(
    files: StepFiles, job: JobRecord, log: int, members: Callable[[], list[Process]], note: Callable[[str], None],
    tick: Callable[[], None], environment: Mapping[str, str], secrets: Sequence[str] = (),
) -> dict[str, list[str]]:
    """Have a silent job say where it hangs, and tell the site.

    What is called while waiting is ``tick``; the rest is that of :func:`run_actions`. The answer is for the record of
    the end: ``stacks``, what the processes said, and ``notes``, which commands failed.
    """
    limits = job.limits
    start = os.fstat(log).st_size
    signum = None if limits.hang_signal == "none" else getattr(signal, "SIG" + limits.hang_signal)
    stack_dumps.StackDump(members, signum, log, note, tick, secrets).run()
    facts = {
        "step": files.name, "host": job.host, "log": files.log, "pid": str(os.getpid()),
        "job_id": str((job.batch and job.batch.job_id) or ""),
    }
    said = stack_dumps.read_stacks(files.log, start)
    notes = run_actions(limits.on_hang, facts, log, note, environment, secrets)
    return {"stacks": said, "notes": notes}
