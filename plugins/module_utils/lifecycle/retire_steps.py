# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Move a release away before it is removed, and put it back.

Each of these functions completes what was begun.

In this order: what is about to happen is recorded, the tree moves to ``removing`` beside the release's records by one
rename, images that no other release uses follow. From then on nobody finds it, and who still has it open can be looked
for once more. Only then is it recorded that files go (``deleting``), after which nothing is put back.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Any, Mapping

from ..core import json_lines
from ..core.account import actor
from ..core.clock import now
from ..core.errors import StackError
from ..core.files import flush_directory, write_json
from ..definition.container import COPIES
from ..modulefiles.layout import stage_directory
from ..standalone import removal
from .retire import ASIDE, JOURNAL, RECORD, Facts

RESOLVED = os.path.join(".torchstack", "release.yml")
IMAGE = "removing-image-"
"""Begins the name of an image's directory that is aside."""

_IMAGE = re.compile(r"[0-9a-f]{12,64}")


def own_images(root: str, tree: str, release: str) -> list[str]:
    """Return the copies of images that only this release uses, by their directories' names.

    A release's resolved file has the image's checksum, whose beginning is the directory's name; whichever file has it
    keeps the image, also that of a release that is aside and may be put back. Raises StackError: a release cannot be
    read.
    """
    names = _listing(os.path.join(root, COPIES))
    own = _text(os.path.join(tree, RESOLVED)) if names else ""
    wanted = [name for name in names if _IMAGE.fullmatch(name) and name in own]
    if not wanted:
        return []
    places = [os.path.join(root, name) for name in _listing(root) if name != release]
    places += [os.path.join(stage_directory(root, name), ASIDE) for name in _listing(os.path.join(root, ".torchstack"))
               if name != release]
    others = [_text(os.path.join(place, RESOLVED)) for place in places]
    return [name for name in wanted if not any(name in text for text in others)]


def _listing(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise StackError(
            "%s cannot be read, so that nobody knows which image it uses: %s." % (path, error.strerror),
            "look for images", "Run as the account that owns the root.", path) from error


def removal_paths(facts: Facts) -> list[str]:
    """Tell what is to be removed, by its places while it is aside."""
    images = facts.record.get("images") or []
    return [facts.aside, *(os.path.join(facts.afterwards, IMAGE + name) for name in images)]


def measure(facts: Facts) -> removal.Amount:
    """Tell what a release holds that is about to be removed, images that go too included; it may take long.

    Raises StackError: a release cannot be read, so that nobody knows which images are used.
    """
    amount = removal.measure(facts.state.prefix)
    for name in own_images(facts.state.root, facts.state.prefix, facts.state.release):
        removal.measure(os.path.join(facts.state.root, COPIES, name), amount)
    return amount


def removing_record(facts: Facts, record: dict[str, Any]) -> dict[str, Any]:
    """Return the record of a release that is about to be removed.

    It gets ``planned``, ``images``, ``before`` (the record until then) and ``mode`` (of the tree, for
    :func:`put_back`). Raises StackError: a release cannot be read, so that nobody knows which images are used.
    """
    images = own_images(facts.state.root, facts.state.prefix, facts.state.release)
    mode = stat.S_IMODE(os.stat(facts.state.prefix).st_mode)
    return dict(record, planned=facts.amount.as_dict(), images=images, mode=mode, before=facts.record)


def is_in_place(facts: Facts) -> bool:
    """Tell whether anything that is to go is still where users find it."""
    images = facts.record.get("images") or []
    places = [facts.state.prefix, *(os.path.join(facts.state.root, COPIES, name) for name in images)]
    return not facts.record.get("deleting") and any(os.path.isdir(path) for path in places)


def record_action(facts: Facts, record: Mapping[str, Any], action: str) -> None:
    """Write the journal and then the record, which goes where nothing is to be recorded any more."""
    names = ("reason", "successor", "until", "planned", "looked", "unseen", "freed")
    kept = {key: record[key] for key in names if record.get(key)}
    json_lines.append(os.path.join(facts.afterwards, JOURNAL), {"action": action, "time": now(), "by": actor(), **kept})
    path = os.path.join(facts.afterwards, RECORD)
    if record:
        write_json(path, record)
    else:
        os.unlink(path)
        flush_directory(facts.afterwards)


def put_aside(facts: Facts, record: dict[str, Any]) -> None:
    """Move a release out of the way of everybody; after an OSError it can be run again."""
    if facts.record != record:
        record_action(facts, record, "aside")
    prefix = facts.state.prefix
    if os.path.isdir(prefix):
        # rename(2) of a directory into another one changes its own entry "..", for which it has to be writable.
        os.chmod(prefix, record["mode"] | stat.S_IRWXU)
        _move(prefix, facts.aside)
    for name in record["images"]:
        source = os.path.join(facts.state.root, COPIES, name)
        if os.path.isdir(source):
            _move(source, os.path.join(facts.afterwards, IMAGE + name))


def put_back(facts: Facts) -> dict[str, Any]:
    """Bring a release back of which nothing was removed yet; return its record. After an OSError it is aside again."""
    before = facts.record["before"]
    for name in facts.record["images"]:
        source, target = os.path.join(facts.afterwards, IMAGE + name), os.path.join(facts.state.root, COPIES, name)
        if os.path.isdir(source) and not os.path.lexists(target):
            _move(source, target)
    if os.path.isdir(facts.aside):
        _move(facts.aside, facts.state.prefix)
    os.chmod(facts.state.prefix, facts.record["mode"])
    record_action(facts, before, "put back")
    return before


def _move(source: str, target: str) -> None:
    os.rename(source, target)
    flush_directory(os.path.dirname(source))
    flush_directory(os.path.dirname(target))
