# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The records of acceptances, and whether one still answers."""

from __future__ import annotations

import json
import os
import pathlib

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import records
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError


def test_the_history_survives_a_line_that_a_crash_has_cut(tmp_path):
    files = records.Files.below(str(tmp_path), "r1")
    os.makedirs(files.state)
    files.add({"run": 1})
    with open(files.history, "ab") as stream:
        stream.write(b'{"run": 2, "cut')
    files.add({"run": 3})
    lines = pathlib.Path(files.history).read_text().splitlines()
    assert [json.loads(lines[0]), json.loads(lines[2])] == [{"run": 1}, {"run": 3}]
    assert files.last() == {"run": 3}


@pytest.mark.parametrize(("root", "release"), [
    ("relative", "r"), ("", "r"), ("/soft", "../x"), ("/soft", ""), ("/soft", ".x"),
])
def test_records_stay_below_the_root(root, release):
    with pytest.raises(StackError):
        records.Files.below(root, release)


def test_a_record_that_is_no_json_is_an_error_with_a_remedy(tmp_path):
    files = records.Files.below(str(tmp_path), "r1")
    os.makedirs(files.state)
    pathlib.Path(files.record).write_text("{")
    with pytest.raises(StackError) as caught:
        files.last()
    assert "acceptance.jsonl" in caught.value.remedy


def test_what_happens_on_a_partition_is_recorded_below_the_release_under_the_same_names(tmp_path):
    files = records.Files.below(str(tmp_path), "r1", partition="a100")
    assert files.record == str(tmp_path / ".torchstack/r1/partitions/a100/acceptance.json")
    assert (files.release, files.partition, files.title) == ("r1", "a100", "r1 on partition a100")
    with records.writing_records(files):
        files.add({"passed": True})
    assert files.last() == {"passed": True, "partition": "a100"}
    plain = records.Files.below(str(tmp_path), "r1")
    assert (plain.release, plain.partition, plain.title, plain.last()) == ("r1", "", "r1", None)
    with pytest.raises(StackError, match=r"'\.\./r2' is not the name of a partition"):
        records.Files.below(str(tmp_path), "r1", partition="../r2")
