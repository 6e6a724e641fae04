# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Names and times in the header lines of diffs."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.header_paths import (
    BadName,
    display,
    git_name,
    is_epoch,
    parse_header_name,
    strip_path,
    unquote,
)


@pytest.mark.parametrize("rest, expected", [
    (b"a/x\t2024-01-02 03:04:05.000000000 +0100", (b"a/x", False)),
    (b"a/x y 2024-01-02 03:04:05", (b"a/x y", False)),
    (b"a/x y", (b"a/x y", None)),
    (b"/dev/null\t1970-01-01 00:00:00 +0000", (None, True)),
    (b'"a/\\303\\244\\n"\tThu Jan  1 00:00:00 1970', (b"a/\xc3\xa4\n", True)),
])
def test_a_name_ends_at_a_tab_or_before_a_time(rest, expected):
    assert parse_header_name(rest) == expected


@pytest.mark.parametrize("stamp, expected", [
    (b"1970-01-01 01:00:00 +0100", True), (b"1969-12-31 19:00:00.000 -0500", True), (b"1970-01-01 00:00:00.5", False),
    (b"1970-99-01 00:00:00", False), (b"", None), (b"yesterday", False),
])
def test_the_epoch_in_any_zone_means_no_file(stamp, expected):
    assert is_epoch(stamp) is expected


def test_both_halves_of_a_git_line_are_one_name():
    assert git_name(b"a/x y b/x y", 1) == b"a/x y"
    assert git_name(b'"a/\\t" "b/\\t"', 1) == b"a/\t"
    with pytest.raises(BadName, match="cannot tell"):
        git_name(b"a/x b/y", 1)


@pytest.mark.parametrize("text", [b'"open', b'"\\q"', b'"\\9"'])
def test_a_broken_quote_is_refused(text):
    with pytest.raises(BadName):
        unquote(text)


@pytest.mark.parametrize("name, problem", [
    (b"/etc/passwd", "absolute"), (b"a/../../x", "leads out"), (b"x", "no component left"),
    (b"a/.git/config", "is not"), (b"a/x/", "is not"), (b"a/\0", "NUL"),
])
def test_a_name_that_is_no_file_of_the_tree_is_refused(name, problem):
    with pytest.raises(BadName, match=problem):
        strip_path(name, 1)


def test_components_are_stripped_as_patch_strips_them():
    assert strip_path(b"a//b/./c", 1) == b"b/c"
    assert display(b"caf\xe9\n") == "caf\\xe9\\n"
