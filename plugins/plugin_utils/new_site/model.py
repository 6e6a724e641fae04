# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Take versions, locks and rules from a release file of the collection."""

from __future__ import annotations

import pathlib
import re
from typing import Any, Iterable

import yaml
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import release_file


class Model:
    """A release file with its parts, as data with their locks, and as text."""

    def __init__(self, path: pathlib.Path) -> None:
        read = release_file.read(path)
        self.path, self.content, self._parts = path, read.content, read.places.parts
        self._elsewhere = {read.places.root(name) for name in read.inherited}

    def value(self, path: str, default: Any = None) -> Any:
        """Return what stands at a dotted path. Raises KeyError: nothing does, and there is no default."""
        found: Any = self.content
        for key in path.split("."):
            if not isinstance(found, dict) or key not in found:
                if default is None:
                    raise KeyError("The release %s has no %s." % (self.content["release"], path))
                return default
            found = found[key]
        return found

    def section(self, key: str, without: Iterable[str] = ()) -> str:
        """Return the text of a key at the top, without the lines that name certain words.

        It has its comments, unless it is put together with what another release file has.
        From a list in brackets only the words themselves are taken.
        """
        if key in self._elsewhere:
            text = yaml.safe_dump({key: self.content[key]}, sort_keys=False, width=10_000, default_flow_style=None)
        else:
            whole = (self.path.parent / self._parts.get(key, self.path.name)).read_text(encoding="utf-8")
            (text,) = re.findall(r"(?m)^%s:.*\n(?:(?: .*|#.*)?\n)*" % re.escape(key), whole)
        for word in without:
            text = re.sub(r", %s[\w.]*(?=[,\]])" % re.escape(word), "", text)
            text = "".join(line for line in text.splitlines(keepends=True) if word not in line.lower())
        return str(text).rstrip("\n")
