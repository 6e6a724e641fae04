# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.json_record import read_record, write_in_place


def test_a_damaged_record_is_an_error_with_its_name(tmp_path):
    path = tmp_path / "job.json"
    assert read_record(str(path)) is None
    for content in (b"", b"{", b"[]", b"{}", b"\xff"):
        path.write_bytes(content)
        with pytest.raises(StackError) as caught:
            read_record(str(path))
        assert caught.value.path == str(path)


def test_a_heartbeat_replaces_the_record_as_a_whole(tmp_path):
    path = tmp_path / "job.json"
    write_in_place(str(path), {"a": 1})
    write_in_place(str(path), {"b": 2})
    assert read_record(str(path)) == {"b": 2}
    assert [entry.name for entry in tmp_path.iterdir()] == ["job.json"]
