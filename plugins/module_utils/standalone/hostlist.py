# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Slurm's compressed notations, written out: hosts, ``nid[001-003,007]``, and counts of tasks, ``4(x2),3``. Pure.

It travels beside programs that ranks run, to nodes and into images without this collection: it imports nothing of it,
and Python 3.6 reads it.

Sources: scontrol(1), ``show hostnames``; srun(1), ``SLURM_STEP_NODELIST`` and ``SLURM_STEP_TASKS_PER_NODE``; where they
do not tell, as of the order of names with several groups of brackets, what ``scontrol show hostnames`` answers.
"""

import functools
import itertools
import operator
import re
from typing import Iterator, List, Tuple

MOST = 1 << 18
"""More hosts, or nodes, than this are a slip of the pen: the largest machines have 160,000."""

_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?\Z")
_COUNT = re.compile(r"([0-9]+)(?:\(x([0-9]+)\))?\Z")


class HostListError(ValueError):
    """A text is not in Slurm's notation; a sentence that names the text and the part that is wrong."""


def expand(text: str) -> List[str]:
    """Write out a list of hosts.

    Args:
        text: names with commas or white space between them. A name may have groups of brackets, each with numbers and
            ranges of numbers; the first number of a range says to how many digits its numbers are padded. What follows
            the last group is the end of each name, as of Slurm 24.11; older ones refuse it.

    Returns:
        The names, in Slurm's order, those that are there twice twice; empty for an empty text.

    Raises:
        HostListError: the text is wrong, or stands for more than :data:`MOST` hosts.
    """
    hosts = []  # type: List[str]
    for word in _words(text):
        parts = _parts(word, text)
        if len(hosts) + functools.reduce(operator.mul, map(len, parts)) > MOST:
            raise HostListError("the host list %r stands for more than %d hosts" % (text, MOST))
        # Slurm turns the last group fastest, and of the others the first.
        *slower, fastest = parts
        hosts += ["".join(names[-2::-1]) + names[-1] for names in itertools.product(*reversed(slower), fastest)]
    return hosts


def first(text: str) -> str:
    """The first host of a list; empty for an empty list.

    Raises:
        HostListError: the text is wrong, in its first name or after it.
    """
    hosts = expand(text)
    return hosts[0] if hosts else ""


def counts(text: str) -> List[int]:
    """Write out how many tasks each node has.

    Args:
        text: such as ``4(x2),3``: twice four, then three.

    Returns:
        A number for each node, in the order of the nodes; empty for an empty text.

    Raises:
        HostListError: the text is wrong.
    """
    found = []  # type: List[int]
    for word in text.split(",") if text else []:
        part = _COUNT.match(word.strip())
        if not part:
            raise HostListError("the task counts %r are wrong at %r: a number, or a number as in 4(x2)" % (text, word))
        times = int(part.group(2) or 1)
        if len(found) + times > MOST:
            raise HostListError("the task counts %r are those of more than %d nodes" % (text, MOST))
        found += [int(part.group(1))] * times
    return found


def _words(text: str) -> Iterator[str]:
    """The names of a list, as they are written: commas within brackets do not part them."""
    word, inside = "", False
    for character in text:
        if character in ", \t\n" and not inside:
            if word:
                yield word
            word = ""
            continue
        if character in "[]" and inside is (character == "["):
            raise HostListError("the host list %r has a bracket too many at %r" % (text, word + character))
        inside = character == "[" or (inside and character != "]")
        word += character
    if inside:
        raise HostListError("the host list %r has no closing bracket after %r" % (text, word))
    if word:
        yield word


def _parts(word: str, text: str) -> List[List[str]]:
    """What one name consists of: for each group of brackets what is before it, with each of its numbers."""
    *groups, rest = _groups(word)
    if not groups:
        return [[rest[0]]]
    parts = [[prefix + number for number in _numbers(ranges, text)] for prefix, ranges in groups]
    return [*parts[:-1], [one + rest[0] for one in parts[-1]]]


def _groups(word: str) -> List[Tuple[str, str]]:
    """What is before each group of brackets, and in it; at the end, what is after the last one."""
    pieces = re.split(r"\[([^\]]*)\]", word)
    return list(zip(pieces[::2], [*pieces[1::2], ""]))


def _numbers(ranges: str, text: str) -> List[str]:
    """The numbers in brackets, padded."""
    numbers = []  # type: List[str]
    for word in ranges.split(","):
        part = _RANGE.match(word)
        if not part:
            raise HostListError("the host list %r is wrong at %r: a number, or a range as in 001-012" % (text, word))
        low, high = int(part.group(1)), int(part.group(2) or part.group(1))
        if high < low:
            raise HostListError("the host list %r has the range %r, which ends before it begins" % (text, word))
        if len(numbers) + high - low >= MOST:
            raise HostListError("the host list %r has with the range %r more than %d hosts" % (text, word, MOST))
        width = len(part.group(1))
        numbers += ["%0*d" % (width, number) for number in range(low, high + 1)]
    return numbers
