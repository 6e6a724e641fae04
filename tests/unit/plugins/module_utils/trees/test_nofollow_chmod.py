# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Change modes in every way that a machine may have, and follow no link."""

from __future__ import annotations

import os
import stat

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import nofollow_chmod
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees.dir_handles import OPEN_DIRECTORY

WAYS = {
    "chosen": nofollow_chmod.choose_chmod(),
    "direct": nofollow_chmod._chmod_direct(),
    "library": nofollow_chmod._chmod_library,
    "by hand": nofollow_chmod._chmod_by_hand,
}


@pytest.fixture(params=sorted(WAYS))
def chmod(request):
    if WAYS[request.param] is None:
        pytest.skip("this kernel has no fchmodat2")
    return WAYS[request.param]


@pytest.fixture()
def top(tmp_path):
    descriptor = os.open(str(tmp_path), OPEN_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def mode(path):
    return stat.S_IMODE(os.lstat(str(path)).st_mode)


def test_every_way_to_change_a_mode_changes_it(chmod, tmp_path, top):
    (tmp_path / "file").write_text("")
    os.mkfifo(str(tmp_path / "pipe"))
    (tmp_path / "with space \n").mkdir()
    for name, bits in (("file", 0o400), ("pipe", 0o444), ("with space \n", 0o2555)):
        chmod(top, name, bits)
        assert mode(tmp_path / name) == bits


def test_no_way_to_change_a_mode_follows_a_link(chmod, tmp_path, top):
    (tmp_path / "file").write_text("")
    (tmp_path / "file").chmod(0o644)
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(OSError):
        chmod(top, "link", 0o400)
    assert mode(tmp_path / "file") == 0o644


def test_every_way_to_change_a_mode_says_when_the_name_is_gone(chmod, top):
    with pytest.raises(FileNotFoundError):
        chmod(top, "nothing", 0o400)


def test_a_file_that_its_owner_cannot_read_can_be_changed(chmod, tmp_path, top):
    (tmp_path / "file").write_text("")
    (tmp_path / "file").chmod(0)
    chmod(top, "file", 0o444)
    assert mode(tmp_path / "file") == 0o444


def test_an_older_system_falls_back_to_what_it_has(monkeypatch):
    monkeypatch.setattr(nofollow_chmod, "_chmod_direct", lambda: None)
    assert nofollow_chmod.choose_chmod() in (nofollow_chmod._chmod_library, nofollow_chmod._chmod_by_hand)

    def without(*_arguments, **_options):
        raise NotImplementedError("chmod: follow_symlinks unavailable on this platform")

    monkeypatch.setattr(nofollow_chmod.os, "chmod", without)
    assert nofollow_chmod.choose_chmod() is nofollow_chmod._chmod_by_hand
