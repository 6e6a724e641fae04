# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Remove trees at a bounded rate, and go on where a removal was interrupted.

This file needs nothing but Python 3.8: its text is also the program of the step that removes a release.

Everything is reached from the open directory that holds it, never by a path with links in it, as in rm(1). What lies on
another file system, or on a mount point, is not touched. A removal that is interrupted leaves a smaller tree.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
import time
from typing import Any, Callable

from .tree_amount import BLOCK, OPEN, Amount, listed, measure, own_mounts, reach_deep

_SEARCH = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

ROUNDS = 3
"""How often a directory that is not empty after all is listed: a network file system renames open files in it."""

LISTED = 20
"""How many paths of each kind are named."""

BETWEEN = 2.0
"""Seconds between two lines that say how far the removal is."""


class Bucket:
    """Operations per second, no more than ``rate`` on average and a tenth of a second's worth at once; 0 for any."""

    def __init__(
        self, rate: float, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.clock, self.sleep = clock, sleep
        self.change(rate)
        self.left, self.at, self.taken = self.size, clock(), 0

    def change(self, rate: float) -> None:
        """Go on at another rate."""
        self.rate, self.size = rate, max(1.0, rate / 10.0)

    def take(self) -> None:
        """Wait until one more operation may be done."""
        self.taken += 1
        if not self.rate:
            return
        now = self.clock()
        self.left = min(self.size, self.left + (now - self.at) * self.rate)
        self.at = now
        if self.left < 1.0:
            self.sleep((1.0 - self.left) / self.rate)
            now = self.clock()
            self.left += (now - self.at) * self.rate
            self.at = now
        self.left -= 1.0


class Removal:
    """One pass that removes trees.

    Args:
        bucket: bounds the operations; of a file there are two (its status, its removal), of a directory four or five.
        tell: called with the number of names removed so far, after each one.
    """

    def __init__(self, bucket: Bucket, tell: Callable[[int], None] = lambda names: None) -> None:
        self.bucket, self.tell = bucket, tell
        self.amount = Amount()
        self.refused: list[str] = []
        self.device = -1
        self.mounts: set[str] = set()

    def over(self, path: str) -> None:
        """Remove a tree, as far as it can be removed."""
        reach_deep()
        try:
            parent = os.open(os.path.dirname(path), OPEN)
        except FileNotFoundError:
            return
        try:
            name = os.path.basename(path)
            place = os.path.join(os.path.realpath(os.path.dirname(path)), name)
            self.device = os.stat(name, dir_fd=parent, follow_symlinks=False).st_dev
            self.mounts = set(own_mounts(place))
            self._entry(parent, name, place, True)
        except FileNotFoundError:
            return
        finally:
            os.close(parent)

    def _entry(self, parent: int, name: str, path: str, is_directory: bool) -> None:
        try:
            if is_directory:
                self._directory(parent, name, path)
            else:
                self._file(parent, name)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno in (errno.EIO, errno.ESTALE, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE):
                raise
            self.refused.append("%s (%s)" % (path, error.strerror))

    def _file(self, parent: int, name: str) -> None:
        self.bucket.take()
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        self.bucket.take()
        os.unlink(name, dir_fd=parent)
        self._gone(found, found.st_nlink == 1)

    def _gone(self, found: os.stat_result, last: bool) -> None:
        self.amount.names += 1
        if last:
            self.amount.inodes += 1
            self.amount.bytes += found.st_blocks * BLOCK
        self.tell(self.amount.names)

    def _directory(self, parent: int, name: str, path: str) -> None:
        self.bucket.take()
        place = os.open(name, _SEARCH, dir_fd=parent)
        try:
            found = os.fstat(place)
            if found.st_dev != self.device or path in self.mounts:
                raise OSError(errno.EXDEV, "another file system is mounted here")
            if found.st_mode & stat.S_IRWXU != stat.S_IRWXU:
                # A frozen directory; by its descriptor, since a name could have become a link's meanwhile.
                self.bucket.take()
                os.chmod("/proc/self/fd/%d" % place, stat.S_IMODE(found.st_mode) | stat.S_IRWXU)
            self.bucket.take()
            descriptor = os.open(".", OPEN, dir_fd=place)
        finally:
            os.close(place)
        try:
            for turn in range(ROUNDS):
                refused = len(self.refused)
                self.bucket.take()
                for entry, is_directory in listed(descriptor):
                    self._entry(descriptor, entry, os.path.join(path, entry), is_directory)
                if len(self.refused) > refused:
                    return
                try:
                    self.bucket.take()
                    os.rmdir(name, dir_fd=parent)
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or turn + 1 == ROUNDS:
                        raise
                else:
                    self._gone(found, True)
                    return
        finally:
            os.close(descriptor)


def record(path: str, content: dict[str, Any]) -> None:
    """Replace a record by another one, as a whole."""
    temporary = path + ".new"
    with open(temporary, "w", encoding="utf-8") as stream:
        json.dump(content, stream, indent=2, sort_keys=True)
        stream.write("\n")
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, path)


