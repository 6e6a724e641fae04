# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find which processes of this host use a tree, and say what could not be seen.

There are two ways to know, and each sees what the other does not. /proc names process, account and command, but shows
an ordinary account nothing of others' processes. A write lease (:mod:`open_files`) tells of every process whether a
file is open, but not by whom, nor of a directory that somebody stands in; and network file systems have none.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Callable, Iterator, NamedTuple

from ..core.account import account_name
from ..core.processes import command_line, read_process
from ..elf.process_map import parse_maps
from ..standalone import removal
from . import open_files
from .open_files import FREE, GONE, HELD, NOT_OURS, UNSUPPORTED

LISTED = 20
"""How many processes and files are named; all are counted."""

_KERNEL_THREAD = 0x00200000
"""PF_KTHREAD in the flags of /proc/<pid>/stat, field 9 (proc(5))."""

_DELETED = b" (deleted)"


class Use(NamedTuple):
    """Describe one process that uses the tree, by the first thing that shows it."""

    pid: int
    account: str
    command: str
    how: str
    """``program``, ``mapped``, ``open`` or ``works in it``."""
    path: str


class Findings(NamedTuple):
    """Describe what /proc shows of a tree."""

    uses: list[Use]
    hidden: int
    """Processes into which this account may not look."""


class Tree(NamedTuple):
    """Tell which files lie in the tree: by their path or, as containers see other ones, by inode."""

    paths: tuple[bytes, ...]
    inodes: frozenset
    """Device and inode of its regular files."""

    def has(self, name: bytes) -> bool:
        """Tell whether a path as /proc writes it lies in the tree."""
        name = name[:-len(_DELETED)] if name.endswith(_DELETED) else name
        return any(name == path or name.startswith(path + b"/") for path in self.paths)


def find_users(path: str, leases: bool = True, proc: str = "/proc", before: str = "") -> dict[str, Any]:
    """Find who uses a tree on this host, asking for leases or not; it may have been moved from ``before``.

    One that does not exist has no files, but processes may still name it; a host of a network file system may name the
    former place. The answer is ``processes`` (each as :class:`Use`), ``held`` (files that a lease was refused for),
    ``process_count``, ``held_count``, ``files``, ``in_use``, and ``unseen``: sentences about what could not be seen.
    """
    inodes: set[tuple[int, int]] = set()
    held: list[str] = []
    answers = dict.fromkeys((FREE, HELD, UNSUPPORTED, NOT_OURS, GONE), 0)

    def file(directory: int, name: str, relative: str, found: os.stat_result) -> None:
        inodes.add((found.st_dev, found.st_ino))
        if leases:
            answer = open_files.query_lease(directory, name) if local else UNSUPPORTED
            answers[answer] += 1
            if answer == HELD:
                held.append(os.path.join(path, relative))

    local = open_files.leases_are_local(path)
    with open_files.ignored_lease_breaks():
        amount = removal.measure(path, file=file)
    held = open_files.still_held(held)
    paths = tuple(os.fsencode(os.path.realpath(place)) for place in (path, before) if place)
    found = processes(Tree(paths, frozenset(inodes)), proc)
    covered = leases and not answers[UNSUPPORTED] and not answers[NOT_OURS] and not amount.unreadable
    return {
        "files": len(inodes),
        "processes": [use._asdict() for use in found.uses[:LISTED]],
        "process_count": len(found.uses),
        "held": held[:LISTED],
        "held_count": len(held),
        "in_use": bool(found.uses or held),
        "unseen": [] if covered or not (inodes or amount.unreadable) else list(
            _explain_unseen(answers, found.hidden, hides_processes(proc), leases)),
    }


def _explain_unseen(answers: dict[str, int], hidden: int, hides_all: bool, leases: bool) -> Iterator[str]:
    if not hidden and not hides_all:
        return
    others = "a process of another account" if hides_all or hidden == 1 else "%d processes of other accounts" % hidden
    if not leases:
        why = "leases were not asked for"
    elif answers[UNSUPPORTED]:
        why = "its file system has no leases"
    elif answers[NOT_OURS]:
        why = "%d of its files may not be asked for by this account" % answers[NOT_OURS]
    else:
        why = "a directory of it may not be read by this account"
    yield "whether %s use%s it: %s" % (others, "s" if others.startswith("a ") else "", why)


def hides_processes(proc: str) -> bool:
    """Tell whether processes of others are not even listed, but to root: mount option ``hidepid`` (proc(5))."""
    try:
        with open(os.path.join(proc, "self", "mountinfo"), encoding="utf-8", errors="replace") as stream:
            lines = stream.read().splitlines()
    except OSError:
        return True
    options = [line.rpartition(" - ")[2] for line in lines if line.split(" ")[4:5] == [proc]]
    return bool(options) and "hidepid=" in options[-1] and "hidepid=0" not in options[-1] and os.geteuid() != 0


def processes(tree: Tree, proc: str = "/proc") -> Findings:
    """Find the processes that are seen to use a tree; not this one, and no thread of the kernel."""
    uses, hidden = [], 0
    for entry in sorted((name for name in os.listdir(proc) if name.isdigit()), key=int):
        if int(entry) == os.getpid():
            continue
        place = os.path.join(proc, entry)
        found, seen = _first_use(place, tree)
        if found is None:
            hidden += not seen and not _is_kernel_thread(place)
            continue
        try:
            owner = account_name(os.stat(place).st_uid)
        except OSError:
            continue
        process = read_process(int(entry))
        command = command_line(int(entry)) or (process.command if process else "")
        uses.append(Use(int(entry), owner, command, found[0], found[1].decode("utf-8", "replace")))
    return Findings(uses, hidden)


def _first_use(place: str, tree: Tree) -> tuple[tuple[str, bytes] | None, bool]:
    """Find the first thing of a process in the tree, and whether all of it could be seen."""
    checks: tuple[Callable[[str, Tree], tuple[str, bytes] | None], ...] = (_program, _maps, _directory, _files)
    seen = True
    for check in checks:
        try:
            found = check(place, tree)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended, or is one of the kernel's, which have no program
        except OSError:
            seen = False
            continue
        if found is not None:
            return found, True
    return None, seen


def _program(place: str, tree: Tree) -> tuple[str, bytes] | None:
    name = os.readlink(os.fsencode(place) + b"/exe")
    return ("program", name) if tree.has(name) else None


def _maps(place: str, tree: Tree) -> tuple[str, bytes] | None:
    with open(place + "/maps", "rb") as stream:
        text = stream.read()
    for file in parse_maps(text):
        major, _colon, minor = file.device.partition(":")
        device = os.makedev(int(major, 16), int(minor, 16))
        if tree.has(file.name) or (device, file.inode) in tree.inodes:
            return "mapped", file.name
    return None


def _directory(place: str, tree: Tree) -> tuple[str, bytes] | None:
    for link in (b"/cwd", b"/root"):
        name = os.readlink(os.fsencode(place) + link)
        if tree.has(name):
            return "works in it", name
    return None


def _files(place: str, tree: Tree) -> tuple[str, bytes] | None:
    directory = os.fsencode(place) + b"/fd"
    for number in os.listdir(directory):
        with contextlib.suppress(FileNotFoundError):
            name = os.readlink(directory + b"/" + number)
            if tree.has(name):
                return "open", name
    return None


def _is_kernel_thread(place: str) -> bool:
    try:
        with open(place + "/stat", "rb") as stream:
            fields = stream.read().rpartition(b")")[2].split()
    except OSError:
        return True  # ended meanwhile
    return len(fields) > 6 and bool(int(fields[6]) & _KERNEL_THREAD)
