# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a step created, kept by digest, so that the same step elsewhere copies instead of building.

``<cache>/<digest>/`` holds ``artefacts.json`` and one file for each entry of ``creates``, named by its position. A file
whose sha256 is not the recorded one is never used.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import time
from typing import Callable

from ansible_collections.hpcml.torchstack.plugins.module_utils.files import read_json, write_json

RECORD = "artefacts.json"

_BLOCK = 4 << 20
_ABANDONED_SECONDS = 86400


def copy_and_hash(source: str, target: str, tick: Callable[[], None]) -> str:
    """Copy a file's bytes, flush them to disk, and return their sha256; ``tick`` is called between blocks."""
    digest = hashlib.sha256()
    with open(source, "rb") as reader, open(target, "wb") as writer:
        while True:
            block = reader.read(_BLOCK)
            if not block:
                break
            digest.update(block)
            writer.write(block)
            tick()
        writer.flush()
        os.fsync(writer.fileno())
    return digest.hexdigest()


def _entries(directory: str, paths: list[str]) -> list[dict]:
    record = read_json(os.path.join(directory, RECORD))
    if not isinstance(record, dict):
        raise ValueError("it has no record")
    entries = record.get("files")
    if not isinstance(entries, list) or [entry["name"] for entry in entries] != [os.path.basename(p) for p in paths]:
        raise ValueError("it holds other files")
    return entries


def restore(cache: str, digest: str, paths: list[str], tick: Callable[[], None]) -> str | None:
    """Put a step's artefacts in place from the cache: all of them, or none.

    Args:
        cache: the cache's directory.
        digest: the step's digest.
        paths: where the artefacts belong, in the order of ``creates``.
        tick: called between blocks, for a heartbeat.

    Returns:
        None after success, else one sentence why the cache could not serve; nothing has been put in place then.
    """
    directory = os.path.join(cache, digest)
    if not paths or not os.path.isdir(directory):
        return "the cache has nothing for this digest"
    staged: list[tuple[str, str]] = []
    try:
        for index, (path, entry) in enumerate(zip(paths, _entries(directory, paths))):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            temporary = os.path.join(os.path.dirname(path), ".%s.from-cache" % os.path.basename(path))
            staged.append((temporary, path))
            if copy_and_hash(os.path.join(directory, str(index)), temporary, tick) != entry["sha256"]:
                raise ValueError("%s is not what was stored: its sha256 differs" % entry["name"])
            os.chmod(temporary, int(entry["mode"], 8))
        for temporary, path in staged:
            os.replace(temporary, path)
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        for temporary, _path in staged:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        return "the cache entry %s was not used: %s" % (directory, error)


def store(cache: str, digest: str, paths: list[str], tick: Callable[[], None]) -> str | None:
    """Keep a step's artefacts in the cache; an entry appears complete or not at all.

    Returns:
        None after success, else one sentence why nothing was kept.
    """
    for path in paths:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return "%s is not a plain file, so nothing was cached" % path
    if not paths:
        return "the step creates no file that could be cached"
    prefix = ".incoming-%s-" % digest
    incoming = os.path.join(cache, "%s%s-%d" % (prefix, os.uname().nodename, os.getpid()))
    try:
        os.makedirs(cache, exist_ok=True)
        _remove_abandoned(cache, prefix)
        os.mkdir(incoming)
        entries = []
        for index, path in enumerate(paths):
            copy = os.path.join(incoming, str(index))
            sha256 = copy_and_hash(path, copy, tick)
            os.chmod(copy, 0o644)
            mode = "%04o" % stat.S_IMODE(os.lstat(path).st_mode)
            entries.append({"name": os.path.basename(path), "sha256": sha256, "mode": mode})
        write_json(os.path.join(incoming, RECORD), {"digest": digest, "files": entries})
        _replace_directory(incoming, os.path.join(cache, digest))
        return None
    except OSError as error:
        shutil.rmtree(incoming, ignore_errors=True)
        return "nothing was cached: %s" % error


def _replace_directory(incoming: str, target: str) -> None:
    try:
        os.rename(incoming, target)
    except OSError:
        aside = incoming + ".old"
        os.rename(target, aside)
        os.rename(incoming, target)
        shutil.rmtree(aside, ignore_errors=True)


def _remove_abandoned(cache: str, prefix: str) -> None:
    for name in os.listdir(cache):
        path = os.path.join(cache, name)
        with contextlib.suppress(OSError):
            if name.startswith(prefix) and time.time() - os.lstat(path).st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(path)
