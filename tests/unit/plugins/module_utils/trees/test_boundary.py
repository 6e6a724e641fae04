# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The safety boundary of a tree."""

from __future__ import annotations

import os
import pwd

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees.boundary import (
    home_directories,
    locate,
    open_parent,
)


@pytest.fixture()
def root(tmp_path):
    (tmp_path / "root" / "release" / "base").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    return tmp_path / "root"


def refusal(path, root, homes=()):
    with pytest.raises(StackError) as caught:
        locate(str(path), str(root), homes)
    assert caught.value.failed_step == "check the boundary"
    assert caught.value.remedy
    return caught.value.message


def test_a_tree_is_found_relative_to_its_root(root):
    real = os.path.realpath(str(root))
    assert locate(str(root / "release" / "base"), str(root), ()) == (real, "release/base")
    assert locate(str(root), str(root) + "/", ()) == (real, ".")


def test_a_link_above_the_tree_is_resolved_before_the_boundary_is_checked(root):
    (root / "alias").symlink_to("release")
    assert locate(str(root / "alias" / "base"), str(root), ())[1] == "release/base"
    (root / "way-out").symlink_to(root.parent)
    assert "lies outside" in refusal(root / "way-out" / "outside", root)


def test_a_tree_outside_its_root_is_refused(root):
    (root.parent / "root-2").mkdir()
    for path in (root.parent / "outside", root / ".." / "outside", root.parent / "root-2"):
        assert "lies outside" in refusal(path, root)


def test_a_tree_that_is_a_link_is_refused(root):
    (root / "latest").symlink_to("release")
    for name in ("latest", "latest/"):
        assert "symbolic link to release" in refusal(os.path.join(str(root), name), root)


def test_the_root_of_the_file_system_is_neither_tree_nor_boundary(root):
    assert "root of the file system" in refusal("/", "/")
    assert "root of the file system" in refusal(root, "/")


def test_a_home_directory_or_one_that_holds_a_home_is_no_tree(root):
    home = os.path.realpath(str(root / "release"))
    assert "is the home directory" in refusal(root / "release", root.parent, {home, "/"})
    assert "the path, holds the home directory" in refusal(root, root, {home})


def test_a_directory_that_holds_homes_is_no_boundary_and_a_home_is_one(root):
    home = os.path.realpath(str(root / "release"))
    assert locate(str(root / "release" / "base"), str(root / "release"), {home})[1] == "base"
    assert "the root, holds the home directory" in refusal(root / "release" / "base", root, {home})


def test_a_path_that_is_relative_missing_or_a_file_is_refused_by_name(root):
    assert "relative path" in refusal("release", root)
    assert "does not exist" in refusal(root / "nothing", root)
    (root / "file").write_text("")
    assert "is not a directory" in refusal(root / "file", root)


def test_this_accounts_home_is_known():
    home = pwd.getpwuid(os.geteuid()).pw_dir
    assert os.path.normpath(home) in home_directories(os.geteuid())


def test_a_directory_swapped_for_a_link_after_the_check_is_not_entered(root):
    real, relative = locate(str(root / "release" / "base"), str(root), ())
    (root / "release" / "base").rmdir()
    (root / "release").rmdir()
    (root / "release").symlink_to(root.parent / "outside")
    with pytest.raises(OSError), open_parent(real, relative):
        pass
