# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The actions of a publication, one after the other, each from what the one before left."""

from __future__ import annotations

import os

from ..modulefiles.layout import (
    SYNTAXES,
    default_path,
    hidden_path,
    listing_files,
    read_bytes,
    relative_path,
)
from ..modulefiles.visible_text import Added, visible_bytes
from .publication_changes import (
    DEFAULT,
    HIDE,
    LIST,
    REMOVE,
    Action,
)
from .publication_facts import Facts
from .publication_rules import require_ours


class Plan:
    """Actions one after the other, each from what the one before left."""

    def __init__(self, facts: Facts) -> None:
        self.actions: list[Action] = []
        self._facts = facts
        self._default = dict(facts.defaults)
        self._hidden = {syntax: set(facts.hidden[syntax]) for syntax in SYNTAXES}
        self._contents: dict[str, bytes | None] = {}

    def write(self, action: str, syntax: str, added: Added) -> None:
        """The modulefile, with what comes to the verified bytes."""
        path = relative_path(syntax, self._facts.name, self._facts.version)
        self._change(action, syntax, path, visible_bytes(syntax, self._facts.staged[syntax], added))

    def remove(self, syntax: str) -> None:
        """No modulefile."""
        self._change(REMOVE, syntax, relative_path(syntax, self._facts.name, self._facts.version), None)

    def hide(self, syntax: str) -> None:
        """Not in ``module avail``."""
        if self._facts.version not in self._hidden[syntax]:
            self._hidden[syntax].add(self._facts.version)
            self._relist(HIDE, syntax, hidden_path(syntax, self._facts.name))

    def list(self, syntax: str) -> None:
        """In ``module avail``."""
        if self._facts.version in self._hidden[syntax]:
            self._hidden[syntax].remove(self._facts.version)
            self._relist(LIST, syntax, hidden_path(syntax, self._facts.name))

    def move_default(self, syntax: str, version: str) -> None:
        """Another default, or none."""
        if self._default[syntax] != version:
            previous, self._default[syntax] = self._default[syntax], version
            self._relist(DEFAULT, syntax, default_path(syntax, self._facts.name), version, previous)

    def _relist(self, action: str, syntax: str, path: str, version: str | None = None, previous: str = "") -> None:
        files = listing_files(syntax, self._facts.name, self._default[syntax], sorted(self._hidden[syntax]))
        self._change(action, syntax, path, files[path], version, previous)

    def _change(
        self, action: str, syntax: str, path: str, after: bytes | None, version: str | None = None, previous: str = ""
    ) -> None:
        if path not in self._contents:
            self._contents[path] = read_bytes(os.path.join(self._facts.root, path))
        before = self._contents[path]
        if before != after:
            require_ours(self._facts.root, path, before)
            self._contents[path] = after
            self.actions.append(Action(
                action, syntax, path, before, after, self._facts.version if version is None else version, previous))
