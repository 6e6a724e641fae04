# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check what a site asks of its batch system for a step, and bring it into one form. Pure.

None of it is part of a step's digest: it says where a step is built, not what.
"""

from __future__ import annotations

import os
import re
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Pattern

from ..core.near_names import nearest
from .directives import Directives

REQUEUE_REASONS = ("preempted", "node_failed", "time_limit")
"""Ends after which a job may be put back; see :data:`.scheduler.ENDS`."""

REQUEUE_ON = ("preempted", "node_failed")
"""The ends after which a job is put back where the site does not say; after these a batch system does it itself."""

TMPDIR_CHARACTERS = 60
"""The longest directory for temporary files: the path of a socket has 107 characters at most (unix(7)), and a build's
own directory and its programs append names; see :mod:`..steps.scratch`."""

_WORD = re.compile(r"[A-Za-z0-9_.:,+@/=-]+\Z")
_WALLTIME = re.compile(r"(?:(\d+)-)?(\d{1,3}):([0-5]\d):([0-5]\d)\Z")
_MEMORY = re.compile(r"(\d+)\s*([KMGT])i?B?\Z", re.IGNORECASE)

_FEATURES = re.compile(r"[A-Za-z0-9_.,:&|*()\[\]-]+\Z")
_SHARING = ("user", "mcs", "topo")
_HINTS = ("compute_bound", "memory_bound", "multithread", "nomultithread")
_NEVER = re.compile(r"(?!)")


class OptionRules(NamedTuple):
    """What of ``launcher_options`` is special in one batch system."""

    own_directives: Pattern[str] = _NEVER
    """Directives by which a job would no longer be found by its name, or would write its log elsewhere."""
    synonyms: Mapping[str, str] = {}
    """Options that are only another name of one: name -> the one."""
    instead: Mapping[str, str] = {}
    """Options that the batch system does not have, and what says it there: name -> name."""
    directives: Directives = Directives()
    """What its directives look like."""
    gpus: Pattern[str] = _NEVER
    """A directive that asks for GPUs; the group that matched is how many a node has, one without."""


class OptionProblem(Exception):
    """What is wrong with one option, and what to do; the name of the whole is not in it."""

    def __init__(self, text: str, remedy: str = "Correct it.") -> None:
        super().__init__(text)
        self.text = text
        self.remedy = remedy


def _unsuitable(key: str, value: object, wanted: str) -> OptionProblem:
    return OptionProblem("%s is %r, which is not %s" % (key, value, wanted))


def _word(key: str, value: object) -> str:
    if not isinstance(value, str) or not _WORD.match(value):
        raise _unsuitable(key, value, "one word")
    return value


def _count(minimum: int) -> Callable[[str, object], int]:
    def check(key: str, value: object) -> int:
        if isinstance(value, bool) or not re.match(r"\d+\Z", str(value)) or int(str(value)) < minimum:
            raise _unsuitable(key, value, "a whole number of at least %d" % minimum)
        return int(str(value))

    return check


def _walltime(key: str, value: object) -> str:
    if isinstance(value, (int, float)):
        # YAML 1.1 reads 02:30:00 as 9000, and a number could be minutes as well as seconds.
        problem = "%s is the number %r, which is not HH:MM:SS" % (key, value)
        raise OptionProblem(problem, 'Write it in quotes: "02:30:00".')
    if not isinstance(value, str) or not _WALLTIME.match(value) or not walltime_seconds(value):
        raise _unsuitable(key, value, "HH:MM:SS or D-HH:MM:SS")
    return value


def _memory(key: str, value: object) -> str:
    match = _MEMORY.match(str(value))
    if not match or not int(match.group(1)):
        raise _unsuitable(key, value, "a size with its unit, such as 240G")
    return match.group(1) + match.group(2).upper()


def _place(key: str, value: object) -> str:
    if not isinstance(value, str) or not os.path.isabs(value) or "\n" in value:
        raise _unsuitable(key, value, "an absolute path")
    return value


def _tmpdir(key: str, value: object) -> str:
    place = os.path.normpath(_place(key, value))
    if len(place) > TMPDIR_CHARACTERS:
        raise _unsuitable(key, value, "of at most %d characters, which sockets in it need" % TMPDIR_CHARACTERS)
    return place


def _features(key: str, value: object) -> str:
    if not isinstance(value, str) or not _FEATURES.match(value):
        raise _unsuitable(key, value, "features of nodes such as a100&hbm80g")
    return value


def _one_of(*words: object) -> Callable[[str, object], Any]:
    def check(key: str, value: object) -> Any:
        if not any(value is word or (isinstance(word, str) and value == word) for word in words):
            raise _unsuitable(key, value, "one of %s" % ", ".join(str(word).lower() for word in words))
        return value

    return check


def _lines(key: str, value: object) -> list[str]:
    if not isinstance(value, (list, tuple)):
        raise _unsuitable(key, value, "a list")
    for item in value:
        if not isinstance(item, str) or not item.strip() or "\n" in item or "\r" in item:
            raise _unsuitable(key, item, "one line of text")
    return [item.strip() for item in value]


def _reasons(key: str, value: object) -> list[str]:
    reasons = _lines(key, value)
    for reason in reasons:
        if reason not in REQUEUE_REASONS:
            raise _unsuitable(key, reason, "one of %s" % ", ".join(REQUEUE_REASONS))
    return reasons


_CHECKS: dict[str, Callable[[str, object], Any]] = {
    "account": _word, "bin": _place, "constraint": _features, "cores": _count(1), "directives": _lines,
    "exclusive": _one_of(True, False, *_SHARING), "gpu_type": _word, "gpus": _count(0), "hint": _one_of(*_HINTS),
    "licenses": _word, "memory": _memory, "memory_per_gpu": _memory, "nodes": _count(1), "partition": _word,
    "python": _place, "qos": _word, "queue": _word, "requeue": _count(0), "requeue_on": _reasons, "reservation": _word,
    "tasks": _count(1), "tmpdir": _tmpdir, "walltime": _walltime,
}

KEYS = tuple(_CHECKS)
"""Every key of ``launcher_options``."""


def walltime_seconds(text: str) -> int:
    """Convert to seconds ``HH:MM:SS`` or ``D-HH:MM:SS``, as it was accepted here."""
    match = _WALLTIME.match(text)
    days, hours, minutes, seconds = (int(group or 0) for group in match.groups()) if match else (0, 0, 0, 0)
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def batch_system_requeues(options: Mapping[str, Any]) -> bool:
    """Tell whether the batch system may put the job back into its queue itself; else whoever follows it does."""
    return bool(options.get("requeue") and set(REQUEUE_ON) & set(options.get("requeue_on", ())))


def gpus_per_node(rules: OptionRules, options: Mapping[str, Any]) -> int:
    """Count the GPUs that a job asks for on each node, by its options or by a directive of the site's; 0 for none."""
    if options.get("gpus") is not None:
        return int(options["gpus"])
    asked = [rules.gpus.match(line.strip()) for line in options.get("directives") or []]
    return max((int(found[found.lastindex] if found.lastindex else 1) for found in asked if found), default=0)


