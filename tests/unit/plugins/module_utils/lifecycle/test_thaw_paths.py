# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Which paths a thaw is about, and which differences those explain."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import thaw_paths
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle.thaw_paths import Named

SITE = "base/lib/python3.12/site-packages"
FILE, TREE = Named(SITE + "/a/x.py", False), Named("base/share", True)


@pytest.mark.parametrize("path", ["a", "a/b", "a/b/"])
def test_a_path_is_relative_and_plain(path):
    assert thaw_paths.well_formed(path) == path.rstrip("/")


@pytest.mark.parametrize(
    "path", ["", "/a", ".", "..", "../a", "a/../b", "a//b", "./a", "a/.", ".torchstack", ".torchstack/x", "a\0"])
def test_other_paths_are_refused(path):
    with pytest.raises(StackError):
        thaw_paths.well_formed(path)


@pytest.mark.parametrize("path, expected", [
    (SITE + "/a/x.py", True),
    (SITE + "/a/__pycache__/x.cpython-312.pyc", True),
    (SITE + "/a/__pycache__", True),
    (SITE + "/a/__pycache__/xy.cpython-312.pyc", False),
    (SITE + "/a/__pycache__/x.txt", False),
    (SITE + "/a", False),
    (SITE + "/a/x.py.orig", False),
    (SITE + "/b/__pycache__/x.cpython-312.pyc", False),
    ("base/share", True),
    ("base/share/deep/y", True),
    ("base/shared", False),
    (".torchstack/sbom.spdx.json", True),
    (".torchstack/release.yml", False),
])
def test_a_difference_is_explained_by_what_is_named_and_its_bytecode_alone(path, expected):
    assert thaw_paths.explains([FILE, TREE], path) is expected


def test_a_path_in_a_named_directory_is_named_already():
    assert thaw_paths.together([Named("a/b", False), Named("a", True), Named("ab", False)]) == [
        Named("a", True), Named("ab", False)]


def test_the_directories_that_a_run_makes_writable_for_a_moment_are_known():
    assert thaw_paths.own_directories([FILE, TREE]) == [".torchstack", SITE + "/a", SITE + "/a/__pycache__"]
    assert thaw_paths.own_directories([Named("README", False)]) == [".", ".torchstack"]


@pytest.mark.parametrize("path, expected", [
    (SITE + "/x.py", True), ("overlay/site/x.py", True), ("nccl/lib64/python3/x.py", True), ("base/bin/x.py", False),
    ("site/x.py", False), (SITE + "/x.txt", False),
])
def test_the_python_files_that_a_freeze_compiles_are_compiled_again(path, expected):
    assert thaw_paths.is_compiled(path) is expected
