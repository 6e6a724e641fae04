# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find slips in the directives that a site adds to its jobs. Pure.

Sites have options of their own (SPANK, resources of PBS), so that an unknown one is refused only where it looks like a
known one; the rest is for people to look at.
"""

from __future__ import annotations

import re
from typing import Iterator, NamedTuple

from ..core.near_names import VERY_NEAR, nearest

_LONG = re.compile(r"--([A-Za-z][\w-]*)(?:[=\s]|\Z)")
_SHORT = re.compile(r"-([A-Za-z])")


class Directives(NamedTuple):
    """What the directives of one batch system look like; nothing is known of one that says nothing."""

    long: frozenset[str] = frozenset()
    """Its long options, without dashes."""
    short: str = ""
    """The letters of its short options."""
    example: str = ""

    def problems(self, line: str) -> Iterator[tuple[str, str]]:
        """Find what is wrong with one directive.

        Yields:
            What is the matter, and what to do.
        """
        if not self.short:
            return
        if not line.startswith("-"):
            name = re.split(r"[=\s]", line)[0]
            known = bool(nearest(name, self.long, VERY_NEAR))
            yield "one of the directives, %r, does not begin with a dash" % line, (
                "Write it with its dashes: --%s." % line if known else "Write it as in %s." % self.example)
            return
        found = _LONG.match(line)
        near = self._near(found.group(1)) if found else ""
        if found and near:
            yield "one of the directives, %r, is unknown" % line, "Did you mean --%s?" % near

    def unknown(self, line: str) -> bool:
        """Tell whether a directive, in which there is no problem, is one of which nothing is known."""
        if not self.short or not line.startswith("-"):
            return False
        long, short = _LONG.match(line), _SHORT.match(line)
        if long:
            return long.group(1) not in self.long
        return short is None or short.group(1) not in self.short

    def _near(self, name: str) -> str:
        if name in self.long:
            return ""
        return nearest(name, self.long, VERY_NEAR)
