# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A lock may lie in a file beside the release file, and is the same there."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import release_file

PINNED = "numpy==2.4.6 \\\n    --hash=sha256:%s\n" % ("0" * 64)
INLINE = "release: a\nlocks:\n  base: |\n    %s  tools: ''\n" % PINNED.replace("\n    ", "\n        ")


@pytest.fixture()
def place(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "base.txt").write_text(PINNED)
    return tmp_path / "a.yml"


def test_a_file_says_the_same_as_the_text_in_the_release_file(place):
    place.write_text(INLINE)
    inline = release_file.read(place)
    place.write_text("release: a\nlocks:\n  base: a/base.txt  # why\n  tools: ''\n")
    read = release_file.read(place)
    assert read.content == inline.content
    assert read.places.files == {"locks.base": "a/base.txt"} and inline.places.files == {}


def test_locks_of_packages_and_of_conda_may_be_files_too(place):
    place.write_text(
        "base: {lock: a/base.txt}\npackages:\n  - {name: x, lock: a/base.txt, requires: a/base.txt}\n  - {name: y}\n")
    read = release_file.read(place)
    assert read.content["base"]["lock"] == read.content["packages"][0]["requires"] == PINNED
    assert sorted(read.places.files) == ["base.lock", "packages[0].lock", "packages[0].requires"]


@pytest.mark.parametrize(("named", "said"), [
    ("a/nothing.txt", r"a.yml names the lock a/nothing.txt in line 2, and .* cannot be read: No such file"),
    ("a", r""),
    ("../a/base.txt", r"names the lock ../a/base.txt in line 2, which has to lie beside it"),
    ("/etc/passwd.txt", r"names the lock /etc/passwd.txt in line 2, which has to lie beside it"),
    ("a/latin.txt", r"names the lock a/latin.txt in line 2, and .* is not UTF-8"),
    ("a/empty.txt", r"names the lock a/empty.txt in line 2, and .* is empty; have it back from version control"),
])
def test_a_file_that_cannot_be_taken_is_one_sentence(place, named, said):
    (place.parent / "a" / "latin.txt").write_bytes(b"\xff")
    (place.parent / "a" / "empty.txt").write_text("\n")
    place.write_text("locks:\n  base: %s\n" % named)
    if not said:
        assert release_file.read(place).content == {"locks": {"base": named}}
        return
    with pytest.raises(ValueError, match=said):
        release_file.read(place)
