# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Globs over paths and sonames, with links taken both ways."""

from __future__ import annotations

import os

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify.rule_globs import (
    Paths,
    PathsElsewhere,
    path_glob,
    rule_path_glob,
    soname_glob,
)


def test_a_glob_means_a_path_and_where_it_leads(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "liba.so").write_text("")
    (tmp_path / "link").symlink_to("real")
    paths, path = Paths(), os.fsencode(str(tmp_path / "link" / ".." / "real" / "liba.so"))
    for name in ("real", "link"):
        assert paths.match(path_glob("%s/*.so" % (tmp_path / name)), path)
    assert not paths.match(path_glob("%s/other/*" % tmp_path), path)


def test_what_lies_below_is_meant_only_where_that_is_said():
    paths = PathsElsewhere()
    assert paths.match(path_glob("/opt/a", below=True), b"/opt/a/lib/../lib/x.so")
    assert not paths.match(path_glob("/opt/a"), b"/opt/a/lib/x.so")


def test_links_of_this_machine_say_nothing_of_a_path_elsewhere(tmp_path):
    (tmp_path / "link").symlink_to("real")
    path = os.fsencode(str(tmp_path / "link"))
    assert PathsElsewhere().real(path) == path and Paths().real(path) != path


def test_a_relative_path_in_a_rule_is_refused():
    with pytest.raises(StackError, match="can never match"):
        rule_path_glob("forbid", "lib/x.so")
    glob = soname_glob("libmpi.so.*")
    assert glob.fullmatch("libmpi.so.12") and not glob.fullmatch("libmpi.so")
