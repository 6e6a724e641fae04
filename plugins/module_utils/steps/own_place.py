# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find where a step's release lies, and take that out of its inputs, so that others share them. Pure.

A release keeps the records of its steps in ``<root>/<release>/.torchstack/steps``; only such a step has a release.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

STEPS = os.path.join(".torchstack", "steps")
"""Directory of the steps' records, from the release's own one."""

RELEASE, RECORDS = "\0release", "\0root/.torchstack"
"""What stands for the place; no path and no script has a NUL."""

_NAME = "A-Za-z0-9._+@~=-"
"""Letters that a directory's name may go on with: ``/soft/2026-11-20`` is not the place of ``/soft/2026-11-20b``."""


class OwnPlace(NamedTuple):
    """The release that a step belongs to."""

    root: str
    prefix: str
    """empty where the step belongs to no release"""

    def inside(self, path: str) -> str:
        """Return a path as another release would have it: relative where it lies inside of this one."""
        within = self.prefix and (path + "/").startswith(self.prefix + "/")
        return os.path.relpath(path, self.prefix) if within else path

    def needles(self, shared: str) -> list[bytes]:
        """Return byte strings by which a file tells that it belongs to this place.

        A shared directory outside of the root serves other roots, too.
        """
        if not self.prefix:
            return []
        own = self.prefix if (shared + "/").startswith(self.root + "/") else self.root
        return [os.fsencode(own)]


def place_of(state_dir: str) -> OwnPlace:
    """Find the release whose steps have their records in ``state_dir``."""
    path = os.path.normpath(state_dir)
    if not path.endswith(os.sep + STEPS):
        return OwnPlace("", "")
    prefix = path[: -len(STEPS) - 1]
    return OwnPlace(os.path.dirname(prefix), prefix)


def placeless(data: object, place: OwnPlace) -> object:
    """Return plain data without the place of a release, for a digest that any release can have.

    Build tools that belong to one release have its name at their end (see :func:`..definition.base.describe`).
    """
    if not place.prefix:
        return data
    ends = "(?![%s])" % _NAME
    name = re.escape(os.path.basename(place.prefix))
    records = re.escape(os.path.join(place.root, ".torchstack"))
    rules = (
        (re.compile("%s(/tools/[0-9a-f]{12})-%s%s" % (records, name, ends)), RECORDS + r"\1"),
        (re.compile(re.escape(place.prefix) + ends), RELEASE), (re.compile(records + ends), RECORDS),
    )

    def replaced(item: object) -> object:
        if isinstance(item, str):
            for pattern, meaning in rules:
                item = pattern.sub(meaning, item)
            return item
        if isinstance(item, dict):
            return {replaced(key) if isinstance(key, str) else key: replaced(value) for key, value in item.items()}
        if isinstance(item, (list, tuple)):
            return [replaced(value) for value in item]
        return item

    return replaced(data)
