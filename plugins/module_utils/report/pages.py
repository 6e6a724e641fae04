# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Keep the page of a report beside its facts, and the pages of the last acceptances."""

from __future__ import annotations

import glob
import os
import re
from typing import Any, Mapping

from ..core.files import read_bytes, write_atomic
from ..core.lenient_json import mapping, text

PAGE = "report.html"

KEPT = "reports"
"""The directory with a page for each acceptance."""

MARK = "<!-- made from %s -->\n"
"""The last line of a page: the digest of the facts and of what makes a page of them."""

_MARKED = re.compile(MARK.replace("%s", "([0-9a-f]{64})").encode() + rb"\Z")


def acceptance_of(facts: Mapping[str, Any]) -> str:
    """Return when the last acceptance began, as a part of a file's name; empty without one."""
    accepted = mapping((facts["acceptances"] or [None])[-1] if "partitions" in facts else facts["acceptance"])
    return re.sub("[^0-9TZ]", "", text(accepted.get("started")))


def made_from(directory: str, acceptance: str, kept: int) -> str:
    """Return the digest that the page was made from; empty where it, or what is kept, is not as it has to be."""
    wanted = {os.path.join(directory, PAGE), *_kept(directory, acceptance, kept)}
    found = {_mark_of(path) for path in wanted}
    return found.pop() if len(found) == 1 and not _superfluous(directory, acceptance, kept) else ""


def write_pages(directory: str, page: str, acceptance: str, kept: int, check_mode: bool) -> bool:
    """Write the page where it differs, keep it as that of its acceptance, and remove those of the oldest ones.

    Returns:
        whether anything differs.
    """
    content = page.encode("utf-8")
    differing = [
        path for path in (os.path.join(directory, PAGE), *_kept(directory, acceptance, kept))
        if read_bytes(path) != content]
    superfluous = _superfluous(directory, acceptance, kept)
    if not check_mode:
        for path in differing:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write_atomic(path, content)
        for path in superfluous:
            os.unlink(path)
    return bool(differing or superfluous)


def _kept(directory: str, acceptance: str, kept: int) -> list[str]:
    """List the path of the page that is kept of this acceptance, if there is one."""
    return [os.path.join(directory, KEPT, "acceptance-%s.html" % acceptance)] if acceptance and kept > 0 else []


def _superfluous(directory: str, acceptance: str, kept: int) -> list[str]:
    """List the pages of older acceptances than are kept, that of the last one counted."""
    last = _kept(directory, acceptance, kept)
    if not last:
        return []
    there = glob.glob(os.path.join(glob.escape(directory), KEPT, "acceptance-*.html"))
    return sorted({*there, *last}, reverse=True)[kept:]


def _mark_of(path: str) -> str:
    """Return the digest in the last line of a page; empty where there is no such page."""
    found = _MARKED.search(read_bytes(path) or b"")
    return found[1].decode() if found else ""
