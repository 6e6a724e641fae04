# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Entries of a manifest as lines."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import manifest_entry


def test_every_entry_survives_writing_and_reading():
    for entry in (
        manifest_entry.Entry(b"a\xff\n", "file", 0o4755, 12, "ab" * 32),
        manifest_entry.Entry(b".", "directory", 0o2755),
        manifest_entry.Entry(b"l", "symlink", target=b"\x80\\"),
    ):
        line = manifest_entry.encode_entry(entry)
        assert manifest_entry.decode_entry(line) == entry
        if entry.kind == "file":
            assert manifest_entry.encode_file(entry.path, *entry[2:5]).encode("ascii") == line
        assert line.isascii() and b"\n" not in line


@pytest.mark.parametrize("line", [b"{}", b"[]", b"", b'{"path": 1, "type": "file"}', b'{"path": "a"}'])
def test_what_is_no_entry_is_an_error(line):
    with pytest.raises(ValueError):
        manifest_entry.decode_entry(line)


def test_a_file_that_was_not_read_is_written_without_a_digest():
    line = manifest_entry.encode_file(b"a, \"sha256\"", 0o644, 3, "ab" * 32)
    bare = manifest_entry.encode_unread_file(b"a, \"sha256\"", 0o644, 3)
    assert manifest_entry.without_content(line.encode("ascii")).decode("ascii") == bare
