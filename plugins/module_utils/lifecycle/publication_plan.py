# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""List the actions of a publication, each beginning with what the one before left."""

from __future__ import annotations

import os

from ..modulefiles.layout import (
    MAKER,
    SYNTAXES,
    default_path,
    hidden_path,
    listing_files,
    read_bytes,
    relative_path,
    require_free,
    require_ours,
)
from ..modulefiles.visible_text import Added, read_added, visible_bytes
from .publication_changes import (
    ALSO,
    DEFAULT,
    HIDE,
    LIST,
    REMOVE,
    Action,
)
from .publication_facts import STEP, Facts


class _Names:
    """The files of a module of one name, as the actions before have left them."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.default = dict(facts.defaults)
        self.hidden = {syntax: set(facts.hidden[syntax]) for syntax in SYNTAXES}


class Plan:
    """Actions one after the other, each from what the one before left.

    What is done to the module is done to its further names right before, so that a run that is killed in between is
    completed by the next: only the module itself says how far it is.
    """

    def __init__(self, facts: Facts) -> None:
        self.actions: list[Action] = []
        self._facts = facts
        self._own = _Names(facts)
        self._others = [_Names(other) for other in facts.others]
        self._contents: dict[str, bytes | None] = {}

    def write(self, action: str, syntax: str, added: Added) -> None:
        """Plan to write the modulefile: the verified bytes, and what is added to them."""
        for other in self._others:
            self._write(ALSO, syntax, other, added)
            if added.gone or syntax not in other.facts.syntaxes:
                self._leave_default(syntax, other)
            if syntax not in other.facts.syntaxes:
                self._list(ALSO, syntax, other)
        self._write(action, syntax, self._own, added)

    def _write(self, action: str, syntax: str, names: _Names, added: Added) -> None:
        facts = names.facts
        path = relative_path(syntax, facts.name, facts.version)
        if syntax not in facts.syntaxes:
            self._remove(action, syntax, names)
            return
        if names is not self._own:
            require_free(facts.root, facts.release, path, self._now(path), STEP)
        self._change(action, syntax, path, visible_bytes(syntax, facts.staged[syntax], added))

    def remove(self, syntax: str) -> None:
        """Plan to remove the modulefile."""
        for other in self._others:
            self._leave_default(syntax, other)
            self._remove(ALSO, syntax, other)
        self._remove(REMOVE, syntax, self._own)

    def _remove(self, action: str, syntax: str, names: _Names) -> None:
        if names is self._own or MAKER.encode() in (names.facts.visible[syntax] or b""):
            self._change(action, syntax, relative_path(syntax, names.facts.name, names.facts.version), None)

    def hide(self, syntax: str) -> None:
        """Plan to hide the version from ``module avail``."""
        for other in self._others:
            if syntax in other.facts.syntaxes:
                self._leave_default(syntax, other)
                self._hide(ALSO, syntax, other)
        self._hide(HIDE, syntax, self._own)

    def _hide(self, action: str, syntax: str, names: _Names) -> None:
        if names.facts.version not in names.hidden[syntax]:
            names.hidden[syntax].add(names.facts.version)
            self._relist(action, syntax, names, hidden_path(syntax, names.facts.name))

    def list(self, syntax: str) -> None:
        """Plan to list the version in ``module avail``."""
        for other in self._others:
            self._list(ALSO, syntax, other)
        self._list(LIST, syntax, self._own)

    def _list(self, action: str, syntax: str, names: _Names) -> None:
        if names.facts.version in names.hidden[syntax]:
            names.hidden[syntax].remove(names.facts.version)
            self._relist(action, syntax, names, hidden_path(syntax, names.facts.name))

    def move_default(self, syntax: str, version: str) -> None:
        """Plan another default, or none; of a further name, none where that version is not there."""
        for other in self._others:
            self._move(ALSO, syntax, other, version if self._is_there(syntax, other, version) else "")
        self._move(DEFAULT, syntax, self._own, version)

    def _leave_default(self, syntax: str, names: _Names) -> None:
        """Take a further name's default off a version that goes: the module's own may have moved without it."""
        if names.default[syntax] == names.facts.version:
            version = self._own.default[syntax]
            is_other = version != names.facts.version and self._is_there(syntax, names, version)
            self._move(ALSO, syntax, names, version if is_other else "")

    def _move(self, action: str, syntax: str, names: _Names, version: str) -> None:
        if names.default[syntax] != version:
            previous, names.default[syntax] = names.default[syntax], version
            self._relist(action, syntax, names, default_path(syntax, names.facts.name), version, previous)

    def _is_there(self, syntax: str, names: _Names, version: str) -> bool:
        content = self._now(relative_path(syntax, names.facts.name, version)) if version else None
        return content is not None and MAKER.encode() in content and not read_added(content).gone

    def _relist(
        self, action: str, syntax: str, names: _Names, path: str, version: str | None = None, previous: str = ""
    ) -> None:
        files = listing_files(syntax, names.facts.name, names.default[syntax], sorted(names.hidden[syntax]))
        self._change(action, syntax, path, files[path], version, previous)

    def _now(self, path: str) -> bytes | None:
        """Return a file's content as the actions before leave it."""
        if path not in self._contents:
            self._contents[path] = read_bytes(os.path.join(self._facts.root, path))
        return self._contents[path]

    def _change(
        self, action: str, syntax: str, path: str, after: bytes | None, version: str | None = None, previous: str = ""
    ) -> None:
        before = self._now(path)
        if before != after:
            require_ours(self._facts.root, path, before, STEP)
            self._contents[path] = after
            self.actions.append(Action(
                action, syntax, path, before, after, self._facts.version if version is None else version, previous))
