# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Keep a shared package cache in order: readable for all, written by its owner, known to conda.

What no release needs is listed, and removed only where that was asked for and nobody else uses the cache.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import stat
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from ..core.errors import StackError
from ..core.files import readable_by_all, write_atomic
from ..trees import boundary, counters, permissions
from ..trees.policy import WRITABLE, Policy
from .cache import cached_digest
from .cache_inspect import (
    DAY,
    GLOBAL_LOCK,
    MAGIC,
    Content,
    Item,
    companions_of,
    inspect_cache,
    other_rollout,
    prefixes,
    records,
)
from .package import Package

MAKE, REMOVE = "make the cache", "remove from the cache"
IN_PREFIX = frozenset((
    "extracted_package_dir", "files", "link", "package_tarball_full_path", "paths_data", "requested_spec",
    "requested_specs",
))
"""Keys of an installed package's record that say something about its prefix, and nothing about the package."""


class Shared(Policy):
    """Let everybody read and only the owner write.

    What the owner may do with files stays as it is: they can be second names of those in a frozen release.
    """

    def __init__(self) -> None:
        super().__init__(WRITABLE)

    def target(self, mode: int) -> int:
        """Return the permission bits that an entry with this ``st_mode`` gets."""
        bits = stat.S_IMODE(mode) & ~0o022 | 0o444
        if stat.S_ISDIR(mode):
            return bits | 0o755
        return bits | 0o111 if bits & 0o111 else bits


class Kept(NamedTuple):
    """What was done to a cache, or would be."""

    made: bool
    modes: Mapping[str, Any]
    described: Sequence[str]
    content: Content
    removed: Sequence[Item]
    postponed: str

    @property
    def changed(self) -> bool:
        """Tell whether the cache became another one."""
        modes = self.modes.get("changed_files") or self.modes.get("changed_directories")
        return bool(self.made or modes or self.described or self.removed)


