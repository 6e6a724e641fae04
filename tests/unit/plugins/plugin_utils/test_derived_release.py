# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A release file may say only what differs from another one, and is the same as one that says it all."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import release_file

ONE = """\
release: one
pytorch:
  version: "2.1"
  cpu: {index: https://example.org}
  environment: {A: "1", B: "2"}
packages:
  - {name: x}
  - {name: y}
"""


@pytest.fixture()
def two(tmp_path):
    (tmp_path / "one.yml").write_text(ONE)
    return tmp_path / "two.yml"


def test_mappings_are_merged_lists_replaced_and_null_removes(two):
    two.write_text(
        "extends: one\nrelease: two\npytorch:\n  cpu: null\n  environment: {B: '3', C: '4'}\npackages: [{name: z}]\n")
    read = release_file.read(two)
    assert read.content == {
        "release": "two", "packages": [{"name": "z"}],
        "pytorch": {"version": "2.1", "environment": {"A": "1", "B": "3", "C": "4"}}}
    assert read.inherited == {"pytorch.version", "pytorch.environment.A"}
    assert read.places.lines["pytorch.version"] == 1 and read.places.lines["pytorch.environment.B"] == 5


def test_without_a_name_of_its_own_it_has_that_of_the_other(two):
    two.write_text("extends: one\n")
    assert release_file.read(two).content["release"] == "one"


@pytest.mark.parametrize(("text", "said"), [
    ("extends: three\n", r"two.yml extends three in line 1, and beside it are only: one, two\."),
    ("a: 1\nextends: 1\n", r"two.yml extends 1 in line 2, and beside it are only: one, two\."),
    ("extends: ../two\n", r"extends ../two in line 1, and beside it are only"),
    ("extends: two\n", r"two.yml extends two in line 1, which is itself\."),
    ("extends: one\nmpi: null\n", r"two.yml removes 'mpi' in line 2, which one does not have\."),
    ("extends: one\npytorch:\n  envirnoment:\n    A: null\n", r"removes 'pytorch.envirnoment.A' in line 4, which one"),
    ("extends: one\nextends: one\n", r"mistake in line 2, column 1: the key 'extends' is there twice"),
])
def test_what_cannot_be_extended_is_one_sentence(two, text, said):
    two.write_text(text)
    with pytest.raises(ValueError, match=said):
        release_file.read(two)


def test_it_is_one_level(two):
    two.write_text("extends: one\nrelease: two\n")
    three = two.with_name("three.yml")
    three.write_text("extends: two\nrelease: three\n")
    with pytest.raises(ValueError, match=r"three.yml extends two in line 1, which extends one itself: name that one"):
        release_file.read(three)


def test_a_mistake_in_the_other_file_is_told_with_its_place(two):
    two.with_name("one.yml").write_text("a: 1\na: 2\n")
    two.write_text("extends: one\n")
    with pytest.raises(ValueError, match=r"one.yml has a mistake in line 2"):
        release_file.read(two)
