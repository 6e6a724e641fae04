# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Put the site's own files where a release file names them; on the control node."""

from __future__ import annotations

import base64
import pathlib
from typing import Any

from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import site_files


def fill_in(content: dict[str, Any], release_file: pathlib.Path, lines: dict[str, int]) -> dict[str, str]:
    """Replace the sources of the site's files in a release file's data by what is in them, in base64.

    Args:
        content: the data, which are changed.
        release_file: where they were read.
        lines: of the keys, by their dotted paths.

    Returns:
        The sources, by the dotted path of the entry.

    Raises ValueError: a file is not there, cannot be read, or lies elsewhere; one sentence with file and line.
    """
    found = {}
    listed = content.get(site_files.KEY)
    for number, entry in enumerate(listed if isinstance(listed, list) else []):
        source = entry.get("source") if isinstance(entry, dict) else None
        if not isinstance(source, str) or "content" in entry:
            continue
        path = "%s[%d]" % (site_files.KEY, number)
        line = lines.get(path + ".source", lines.get(path, lines.get(site_files.KEY, 0)))
        data = _read(release_file, source, "The release file %s names the file %s in line %d" % (
            release_file, source, line))
        # Not in the list that is there: of a release that is extended, it is that one's.
        listed = content[site_files.KEY] = [*content[site_files.KEY]]
        listed[number] = {
            **{key: value for key, value in entry.items() if key != "source"},
            "content": base64.b64encode(data).decode("ascii")}
        found[path] = source
    return found


def _read(release_file: pathlib.Path, source: str, named: str) -> bytes:
    """Read one file, of a too large one only as much as tells that. Raises ValueError, begun by ``named``."""
    words = source.split("/")
    if len(words) < 2 or not words[0] or ".." in words:
        raise ValueError("%s, which has to be a file in a directory beside it, such as files/kernel.json." % named)
    path = release_file.parent / source
    try:
        real = path.resolve(strict=True)
        if release_file.parent.resolve() not in real.parents:
            raise ValueError("%s, which leads out of its directory, to %s; put the file itself there." % (named, real))
        if not real.is_file():
            raise ValueError("%s, and %s is no regular file." % (named, path))
        with real.open("rb") as stream:
            return stream.read(site_files.LIMIT + 1)
    except FileNotFoundError:
        raise ValueError("%s, and there is no file %s." % (named, path)) from None
    except (OSError, RuntimeError) as error:
        raise ValueError("%s, and %s cannot be read: %s." % (
            named, path, getattr(error, "strerror", None) or error)) from error
