# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read a directory of patches as one unit."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from typing import Callable, NamedTuple

from ..core.errors import StackError
from .diff_model import FilePatch, Patch
from .header_paths import display
from .parser import parse_patch
from .patch_apply import Reader

SUFFIXES = (b".patch", b".diff")
PACKED = (b".gz", b".bz2", b".xz", b".zst")


class Series(NamedTuple):
    """Hold patches in order, the digest over their names and contents, and the names passed over."""

    patches: tuple[Patch, ...]
    digest: str
    ignored: tuple[bytes, ...]
    strip: int

    @property
    def touched(self) -> set[bytes]:
        """Return every path that any patch names."""
        return {path for patch in self.patches for section in patch.files for path in section.paths}

    @property
    def mode_paths(self) -> set[bytes]:
        """Return the paths whose execute bit the series changes, so that it tells levels apart."""
        changed = [section for patch in self.patches for section in patch.files if section.mode_change]
        return {path for section in changed for path in section.paths}


def load_series(directory: str, strip: int = 1) -> Series:
    """Read and parse every ``*.patch`` and ``*.diff`` of a directory, links too, in byte order of their names."""
    folder = os.fsencode(directory)
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        message = "Cannot read the series directory %s: %s." % (display(folder), error.strerror)
        remedy = "Name the directory on the target that holds the *.patch files."
        raise StackError(message, "read series", remedy, path=directory) from error
    for name in names:
        if any(name.endswith(suffix + packing) for suffix in SUFFIXES for packing in PACKED):
            message = "%s in the series is compressed." % display(name)
            raise StackError(message, "read series", "Unpack it in the series directory.", patch=display(name))
    chosen = [name for name in names if name.endswith(SUFFIXES) and not name.startswith(b".")]
    patches = []
    for name in chosen:
        path = os.path.join(folder, name)
        try:
            content = _read_patch(path)
        except OSError as error:
            message = "Cannot read the patch %s: %s." % (display(path), error.strerror)
            remedy = "Make it a readable file or a link to one."
            raise StackError(message, "read series", remedy, path=os.fsdecode(path), patch=display(name)) from error
        patches.append(parse_patch(content, name, strip))
    listed = b"".join(b"%s\0%s\n" % (patch.name, patch.sha256.encode("ascii")) for patch in patches)
    passed = tuple(name for name in names if name not in set(chosen))
    return Series(tuple(patches), hashlib.sha256(listed).hexdigest(), passed, strip)


def _read_patch(path: bytes) -> bytes:
    # A named pipe would be waited for, and a device may never end.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(errno.EINVAL, "Not a regular file")
        return stream.read()


def reconcile_series(series: Series, read: Reader) -> Series:
    """Decide every plain diff's file name by what the tree and other patches provide."""
    created = {section.new for patch in series.patches for section in patch.files if section.kind != "modify"}

    def exists(path: bytes) -> bool:
        return path in created or read(path) is not None

    return series._replace(patches=tuple(reconcile_names(patch, exists) for patch in series.patches))


def reconcile_names(patch: Patch, exists: Callable[[bytes], bool]) -> Patch:
    """Pick one name where a plain diff names two different files, as GNU patch does.

    Of the names for which ``exists(path)`` is true: the one with the fewest components, then the shortest base name,
    then the shortest name, then the old one. Where neither exists the new name stays, and applying will say so.
    """

    def reconcile(section: FilePatch) -> FilePatch:
        if section.kind != "modify" or section.old == section.new:
            return section
        there = list(filter(exists, section.paths)) or [section.new]
        best = min(there, key=lambda path: (path.count(b"/"), len(path.rpartition(b"/")[2]), len(path)))
        return section._replace(old=best, new=best)

    return patch._replace(files=tuple(reconcile(section) for section in patch.files))
