# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Compile globs of paths relative to a tree. Pure."""

from __future__ import annotations

import re
from typing import Iterable

_MEANINGS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def compile_globs(patterns: Iterable[str]) -> re.Pattern[str] | None:
    """Compile relative globs: ``*`` and ``?`` stay within a name, ``**`` spans directories."""
    expressions = []
    for pattern in patterns:
        expression = ""
        for part in re.findall(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\]|.", pattern.strip("/"), re.S):
            if part in _MEANINGS:
                expression += _MEANINGS[part]
            elif part.startswith("[") and len(part) > 1:
                inner = part[1:-1].replace("\\", "\\\\")
                expression += "[%s]" % ("^" + inner[1:] if inner.startswith("!") else inner.replace("^", "\\^"))
            else:
                expression += re.escape(part)
        expressions.append(expression)
    return re.compile("(?:%s)" % "|".join(expressions), re.S) if expressions else None
