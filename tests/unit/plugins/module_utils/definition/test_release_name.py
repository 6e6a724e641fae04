# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import datetime

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import base, release_file, release_name
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import release_file as files

KEYS = files.specified()["release_file"]["options"]


@pytest.mark.parametrize("name, says", [
    ("modulefiles", "where a root has modulefiles"), ("images", "where a root has the copies of images"),
    ("tools", "where a root has build tools"), ("publish.lock.json", "where a root has the lock of the root"),
    ("a" * 300, "has 300 characters; give it a name of at most 64"),
])
def test_a_release_has_no_name_of_a_part_of_the_root_and_none_that_is_too_long(name, says):
    (found,) = release_name.problems({"release": name}, "a.yml")
    assert found.startswith("'release' in a.yml ") and says in found
    assert found in release_file.problems({"release": name, "title": "x"}, KEYS, "a.yml")


@pytest.mark.parametrize("content", [{"release": "2026-11-20"}, {"release": ["x"]}, {}, [], None])
def test_other_names_are_left_to_the_schema(content):
    assert release_name.problems(content) == []


@pytest.mark.parametrize("value, kind", [
    (b"\xff", "binary data"), ({"a"}, "a set"), (datetime.date(2026, 11, 20), "date"),
])
def test_what_no_record_can_hold_is_refused_by_its_place(value, kind):
    assert release_name.unwritable({"packages": [{"environment": {"A": value}}]}, "a.yml") == [
        "'packages[0].environment.A' in a.yml is %s, which no record can hold; write it as text." % kind]


def test_a_base_of_a_kind_that_is_no_text_is_left_to_the_schema():
    assert base.problems({"base": {"kind": [[]]}}) == []
    assert release_file.problems({"release": "r", "base": {"kind": [[]]}}, KEYS)
