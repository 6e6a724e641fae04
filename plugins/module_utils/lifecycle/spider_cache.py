# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Renew the site's cache of the module system when the module tree has changed."""

from __future__ import annotations

import os
import subprocess
from typing import NamedTuple, Sequence

from ..core.clock import now
from ..core.errors import StackError
from ..core.files import read_json, write_json
from ..core.processes import run_program
from ..core.redaction import without_credentials
from ..modulefiles.layout import (
    digest,
    make_directory,
    read_bytes,
)
from .publication_changes import is_unfinished

STEP = "renew the module cache"


class Cache(NamedTuple):
    """The cache as it stands."""

    record: dict
    """Of the last renewal; empty where there was none."""
    tree: str
    """Digest of the module tree that users see."""
    words: tuple[str, ...]
    """What renews it."""

    @property
    def is_current(self) -> bool:
        """Tell whether the same command renewed it for the same tree; or there is neither tree nor record."""
        if not self.record:
            return self.tree == digest(b"")
        return self.record.get("tree") == self.tree and self.record.get("command") == self.command

    @property
    def command(self) -> list[str]:
        """Return the words as they are recorded."""
        return [without_credentials(word) for word in self.words]


def record_path(root: str) -> str:
    """Tell where the last renewal is recorded."""
    return os.path.join(root, ".torchstack", "module_cache.json")


def read_cache(root: str, words: Sequence[str]) -> Cache:
    """Read the record and the module tree. Raises StackError: a part of that cannot be read."""
    path = record_path(root)
    try:
        record = read_json(path)
    except (OSError, ValueError):
        # What it says is lost; renewing the cache once more does no harm.
        record = None
    return Cache(record if isinstance(record, dict) else {}, tree_digest(root), tuple(words))


def tree_digest(root: str) -> str:
    """Return digest of names and contents of the module tree.

    What lies in hidden directories does not count, nor do caches that Environment Modules keep in the tree (``module
    cachebuild``): renewing a cache must not ask for its renewal.
    """
    top = os.path.join(root, "modulefiles")
    lines = []
    for directory, directories, names in os.walk(top, onerror=_refuse):
        directories[:] = [name for name in directories if not name.startswith(".")]
        for name in names:
            path = os.path.join(directory, name)
            if is_unfinished(name) or name == ".modulecache":
                continue
            content = os.readlink(path).encode("utf-8", "surrogateescape") if os.path.islink(path) else read_bytes(path)
            if content is not None:
                lines.append("%s  %s\n" % (digest(content), os.path.relpath(path, top)))
    return digest("".join(sorted(lines)).encode("utf-8", "surrogateescape"))


def _refuse(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise StackError(
            "Cannot read %s: %s." % (error.filename, error.strerror), STEP, "Run as the account that owns the root.",
            str(error.filename)) from error


def renew_cache(root: str, cache: Cache, timeout: float) -> None:
    """Run the command, and record for which tree: the one of before, as changes meanwhile are a reason to run it again.

    Raises StackError: the command failed, or took longer, and the next run runs it again; or it cannot be recorded.
    """
    said = " ".join(cache.command)
    remedy = "Run that command by hand to see why; this goes on with it when it is run again."
    try:
        process = run_program(
            cache.words, cwd=root, timeout=timeout, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT)
    except subprocess.TimeoutExpired as error:
        raise StackError("'%s' took more than %g seconds." % (said, timeout), STEP, remedy) from error
    except OSError as error:
        raise StackError("'%s' cannot be run: %s." % (said, error.strerror), STEP, remedy) from error
    if process.returncode:
        output = without_credentials(process.stdout.decode("utf-8", "replace"))
        raise StackError(
            "'%s' ended with %d: %s" % (said, process.returncode, " ".join(output.split())[-600:] or "no output."),
            STEP, remedy, rc=process.returncode)
    try:
        make_directory(os.path.dirname(record_path(root)))
        write_json(record_path(root), {"tree": cache.tree, "command": cache.command, "renewed_at": now()})
    except OSError as error:
        raise StackError(
            "The renewal of the module cache cannot be recorded: %s." % error, STEP,
            "Run as the account that owns the root.", record_path(root)) from error
