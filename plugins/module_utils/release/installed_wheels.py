# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find the wheels that a release's steps fetched or built, as their results name them, with their digests."""

from __future__ import annotations

import glob
import os
import re
from typing import Iterable, NamedTuple

from ..core.lenient_json import mapping, mappings, text
from ..definition.packages import canonical
from .installed_records import RECORDS, read_record

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


class Wheel(NamedTuple):
    """Describe a wheel: the file's name, its digest, and the tags that its name stands for."""

    file: str
    sha256: str
    tags: frozenset[str]


class Wheels:
    """Hold the wheels by canonical name and version. Raises StackError: a record cannot be read."""

    def __init__(self, prefix: str) -> None:
        self._found: dict[tuple[str, str], set[Wheel]] = {}
        pattern = os.path.join(glob.escape(os.path.join(prefix, RECORDS, "steps")), "*", "result.json")
        for path in sorted(glob.glob(pattern)):
            for entry in mappings(mapping(read_record(path)).get("files")):
                self._add(os.path.basename(text(entry.get("path"))), text(entry.get("sha256")))

    def _add(self, file: str, digest: str) -> None:
        words = file[:-len(".whl")].split("-") if file.endswith(".whl") else []
        if len(words) in (5, 6) and _DIGEST.match(digest):
            key = (canonical(words[0]), words[1].replace("_", "-"))
            self._found.setdefault(key, set()).add(Wheel(file, digest, expanded(words[-3:])))

    def find(self, name: str, version: str, tags: Iterable[str], digest: str = "") -> Wheel | None:
        """Find the wheel that a distribution was installed of; None where none, or more than one, can have been it.

        Args:
            tags: those of its own file ``WHEEL``; none where that is not known.
            digest: the wheel's digest, where the installer has written it down.
        """
        known = self._found.get((canonical(name), version.replace("_", "-")), set())
        own = frozenset(tags)
        fitting = [
            wheel for wheel in known
            if (not own or own & wheel.tags) and (not digest or wheel.sha256 == digest)]
        digests = {wheel.sha256 for wheel in fitting}
        return min(fitting) if len(digests) == 1 else None


def expanded(words: list[str]) -> frozenset[str]:
    """Expand the compressed tags of a wheel's name (the specification "Platform compatibility tags")."""
    pythons, abis, platforms = (word.split(".") for word in words)
    return frozenset("%s-%s-%s" % (python, abi, one) for python in pythons for abi in abis for one in platforms)
