# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Which processes of this host use a tree, as far as it lets itself be known, and what could not be seen.

There are two ways to know, and each sees what the other does not. /proc names process, account and command, but shows
an ordinary account nothing of others' processes. A write lease (:mod:`lease`) tells of every process whether a file is
open, but not by whom, nor of a directory that somebody stands in; and network file systems have none.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Iterator, NamedTuple

from ..core.account import account_name
from ..core.processes import command_line, read_process
from ..elf.process_map import parse_maps
from ..standalone import removal
from . import open_files as lease

LISTED = 20
"""How many processes and files are named; all are counted."""

_KERNEL_THREAD = 0x00200000
"""PF_KTHREAD in the flags of /proc/<pid>/stat, field 9 (proc(5))."""

_DELETED = b" (deleted)"


class Use(NamedTuple):
    """One process that uses the tree, by the first thing that shows it."""

    pid: int
    account: str
    command: str
    how: str
    """``program``, ``mapped``, ``open`` or ``works in it``."""
    path: str


class Sights(NamedTuple):
    """What /proc shows of a tree."""

    uses: list[Use]
    hidden: int
    """Processes into which this account may not look."""


class Tree(NamedTuple):
    """How files of a process are known to lie in the tree: by their path or, as containers see other ones, by inode."""

    paths: tuple[bytes, ...]
    inodes: frozenset
    """Device and inode of its regular files."""

    def has(self, name: bytes) -> bool:
        """Whether a path as /proc writes it lies in the tree."""
        name = name[:-len(_DELETED)] if name.endswith(_DELETED) else name
        return any(name == path or name.startswith(path + b"/") for path in self.paths)


def look(path: str, leases: bool = True, proc: str = "/proc", before: str = "") -> dict[str, Any]:
    """Who uses a tree on this host.

    Args:
        path: the tree, absolute; one that does not exist has no files, but processes may still name it.
        leases: ask for leases.
        proc: where the process file system is mounted.
        before: where it was before it was moved; a host of a network file system may still name it so.

    Returns:
        ``processes`` (each as :class:`Use`), ``held`` (files that a lease was refused for), counts ``process_count``,
        ``held_count`` and ``files``, ``in_use``, and ``unseen``: sentences about what could not be seen.
    """
    inodes: set[tuple[int, int]] = set()
    held: list[str] = []
    answers = dict.fromkeys((lease.FREE, lease.HELD, lease.UNSUPPORTED, lease.NOT_OURS, lease.GONE), 0)

    def file(directory: int, name: str, relative: str, found: os.stat_result) -> None:
        inodes.add((found.st_dev, found.st_ino))
        if leases:
            answer = lease.ask(directory, name) if means_this else lease.UNSUPPORTED
            answers[answer] += 1
            if answer == lease.HELD:
                held.append(os.path.join(path, relative))

    means_this = lease.means_this_host(path)
    with lease.undisturbed():
        amount = removal.measure(path, file=file)
    held = lease.still_held(held)
    paths = tuple(os.fsencode(os.path.realpath(place)) for place in (path, before) if place)
    sights = processes(Tree(paths, frozenset(inodes)), proc)
    covered = leases and not answers[lease.UNSUPPORTED] and not answers[lease.NOT_OURS] and not amount.unreadable
    return {
        "files": len(inodes),
        "processes": [use._asdict() for use in sights.uses[:LISTED]],
        "process_count": len(sights.uses),
        "held": held[:LISTED],
        "held_count": len(held),
        "in_use": bool(sights.uses or held),
        "unseen": [] if covered or not (inodes or amount.unreadable) else list(
            _unseen(answers, sights.hidden, hides(proc), leases)),
    }


def _unseen(answers: dict[str, int], hidden: int, hides_all: bool, leases: bool) -> Iterator[str]:
    if not hidden and not hides_all:
        return
    others = "a process of another account" if hides_all or hidden == 1 else "%d processes of other accounts" % hidden
    if not leases:
        why = "leases were not asked for"
    elif answers[lease.UNSUPPORTED]:
        why = "its file system has no leases"
    elif answers[lease.NOT_OURS]:
        why = "%d of its files may not be asked for by this account" % answers[lease.NOT_OURS]
    else:
        why = "a directory of it may not be read by this account"
    yield "whether %s use%s it: %s" % (others, "s" if others.startswith("a ") else "", why)


def hides(proc: str) -> bool:
    """Whether processes of other accounts are not even listed: mount option ``hidepid`` (proc(5)), and not root."""
    try:
        with open(os.path.join(proc, "self", "mountinfo"), encoding="utf-8", errors="replace") as stream:
            lines = stream.read().splitlines()
    except OSError:
        return True
    options = [line.rpartition(" - ")[2] for line in lines if line.split(" ")[4:5] == [proc]]
    return bool(options) and "hidepid=" in options[-1] and "hidepid=0" not in options[-1] and os.geteuid() != 0


def processes(tree: Tree, proc: str = "/proc") -> Sights:
    """The processes that are seen to use a tree; this one and the threads of the kernel left out.

    Args:
        tree: what is looked for.
        proc: where the process file system is mounted.
    """
    uses, hidden = [], 0
    for entry in sorted((name for name in os.listdir(proc) if name.isdigit()), key=int):
        if int(entry) == os.getpid():
            continue
        place = os.path.join(proc, entry)
        found, seen = _first(place, tree)
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
    return Sights(uses, hidden)


def _first(place: str, tree: Tree) -> tuple[tuple[str, bytes] | None, bool]:
    """The first thing of a process that lies in the tree, and whether all of it could be seen."""
    looks: tuple[Callable[[str, Tree], tuple[str, bytes] | None], ...] = (_program, _maps, _directory, _files)
    seen = True
    for glance in looks:
        try:
            found = glance(place, tree)
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
        try:
            name = os.readlink(directory + b"/" + number)
        except FileNotFoundError:
            continue
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
