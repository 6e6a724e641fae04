# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a site asks of its batch system for a step: checked, and written in one way. Pure.

None of it is part of a step's digest: it says where a step is built, not what.
"""

from __future__ import annotations

import os
import re
from typing import Any, Callable, Iterator, Mapping

from ..core.errors import StackError

LAUNCHERS = ("local", "slurm", "pbs")
"""Every value of the option ``launcher``."""

REQUEUE_REASONS = ("preempted", "node_failed", "time_limit")
"""Ends after which a job may be put back; see :data:`.schedulers.ENDS`."""

REQUEUE_ON = ("preempted", "node_failed")
"""The ends after which a job is put back where the site does not say; after these a batch system does it itself."""

TMPDIR_CHARACTERS = 60
"""The longest directory for temporary files: the path of a socket has 107 characters at most (unix(7)), and a build's
own directory and its programs append names; see :mod:`.scratch`."""

_WORD = re.compile(r"[A-Za-z0-9_.:,+@/=-]+\Z")
_WALLTIME = re.compile(r"(?:(\d+)-)?(\d{1,3}):([0-5]\d):([0-5]\d)\Z")
_MEMORY = re.compile(r"(\d+)\s*([KMGT])i?B?\Z", re.IGNORECASE)

_OWN_DIRECTIVES = {
    "slurm": re.compile(
        r"--(?:array|chdir|clusters?|error|job-name|no-requeue|open-mode|output|requeue|test-only|wait|wrap)(?:[\s=]|\Z)"
        r"|-[aDeJMoW](?:[^-]|\Z)"
    ),
    "pbs": re.compile(r"-[NJejorIXkz](?:[^-]|\Z)|-W\s*(?:[^\s].*,)?block=|-R(?:[^-]|\Z)"),
}
"""Directives by which a job would no longer be found by its name, or would write its log elsewhere."""


class _Problem(Exception):
    """What is wrong with one key, and what to do; without the name of the whole."""

    def __init__(self, text: str, remedy: str = "Correct it.") -> None:
        super().__init__(text)
        self.text = text
        self.remedy = remedy


def _wrong(key: str, value: object, wanted: str) -> _Problem:
    return _Problem("%s is %r, which is not %s" % (key, value, wanted))


def _word(key: str, value: object) -> str:
    if not isinstance(value, str) or not _WORD.match(value):
        raise _wrong(key, value, "one word")
    return value


def _count(least: int) -> Callable[[str, object], int]:
    def check(key: str, value: object) -> int:
        if isinstance(value, bool) or not re.match(r"\d+\Z", str(value)) or int(str(value)) < least:
            raise _wrong(key, value, "a whole number of at least %d" % least)
        return int(str(value))

    return check


def _walltime(key: str, value: object) -> str:
    if isinstance(value, (int, float)):
        # YAML 1.1 reads 02:30:00 as 9000, and a number could be minutes as well as seconds.
        raise _Problem("%s is the number %r, which is not HH:MM:SS" % (key, value), 'Write it in quotes: "02:30:00".')
    if not isinstance(value, str) or not _WALLTIME.match(value) or not walltime_seconds(value):
        raise _wrong(key, value, "HH:MM:SS or D-HH:MM:SS")
    return value


def _memory(key: str, value: object) -> str:
    match = _MEMORY.match(str(value))
    if not match or not int(match.group(1)):
        raise _wrong(key, value, "a size with its unit, such as 240G")
    return match.group(1) + match.group(2).upper()


def _place(key: str, value: object) -> str:
    if not isinstance(value, str) or not os.path.isabs(value) or "\n" in value:
        raise _wrong(key, value, "an absolute path")
    return value


def _tmpdir(key: str, value: object) -> str:
    place = os.path.normpath(_place(key, value))
    if len(place) > TMPDIR_CHARACTERS:
        raise _wrong(key, value, "of at most %d characters, which sockets in it need" % TMPDIR_CHARACTERS)
    return place


def _lines(key: str, value: object) -> list[str]:
    if not isinstance(value, (list, tuple)):
        raise _wrong(key, value, "a list")
    for item in value:
        if not isinstance(item, str) or not item.strip() or "\n" in item or "\r" in item:
            raise _wrong(key, item, "one line of text")
    return [item.strip() for item in value]


def _reasons(key: str, value: object) -> list[str]:
    reasons = _lines(key, value)
    for reason in reasons:
        if reason not in REQUEUE_REASONS:
            raise _wrong(key, reason, "one of %s" % ", ".join(REQUEUE_REASONS))
    return reasons


_CHECKS: dict[str, Callable[[str, object], Any]] = {
    "account": _word,
    "bin": _place,
    "cores": _count(1),
    "directives": _lines,
    "gpus": _count(0),
    "memory": _memory,
    "nodes": _count(1),
    "partition": _word,
    "python": _place,
    "qos": _word,
    "queue": _word,
    "requeue": _count(0),
    "requeue_on": _reasons,
    "tasks": _count(1),
    "tmpdir": _tmpdir,
    "walltime": _walltime,
}

_NOT_OF_PBS = {"partition": "queue", "qos": "directives"}

KEYS = tuple(_CHECKS)
"""Every key of ``launcher_options``."""


def walltime_seconds(text: str) -> int:
    """Seconds of ``HH:MM:SS`` or ``D-HH:MM:SS``, as :func:`check_options` has accepted it."""
    match = _WALLTIME.match(text)
    days, hours, minutes, seconds = (int(group or 0) for group in match.groups()) if match else (0, 0, 0, 0)
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def batch_system_requeues(options: Mapping[str, Any]) -> bool:
    """Whether the batch system may put the job back into its queue itself, rather than whoever follows it.

    Args:
        options: as :func:`check_options` returns them.
    """
    return bool(options.get("requeue") and set(REQUEUE_ON) & set(options.get("requeue_on", ())))


def _check(launcher: str, given: Mapping[str, Any]) -> Iterator[tuple[str, Any] | _Problem]:
    """Each key with its value in its one form, or what is wrong."""
    if launcher == "slurm" and "queue" in given and "partition" in given:
        yield _Problem("partition and queue are both given", "Give partition only.")
    for key, value in given.items():
        if key not in _CHECKS:
            yield _Problem("there is no option %s" % key, "Known are %s." % ", ".join(KEYS))
        elif launcher == "pbs" and key in _NOT_OF_PBS:
            yield _Problem("PBS has no %s" % key, "Say what is meant with %s." % _NOT_OF_PBS[key])
        else:
            try:
                yield "partition" if (launcher, key) == ("slurm", "queue") else key, _CHECKS[key](key, value)
            except _Problem as problem:
                yield problem
    directives = given.get("directives")
    for line in directives if isinstance(directives, (list, tuple)) else ():
        if isinstance(line, str) and (line.lstrip().startswith("#") or _OWN_DIRECTIVES[launcher].match(line.strip())):
            yield _Problem(
                "the directive %r is not allowed" % line,
                "Write it without '#'; the job's name, its output, its working directory, its repetition and its array "
                "are build_step's own.",
            )


def _checked(launcher: str, options: object) -> Iterator[tuple[str, Any] | _Problem]:
    if launcher == "local" or options is None:
        return
    if isinstance(options, Mapping):
        yield from _check(launcher, {str(key): value for key, value in options.items() if value is not None})
    else:
        yield _Problem("%r is not a mapping" % (options,))


def problems(launcher: str, options: object, where: str = "launcher_options") -> list[str]:
    """Everything that is wrong with the options of a job, a sentence for each; see :func:`check_options`.

    Args:
        launcher: one of :data:`LAUNCHERS`.
        options: as the site gives them.
        where: what the sentences call them.
    """
    return [
        "%s: %s. %s" % (where, found.text, found.remedy)
        for found in _checked(launcher, options) if isinstance(found, _Problem)
    ]


def check_options(launcher: str, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options of a job, each in the one form that the adapters expect.

    Args:
        launcher: one of :data:`LAUNCHERS`; with ``local`` no option matters and none is returned.
        options: as the site gives them; a key whose value is None counts as absent.

    Returns:
        Only keys that were given, and ``requeue`` and ``requeue_on``: ``account``, ``qos`` (words), ``partition`` for
        Slurm, ``queue`` for PBS, ``walltime`` (``HH:MM:SS`` or ``D-HH:MM:SS``), ``nodes``, ``cores``, ``gpus`` and
        ``tasks``, which share them (per node), ``memory`` (per node: ``240G``, with one letter of K, M, G, T),
        ``directives`` (lines without ``#SBATCH`` or ``#PBS``), ``python``, ``bin`` and ``tmpdir`` (absolute paths).

    Raises:
        StackError: an unknown key, or a value of another type; nothing has been touched.
    """
    if launcher == "local":
        return {}
    checked: dict[str, Any] = {"requeue": 0, "requeue_on": list(REQUEUE_ON)}
    for found in _checked(launcher, options):
        if isinstance(found, _Problem):
            raise StackError("launcher_options: %s." % found.text, "options", found.remedy)
        checked[found[0]] = found[1]
    return checked
