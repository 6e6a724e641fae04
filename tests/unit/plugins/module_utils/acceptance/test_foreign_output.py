# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What another account has in the place of its output."""

from __future__ import annotations

import os

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import foreign_output


@pytest.fixture()
def copied(tmp_path):
    """Copy a file as it is copied with sudo before it: whether that went well, and the copy."""

    def copy(path):
        with open(tmp_path / "copy", "wb") as target:
            whole = foreign_output.copy_printed(["/bin/cat", "--", str(path)], target)
        return whole, (tmp_path / "copy").read_bytes()

    return copy


def test_a_file_is_copied_whole(copied, tmp_path):
    (tmp_path / "output").write_bytes(b"x" * 300000)
    assert copied(tmp_path / "output") == (True, b"x" * 300000)


def test_one_that_cannot_be_read_is_none(copied, tmp_path):
    assert copied(tmp_path / "absent") == (False, b"")


def test_a_device_without_an_end_fills_nothing(copied, tmp_path, monkeypatch):
    monkeypatch.setattr(foreign_output, "MOST_BYTES", 1 << 20)
    (tmp_path / "output").symlink_to("/dev/zero")
    whole, content = copied(tmp_path / "output")
    assert not whole and len(content) <= (1 << 20) + (1 << 16)


def test_a_named_pipe_that_nobody_writes_to_is_not_waited_for(copied, tmp_path, monkeypatch):
    monkeypatch.setattr(foreign_output, "SECONDS", 0.5)
    os.mkfifo(tmp_path / "output")
    assert copied(tmp_path / "output") == (False, b"")
