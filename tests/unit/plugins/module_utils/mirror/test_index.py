# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A mirror's list of itself."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror import index as mirror_record
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror.index import Item


def item(name, digit="0"):
    return Item("pip/%s-1.0.zip" % name, digit * 64, 10, "", name, "1.0")


def merged(tmp_path, release, *items, part="python"):
    before = mirror_record.read(str(tmp_path))
    after = mirror_record.merged(before, release, part, items, {}, mirror_record.noted_origins(str(tmp_path)))
    mirror_record.write(str(tmp_path), after)
    return after


def test_files_of_no_release_leave_the_list(tmp_path):
    merged(tmp_path, "one", item("a"), item("b"))
    merged(tmp_path, "two", item("b"), item("c"))
    after = merged(tmp_path, "one", item("a"), item("d"))
    assert sorted(after["files"]) == ["pip/%s-1.0.zip" % name for name in "abcd"]
    after = merged(tmp_path, "two", item("c"))
    assert sorted(after["files"]) == ["pip/%s-1.0.zip" % name for name in "acd"]
    after = merged(tmp_path, "one", item("d"), part="conda")
    assert after["releases"]["one"]["python"]["files"] == ["pip/a-1.0.zip", "pip/d-1.0.zip"]


def test_the_list_is_written_only_when_it_says_something_new(tmp_path):
    after = merged(tmp_path, "one", item("a"))
    assert mirror_record.write(str(tmp_path), after) is False
    assert mirror_record.write(str(tmp_path), merged(tmp_path, "one", item("a"), item("b"))) is False
    assert mirror_record.write(str(tmp_path), after) is True


def test_origins_outlive_a_run_that_was_killed_while_it_noted_one(tmp_path):
    mirror_record.note_origin(str(tmp_path), item("a")._replace(url="https://example.org/a"))
    with open(tmp_path / mirror_record.NOTES, "a") as stream:
        stream.write('["pip/b-1.0.zip", "00')
    assert merged(tmp_path, "one", item("a"))["files"]["pip/a-1.0.zip"]["origin"] == "https://example.org/a"
    (tmp_path / mirror_record.NOTES).unlink()
    assert merged(tmp_path, "one", item("a"))["files"]["pip/a-1.0.zip"]["origin"] == "https://example.org/a"
    assert merged(tmp_path, "one", item("a", "1"))["files"]["pip/a-1.0.zip"]["origin"] == ""


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 2}'])
def test_a_list_that_cannot_be_read_is_refused(tmp_path, text):
    (tmp_path / mirror_record.NAME).write_text(text)
    with pytest.raises(StackError, match=r"list of (the|a) mirror"):
        mirror_record.read(str(tmp_path))


@pytest.mark.parametrize("size, words", [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (191794682, "191.8 MB"),
                                         (4 * 10**12, "4000.0 GB")])
def test_sizes_are_in_words(size, words):
    assert mirror_record.in_words(size) == words
