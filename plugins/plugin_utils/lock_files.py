# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Put the locks that lie in files beside a release file where it names them; on the control node."""

from __future__ import annotations

import pathlib
from typing import Any

from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import locks


def fill_in(
    content: dict[str, Any], release_file: pathlib.Path, lines: dict[str, int], new: bool = False
) -> dict[str, str]:
    """Replace the names of lock files in a release file's data by their texts.

    Args:
        content: the data, which are changed.
        release_file: where they were read.
        lines: of the keys, by their dotted paths.
        new: whether a file that is not there counts as an empty one.

    Returns:
        The names, by the dotted path of the key.

    Raises ValueError: a file is not there, cannot be read, or lies elsewhere; one sentence with file and line.
    """
    found = {}
    for text in list(locks.texts(content)):
        name = text.value
        if not locks.is_file_name(name):
            continue
        named = "The release file %s names the lock %s in line %d" % (
            release_file, name, lines.get(text.path, 0))
        if pathlib.PurePosixPath(name).is_absolute() or ".." in name.split("/"):
            raise ValueError("%s, which has to lie beside it, or in a directory beside it." % named)
        path = release_file.parent / name
        try:
            text.put("" if new and not path.exists() else path.read_text(encoding="utf-8"))
            if not new and not text.value.strip():
                raise ValueError("%s, and %s is empty; have it back from version control, or from bin/lock." % (
                    named, path))
        except OSError as error:
            raise ValueError("%s, and %s cannot be read: %s." % (named, path, error.strerror)) from error
        except UnicodeDecodeError as error:
            raise ValueError("%s, and %s is not UTF-8." % (named, path)) from error
        found[text.path] = name
    return found
