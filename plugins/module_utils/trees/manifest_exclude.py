# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a record of a tree leaves out."""

from __future__ import annotations

import os
import re

from ..core.globs import compile_globs
from .manifest_file import as_bytes, left_over


class LeftOut:
    """Which paths are left out: what globs match, the record itself, and what a killed run left of one.

    Args:
        globs: lists of globs, relative to the tree.
        own: paths of records in the tree, None for one that lies elsewhere.
    """

    def __init__(self, globs: list, own: list[str | None]) -> None:
        self.pattern: re.Pattern[str] | None = compile_globs([glob for some in globs for glob in some])
        self.own = {path for path in own if path}
        self.left_over = [left_over(path) for path in self.own]
        self._places = {as_bytes(os.path.join(os.path.dirname(path), "")) for path in self.own}

    def __call__(self, path: str) -> bool:
        """Whether a path, as a record writes it, is left out, with all below it."""
        if path in self.own or any(pattern.fullmatch(path) for pattern in self.left_over):
            return True
        return bool(self.pattern and self.pattern.fullmatch(path))

    def within(self, prefix: bytes) -> bool:
        """Whether anything right below a directory may be left out.

        Args:
            prefix: its path with a slash, empty for the tree.
        """
        return self.pattern is not None or prefix in self._places
