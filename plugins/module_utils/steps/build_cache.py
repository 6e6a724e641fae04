# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Keep what steps produced by digest, so that another release with the same inputs need not build it.

``<directory>/<digest>/`` holds ``entry.json`` and one file for each one that was produced, named by its position. A
file whose sha256 is not the recorded one is never used, and an entry is taken over as a whole or not at all.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import re
import shutil
import time
from typing import Any

from ..core.files import read_json, write_json
from ..core.lenient_json import mapping
from .own_place import STEPS, OwnPlace
from .produced import Produced, Tick, listing_digest
from .records import Stamp

RECORD = "entry.json"

BUILDS = os.path.join(".torchstack", "builds")
"""Where entries lie below the root of the releases, unless a site says otherwise."""

UNUSED_SECONDS = 30 * 86400.0
"""An entry that no release has is kept for so long after it was stored or taken over."""

_BLOCK = 4 << 20
_ABANDONED_SECONDS = 86400
_ENTRY = re.compile(r"[0-9a-f]{64}\Z")
_KEYS = ("step", "release", "host", "finished", "seconds", "result")


def copy_and_hash(source: str, target: str, tick: Tick) -> str:
    """Copy a file's bytes, flush them to disk, and return their sha256; ``tick`` is called between blocks."""
    digest = hashlib.sha256()
    with open(source, "rb") as reader, open(target, "wb") as writer:
        for block in iter(lambda: reader.read(_BLOCK), b""):
            digest.update(block)
            writer.write(block)
            tick()
        writer.flush()
        os.fsync(writer.fileno())
    return digest.hexdigest()


def origin_of(directory: str, digest: str) -> dict[str, Any] | None:
    """Read who has stored an entry: :data:`_KEYS`; None where there is none. Its files are not checked."""
    try:
        record = read_json(os.path.join(directory, digest, RECORD))
    except (OSError, ValueError):
        return None
    if not isinstance(record, dict) or not isinstance(record.get("files"), list):
        return None
    return {key: record.get(key) for key in _KEYS}


def restore(directory: str, digest: str, paths: list[str], place: OwnPlace, tick: Tick) -> tuple[Produced | None, str]:
    """Put what a step produces in place: all of it, or nothing, and then one sentence says why not."""
    entry = os.path.join(directory, digest)
    if not paths or not os.path.isdir(entry):
        return None, "nothing is kept of another release for these inputs"
    staged = {path: os.path.join(os.path.dirname(path), ".%s.taken-over" % os.path.basename(path)) for path in paths}
    try:
        with _removed(list(staged.values())):
            produced = _stage(entry, digest, staged, place, tick)
            for path, copy in staged.items():
                _put(copy, path)
        with contextlib.suppress(OSError):
            os.utime(entry)
        return produced, ""
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return None, "%s was not taken over: %s" % (entry, error)


@contextlib.contextmanager
def _removed(paths: list[str]) -> Any:
    """Remove what lies there before, and what is left of it afterwards."""
    for path in paths:
        _remove(path)
    try:
        yield
    finally:
        for path in paths:
            _remove(path)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _put(copy: str, path: str) -> None:
    """Replace what is there, a directory as a whole."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    os.replace(copy, path)


def _stage(entry: str, digest: str, staged: dict[str, str], place: OwnPlace, tick: Tick) -> Produced:
    """Copy the files of an entry beside where they belong; ValueError: they were changed, or are not this step's."""
    record: Any = read_json(os.path.join(entry, RECORD))
    if not isinstance(record, dict) or record.get("digest") != digest:
        raise ValueError("it has no record of its own")
    seen = set()
    for number, item in enumerate(record["files"]):
        path = os.path.normpath(os.path.join(place.prefix or "/", item["path"]))
        top = next((top for top in staged if path == top or path.startswith(top + "/")), None)
        if top is None:
            raise ValueError("it holds other files, such as %s" % item["path"])
        seen.add(top)
        target = staged[top] + path[len(top):]
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if "link" in item:
            os.symlink(item["link"], target)
            continue
        if copy_and_hash(os.path.join(entry, str(number)), target, tick) != item["sha256"]:
            raise ValueError("%s is not what was stored: its sha256 differs" % item["path"])
        os.chmod(target, int(item["mode"], 8))
    if len(seen) != len(staged):
        raise ValueError("it lacks %s" % ", ".join(sorted(place.inside(top) for top in set(staged) - seen)))
    produced = Produced(record["result"], record["files"], [])
    if listing_digest(produced.files) != produced.digest:
        raise ValueError("its record was changed: its own digest differs")
    return produced


def store(directory: str, digest: str, produced: Produced, place: OwnPlace, facts: dict[str, Any], tick: Tick) -> str:
    """Keep what a step has produced, all of it or nothing; the answer is one sentence why not, or empty."""
    prefix = ".incoming-%s-" % digest
    incoming = os.path.join(directory, "%s%s-%d" % (prefix, os.uname().nodename, os.getpid()))
    try:
        os.makedirs(directory, exist_ok=True)
        _remove_abandoned(directory, prefix)
        os.mkdir(incoming)
        for number, item in enumerate(produced.files):
            if "link" not in item:
                copy = os.path.join(incoming, str(number))
                if copy_and_hash(os.path.join(place.prefix or "/", item["path"]), copy, tick) != item["sha256"]:
                    raise OSError("%s was changed meanwhile" % item["path"])
                os.chmod(copy, 0o644)
        write_json(
            os.path.join(incoming, RECORD), dict(facts, digest=digest, result=produced.digest, files=produced.files)
        )
        _replace_directory(incoming, os.path.join(directory, digest))
        return ""
    except OSError as error:
        shutil.rmtree(incoming, ignore_errors=True)
        return "nothing was kept for other releases: %s" % error


def _replace_directory(incoming: str, target: str) -> None:
    """Put an entry in place of one that may be there; somebody else may be doing the same."""
    for _attempt in range(10):
        with contextlib.suppress(OSError):
            return os.rename(incoming, target)
        aside = incoming + ".old"
        with contextlib.suppress(FileNotFoundError):
            os.rename(target, aside)
        shutil.rmtree(aside, ignore_errors=True)
    os.rename(incoming, target)
    return None


def _remove_abandoned(directory: str, prefix: str) -> None:
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        with contextlib.suppress(OSError):
            if name.startswith(prefix) and time.time() - os.lstat(path).st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(path)


def remove_unused(directory: str, root: str, now: float) -> list[str]:
    """Remove entries that no release below a root has, and nobody has used for :data:`UNUSED_SECONDS`; return digests.

    Another directory than the root's own may serve other roots, and is left alone.
    """
    if not root or os.path.normpath(directory) != os.path.join(root, BUILDS):
        return []
    old = []
    for name in os.listdir(directory):
        with contextlib.suppress(OSError):
            path = os.path.join(directory, name)
            if _ENTRY.match(name) and now - os.lstat(path).st_mtime > UNUSED_SECONDS:
                old.append(name)
    if not old:
        return []
    used = set()
    for path in glob.glob(os.path.join(glob.escape(root), "*", STEPS, "*", "stamp.json")):
        with contextlib.suppress(OSError, ValueError, TypeError):
            used.add(Stamp.from_json(mapping(read_json(path))).digest)
    unused = [name for name in old if name not in used]
    for name in unused:
        shutil.rmtree(os.path.join(directory, name), ignore_errors=True)
    return unused