def _meant(key: str, rules: OptionRules) -> str:
    """Say what to write in place of a key that is none."""
    near = nearest(key, KEYS)
    if key.replace("_", "-") in rules.directives.long and not (near and key in near):
        return "Write it as one of the directives: --%s=..." % key.replace("_", "-")
    return "%sKnown are %s." % ("Did you mean %s? " % near if near else "", ", ".join(KEYS))


def _asked_twice(rules: OptionRules, gpus: object, directives: object) -> Iterator[OptionProblem]:
    lines = [line for line in directives if isinstance(line, str)] if isinstance(directives, (list, tuple)) else []
    asking = [line for line in lines if rules.gpus.match(line.strip())]
    if str(gpus).isdigit() and asking:
        yield OptionProblem("gpus and the directive %r both ask for GPUs" % asking[0], "Keep one of them.")
    elif len(asking) > 1:
        yield OptionProblem("the directives %s ask for GPUs" % " and ".join(map(repr, asking)), "Keep one of them.")


def find_problems(title: str, rules: OptionRules, options: object) -> Iterator[tuple[str, Any] | OptionProblem]:
    """Check the options of a job; yield each key that is not None with its value in its one form, or what is wrong."""
    if options is None:
        return
    if not isinstance(options, Mapping):
        yield OptionProblem("%r is not a mapping" % (options,))
        return
    given = {str(key): value for key, value in options.items() if value is not None}
    for other, key in rules.synonyms.items():
        if key in given and other in given:
            yield OptionProblem("%s and %s are both given" % (key, other), "Give %s only." % key)
    if "memory" in given and "memory_per_gpu" in given:
        yield OptionProblem("memory and memory_per_gpu are both given", "Give one of them only.")
    for key, value in given.items():
        if key not in _CHECKS:
            yield OptionProblem("there is no option %s" % key, _meant(key, rules))
        elif key in rules.instead:
            yield OptionProblem("%s has no %s" % (title, key), "Say what is meant with %s." % rules.instead[key])
        else:
            try:
                yield rules.synonyms.get(key, key), _CHECKS[key](key, value)
            except OptionProblem as problem:
                yield problem
    directives = given.get("directives")
    yield from _asked_twice(rules, given.get("gpus"), directives)
    for line in directives if isinstance(directives, (list, tuple)) else ():
        if isinstance(line, str) and (line.lstrip().startswith("#") or rules.own_directives.match(line.strip())):
            yield OptionProblem(
                "the directive %r is not allowed" % line,
                "Write it without '#'; the job's name, its output, its working directory, its repetition and its array "
                "are build_step's own.",
            )
        elif isinstance(line, str) and line.strip():
            yield from (OptionProblem(text, remedy) for text, remedy in rules.directives.problems(line.strip()))