def remove(
    trees: list[str], planned: dict[str, int], path: str, rate: Callable[[], float], say: Callable[[str], None]
) -> dict[str, Any]:
    """Remove trees and say how far it is; go on where an earlier attempt stopped.

    Args:
        trees: their paths; those that are gone already are passed over.
        planned: the amount that they held at first, as :meth:`Amount.as_dict` has it.
        path: of the record of the removal.
        rate: tells the operations per second, 0 for any; it is asked again while trees are removed.
        say: takes a line.

    Returns:
        The record: ``planned``, ``freed``, ``attempts``, ``seconds`` and ``operations`` of this attempt, ``refused``
        (what could not be removed), ``done``.
    """
    try:
        with open(path, encoding="utf-8") as stream:
            attempts = json.load(stream)["attempts"]
    except (OSError, ValueError, KeyError, TypeError):
        attempts = 0
    before = {key: 0 for key in ("names", "inodes", "bytes")}
    if attempts:
        # What a killed attempt removed is known from what it left.
        left = Amount()
        for tree in trees:
            measure(tree, left)
        before = {key: max(0, planned[key] - getattr(left, key)) for key in before}
        say("%d of %d names are gone already." % (before["names"], planned["names"]))
    result: dict[str, Any] = {"planned": planned, "attempts": attempts + 1, "done": False}
    record(path, result)
    say("[%d/%d] removed" % (before["names"], planned["names"]))
    started = time.monotonic()
    told = [started]

    def tell(names: int) -> None:
        now = time.monotonic()
        if now - told[0] >= BETWEEN:
            told[0] = now
            removal.bucket.change(rate())
            done = before["names"] + names
            say("[%d/%d] removed" % (done, max(done, planned["names"])))

    removal = Removal(Bucket(rate()), tell)
    for tree in trees:
        removal.over(tree)
    freed = removal.amount.as_dict()
    result.update(
        freed={key: before[key] + freed[key] for key in before}, seconds=round(time.monotonic() - started, 3),
        operations=removal.bucket.taken, refused=removal.refused[:LISTED],
        done=not any(os.path.lexists(tree) for tree in trees),
    )
    record(path, result)
    say("[%d/%d] removed" % (result["freed"]["names"], max(result["freed"]["names"], planned["names"])))
    return result


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(asked: str) -> int:
    """Remove what a JSON object asks for, at the rate that a file says, which may change; 1 where something is left."""
    os.umask(0o022)
    wanted = json.loads(asked)

    def rate() -> float:
        with open(wanted["rate"], encoding="utf-8") as stream:
            return float(stream.read())

    result = remove(wanted["trees"], wanted["planned"], wanted["record"], rate, _print)
    for entry in result["refused"]:
        _print("ERROR: cannot remove %s" % entry)
    return 0 if result["done"] else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
