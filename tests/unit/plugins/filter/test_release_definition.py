# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The digests of a release's series, and what differs between two releases."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.hpcml.torchstack.plugins.filter.release_definition import changed_keys, series_digests

PATCH = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+%s\n"


@pytest.fixture()
def roles(tmp_path):
    series = tmp_path / "horovod" / "files" / "series" / "0.28.1"
    series.mkdir(parents=True)
    (series / "0001-first.patch").write_text(PATCH % "b")
    return tmp_path


def test_a_changed_patch_changes_the_digest_of_its_component(roles):
    definition = {"release": "r", "horovod": {"series": "0.28.1"}, "mpi4py": {"version": "4"}}
    before = series_digests(definition, str(roles))
    (roles / "horovod" / "files" / "series" / "0.28.1" / "0001-first.patch").write_text(PATCH % "c")
    after = series_digests(definition, str(roles))
    assert list(before) == list(after) == ["horovod"]
    assert before != after


def test_a_series_that_is_not_there_is_named(roles):
    with pytest.raises(AnsibleFilterError, match=r"files/series/9\.9"):
        series_digests({"horovod": {"series": "9.9"}}, str(roles))


@pytest.mark.parametrize(
    "before, after, expected",
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1, "site": "x"}, {"a": 1}, []),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, ["a.b"]),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, ["a.c"]),
        ({"a": {}}, {"a": {"b": None}}, ["a.b"]),
        ({"a": [1, 2]}, {"a": [2, 1]}, ["a"]),
        ({"a": {"b": 1}}, {"a": 3}, ["a"]),
    ],
)
def test_what_changed_is_named_by_its_path(before, after, expected):
    assert changed_keys(before, after) == expected
