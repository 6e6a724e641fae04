# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Write an entry of a manifest as a line, and read it back. Pure."""

from __future__ import annotations

import json
import re
from typing import Mapping, NamedTuple

TOP = b"."
"""How a record names the tree itself; its entry comes before all others."""

FILE, DIRECTORY, SYMLINK = "file", "directory", "symlink"

_quoted = json.encoder.encode_basestring_ascii

_CONTENT = re.compile(
    rb', "sha256": "[0-9a-f]{64}"|, "attributes": \{(?:(?:, )?"(?:[^"\\]|\\.)*": "(?:[^"\\]|\\.)*")*\}')


class Entry(NamedTuple):
    """Describe what a record says of one name. What the type does not have is None."""

    path: bytes
    """Relative to the tree, ``.`` for the tree."""
    kind: str
    """``file``, ``directory``, ``symlink``, ``fifo``, ``socket``, ``character device`` or ``block device``."""
    mode: int | None = None
    """Permission bits, special ones included; a symbolic link has none of its own."""
    size: int | None = None
    """Bytes of a file."""
    sha256: str | None = None
    """Hexadecimal digest of a file's content; None in a record without content."""
    target: bytes | None = None
    """What a symbolic link says, as it stands."""
    attributes: Mapping[str, str] | None = None
    """Access control lists, capabilities and attributes of users; None where there are none."""


class Run(NamedTuple):
    """Hold entries that follow each other."""

    lines: bytes
    """As the record writes them, each with a line feed."""
    files: int
    directories: int
    symlinks: int
    others: int
    total: int
    """Bytes of the files."""
    hardlinked: int = 0
    """How many of the files have more than one name."""
    touched: tuple[bytes, ...] = ()
    """Paths of those whose inode was changed later than asked about."""


def as_text(name: bytes) -> str:
    """Decode a name as a record writes it, the same in every locale."""
    return name.decode("utf-8", "surrogateescape")


def as_bytes(text: str) -> bytes:
    """Encode the name that a record's text stands for."""
    return text.encode("utf-8", "surrogateescape")


def order(path: bytes) -> bytes:
    """Return what entries are sorted by: the bytes of the path, the tree itself first."""
    return b"" if path == TOP else path


def encode_entry(entry: Entry) -> bytes:
    """Encode an entry as a line, without its end."""
    line = '{"path": %s, "type": %s' % (_quoted(as_text(entry.path)), _quoted(entry.kind))
    if entry.mode is not None:
        line += ', "mode": "%04o"' % entry.mode
    if entry.size is not None:
        line += ', "size": %d' % entry.size
    if entry.sha256 is not None:
        line += ', "sha256": "%s"' % entry.sha256
    if entry.target is not None:
        line += ', "target": %s' % _quoted(as_text(entry.target))
    if entry.attributes:
        line += _attributes(entry.attributes)
    return (line + "}").encode("ascii")


def _attributes(found: Mapping[str, str]) -> str:
    return ', "attributes": {%s}' % ", ".join(
        "%s: %s" % (_quoted(name), _quoted(value)) for name, value in sorted(found.items()))


def encode_file(path: bytes, mode: int, size: int, sha256: str, attributes: Mapping[str, str] | None = None) -> str:
    """Encode a file that was read as :func:`encode_entry` does, in less time and as text."""
    return '{"path": %s, "type": "file", "mode": "%04o", "size": %d, "sha256": "%s"%s}' % (
        _quoted(path.decode("utf-8", "surrogateescape")), mode, size, sha256,
        _attributes(attributes) if attributes else "",
    )


def encode_unread_file(path: bytes, mode: int, size: int) -> str:
    """Encode a file that was not read, likewise."""
    return '{"path": %s, "type": "file", "mode": "%04o", "size": %d}' % (
        _quoted(path.decode("utf-8", "surrogateescape")), mode, size
    )


def without_content(lines: bytes) -> bytes:
    """Remove digests and attributes from lines of a record: in a JSON text a quote never follows a blank."""
    return _CONTENT.sub(b"", lines)


def single_run(entry: Entry, line: bytes) -> Run:
    """Make a run of one entry."""
    files, directories, symlinks = (int(kind == entry.kind) for kind in (FILE, DIRECTORY, SYMLINK))
    others = 1 - files - directories - symlinks
    return Run(line + b"\n", files, directories, symlinks, others, entry.size or 0)


def decode_entry(line: bytes) -> Entry:
    """Decode the entry of a line; ValueError: the line is none."""
    try:
        fields = json.loads(line.decode("ascii"))
        mode, target, attributes = fields.get("mode"), fields.get("target"), fields.get("attributes")
        return Entry(
            as_bytes(fields["path"]), fields["type"], None if mode is None else int(mode, 8), fields.get("size"),
            fields.get("sha256"), None if target is None else as_bytes(target),
            dict(attributes) if attributes else None,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("not an entry: %r" % line[:80]) from error
