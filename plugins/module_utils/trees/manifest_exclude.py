# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Tell what a manifest leaves out."""

from __future__ import annotations

import os
import re

from ..core.globs import compile_globs
from .manifest_entry import as_bytes


class Exclusion:
    """Match paths that are left out: by lists of globs, records in the tree, and what killed runs left of those."""

    def __init__(self, globs: list, own: list[str | None]) -> None:
        self.pattern: re.Pattern[str] | None = compile_globs([glob for some in globs for glob in some])
        self.own = {path for path in own if path}
        self._temporary = [temporary_pattern(path) for path in self.own]
        self._places = {as_bytes(os.path.join(os.path.dirname(path), "")) for path in self.own}

    def __call__(self, path: str) -> bool:
        """Tell whether a path, as a record writes it, is left out, with all below it."""
        if path in self.own or any(pattern.fullmatch(path) for pattern in self._temporary):
            return True
        return bool(self.pattern and self.pattern.fullmatch(path))

    def within(self, prefix: bytes) -> bool:
        """Tell whether anything right below a directory, by its path with a slash, may be left out."""
        return self.pattern is not None or prefix in self._places


def temporary_pattern(record: str) -> re.Pattern[str]:
    """Match the temporary files that :func:`write_atomic` makes, and that a killed run leaves."""
    directory, name = os.path.split(record)
    return re.compile(re.escape(os.path.join(directory, ".%s." % name[:200])) + "[a-z0-9_]{8}", re.S)
