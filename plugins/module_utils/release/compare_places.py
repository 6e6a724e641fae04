# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Where a release lies, taken out of the files that say so, so that two of them can be compared."""

from __future__ import annotations

import os
import re
from typing import NamedTuple, Pattern

PREFIX, ROOT = b"{prefix}", b"{root}"
"""What stands for a release's directory, and for the one that it lies in."""

_BUILT = re.compile(rb"^  prefix: ['\"]?(/[^\n'\"]+)/base['\"]?$", re.MULTILINE)
"""Where a release was built, in its own stored file; a release may have been moved or copied since."""


class Places(NamedTuple):
    """Patterns for the places of one release, the innermost first."""

    patterns: tuple[tuple[bytes, Pattern[bytes], Pattern[bytes], bytes], ...]
    """the path, as a text has it, as a binary has it with what pads it, and what stands for it"""

    def without(self, content: bytes) -> bytes:
        """A content without its own places."""
        binary = b"\0" in content
        for path, plain, padded, name in self.patterns:
            if path not in content:
                continue
            content = padded.sub(name + rb"\1\0", content) if binary else content
            content = plain.sub(name, content)
        return content

    def has(self, content: bytes) -> bool:
        """Whether a content names one of the places."""
        return any(path in content for path, _plain, _padded, _name in self.patterns)


def of_release(prefix: str) -> Places:
    """The places of a release: where it is, and where it was built."""
    prefixes = [os.path.abspath(prefix), os.path.realpath(prefix)]
    try:
        with open(os.path.join(prefix, ".torchstack", "release.yml"), "rb") as stream:
            prefixes += [os.fsdecode(path) for path in _BUILT.findall(stream.read())[:1]]
    except OSError:
        # It is no release, or none that was built here; then it says only where it is.
        pass
    prefixes = list(dict.fromkeys(prefixes))
    known = [(path, PREFIX) for path in prefixes]
    known += [(path, ROOT) for path in dict.fromkeys(map(os.path.dirname, prefixes))]
    return Places(tuple(_patterns(os.fsencode(path), name) for path, name in known if path != "/"))


def _patterns(path: bytes, name: bytes) -> tuple[bytes, Pattern[bytes], Pattern[bytes], bytes]:
    whole = re.escape(path) + rb"(?![A-Za-z0-9_+-])"
    # What replaces a longer prefix in a binary is filled up with zeros to the length that was there.
    return path, re.compile(whole), re.compile(whole + rb"([^\0\n]{0,4096})\0+"), name
