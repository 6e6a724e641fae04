# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Take versions, locks and rules from a release file of the collection."""

from __future__ import annotations

import pathlib
import re
from typing import Any, Iterable

from ansible_collections.hpcml.torchstack.plugins.plugin_utils import release_file


class Model:
    """A release file, as data with its locks, and as text."""

    def __init__(self, path: pathlib.Path) -> None:
        self.text = path.read_text(encoding="utf-8")
        self.content = release_file.read(path).content

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
        """Return the text of a key at the top with its comments, without the lines that name certain words.

        From a list in brackets only the words themselves are taken.
        """
        (text,) = re.findall(r"(?m)^%s:.*\n(?:(?: .*|#.*)?\n)*" % re.escape(key), self.text)
        for word in without:
            text = re.sub(r", %s[\w.]*(?=[,\]])" % re.escape(word), "", text)
            text = "".join(line for line in text.splitlines(keepends=True) if word not in line.lower())
        return str(text).rstrip("\n")