class Cache:
    """A package cache, used by the releases below ``root``; ``release`` is the one whose rollout this is, if any."""

    def __init__(self, path: str, root: str, release: str, apply: bool) -> None:
        self.path = os.path.normpath(path)
        self.root = root
        self.release = release
        self.apply = apply

    def keep(self, leftovers: bool, unused: bool, days: int) -> Kept:
        """Bring the cache in order.

        Args:
            leftovers: keep what killed downloads left.
            unused: keep entries that no release uses.
            days: keep those of a smaller age in any case.
        """
        made = not os.path.isdir(self.path)
        modes: Mapping[str, Any] = {}
        try:
            if made and self.apply:
                with readable_by_all():
                    os.makedirs(self.path, exist_ok=True)
            if not made or self.apply:
                modes = self._permit()
            installed = records(prefixes(self.root))
            described = self._describe(installed)
            content = inspect_cache(self.path, installed)
            doomed = [] if leftovers else list(content.leftovers)
            if not unused:
                doomed += [item for item in content.unused if item.age >= days * DAY]
            postponed, removed = self._remove(doomed, content) if doomed else ("", [])
        except OSError as error:
            message = "Cannot keep %s in order: %s: %s." % (self.path, error.filename, error.strerror)
            raise StackError(message, MAKE, "Correct that, then run it again.", self.path) from error
        return Kept(made, modes, described, content, removed, postponed)

    def _permit(self) -> Mapping[str, Any]:
        owner = os.lstat(self.path).st_uid
        root, relative = boundary.locate(self.path, os.path.dirname(self.path), boundary.home_directories(owner))
        total = permissions.Pass(Shared(), self.apply).over(root, relative)
        error = counters.permission_error(total, self.path)
        if error is not None:
            raise error
        return counters.as_result(total)

    def _describe(self, installed: Mapping[str, Sequence[str]]) -> list[str]:
        """Let conda find the entries: it fetches anew what has no record of where it came from."""
        described = []
        magic = os.path.join(self.path, MAGIC)
        if not os.path.lexists(magic):
            described.append(MAGIC)
            if self.apply:
                write_atomic(magic, b"")
        for stem, files in sorted(installed.items()):
            target = os.path.join(self.path, stem, "info", "repodata_record.json")
            if os.path.lexists(target) or not os.path.isdir(os.path.dirname(target)):
                continue
            record = self._origin(stem, files)
            if record is not None:
                described.append(stem)
                if self.apply:
                    write_atomic(target, (json.dumps(record, indent=2, sort_keys=True) + "\n").encode("utf-8"))
        return described

    def _origin(self, stem: str, files: Sequence[str]) -> Mapping[str, Any] | None:
        """Tell what a release's record says of the package that an entry was extracted from."""
        for file in files:
            try:
                with open(file, encoding="utf-8") as stream:
                    found = json.load(stream)
                package = Package(found["name"], found["version"], found["build"], "", "", "", found["sha256"])
            except (OSError, ValueError, KeyError, TypeError):
                continue
            if package.stem == stem and package.sha256 and cached_digest(stem, self.path) == package.sha256:
                return {key: value for key, value in found.items() if key not in IN_PREFIX}
        return None

    def _remove(self, doomed: Sequence[Item], content: Content) -> tuple[str, Sequence[Item]]:
        with self._held() as user:
            if user:
                return "Nothing was removed from %s, as %s." % (self.path, user), []
            entries = {item.name for item in content.unused}
            if self.apply:
                for item in doomed:
                    try:
                        self._drop(item.name, item.name in entries)
                    except OSError as error:
                        message = "Cannot remove %s from %s: %s." % (item.name, self.path, error.strerror)
                        remedy = "Correct that, then run it again."
                        raise StackError(message, REMOVE, remedy, os.path.join(self.path, item.name)) from error
            return "", doomed

    def _drop(self, name: str, entry: bool) -> None:
        """Remove an entry or a left-over; where that is interrupted, what is left is a left-over."""
        path = os.path.join(self.path, name)
        for other in companions_of(name) if entry else ():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.path, other))
        if os.path.isdir(path) and not os.path.islink(path):
            if entry:
                away = os.path.join(self.path, ".%s%s" % (name, secrets.token_hex(3)))
                os.rename(path, away)
                path = away
            shutil.rmtree(path)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    @contextlib.contextmanager
    def _held(self) -> Iterator[str]:
        """Keep others from installing out of the cache; gives who uses it, where somebody does."""
        user = other_rollout(self.root, self.release)
        path = os.path.join(self.path, GLOBAL_LOCK)
        if user or (not self.apply and not os.path.exists(path)):
            yield user
            return
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if self.apply else 0), 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield "packages are being installed out of it at this moment"
                return
            yield ""
        finally:
            os.close(descriptor)


def as_result(kept: Kept) -> dict[str, Any]:
    """Tell what the module returns."""
    return {
        "changed": kept.changed, "made": kept.made, "changed_files": kept.modes.get("changed_files", 0),
        "changed_directories": kept.modes.get("changed_directories", 0), "described": list(kept.described),
        "entries": len(kept.content.entries), "used": len(kept.content.used),
        "unused": [item.as_result() for item in kept.content.unused],
        "leftovers": [item.as_result() for item in kept.content.leftovers],
        "removed": [item.as_result() for item in kept.removed],
        "removed_bytes": sum(item.size for item in kept.removed), "postponed": kept.postponed,
    }


def render(path: str, kept: Kept) -> dict[str, str]:
    """Return the change as a difference of two texts."""
    drift = kept.modes.get("drift", ())
    before = ["%s %s" % (entry["from"], entry["path"]) for entry in drift]
    before += ["%s (%d bytes)" % (item.name, item.size) for item in kept.removed]
    after = ["%s %s" % (entry["to"], entry["path"]) for entry in drift] + [path] * kept.made
    after += ["known to conda: %s" % name for name in kept.described]
    return {side: "".join(line + "\n" for line in lines) for side, lines in (("before", before), ("after", after))}
