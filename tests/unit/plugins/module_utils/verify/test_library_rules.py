# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Rules of a verification: what is refused, what matches, and what survives a move."""

from __future__ import annotations

import os
import re

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify.library_rules import (
    UNOPENED,
    as_record,
    literal_beginning,
    parse_rules,
    relocate,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify.rule_globs import Paths, path_glob, soname_glob

FULL = {
    "environment": {"LD_LIBRARY_PATH": "/r/nccl/lib:/r/base/lib", "PATH": "/bin"},
    "allow_missing": [{"name": "libcuda.so.1", "reason": "no driver"}],
    "preloaded": ["/r/torch/lib/libtorch.so"],
    "program": "/r/bin/python",
    "providers": [{"name": "libnccl.so*", "path": "/r/nccl/lib/*", "reason": None}],
    "require": [{"object": "**/libtorch_cuda.so", "needs": "libnccl.so.2", "reason": "the release's"}],
    "embedded": [{"pattern": r"NCCL version \d", "provider": "/r/nccl/**", "name": "NCCL"}],
    "allow_embedded": [{"name": "NCCL", "object": "/r/x.so", "reason": "its own"}],
    "forbid": [{"path": "**/stubs", "reason": "for linking"}],
    "plugins": [{"caller": "libnccl.so.2", "name": "libnccl-net.so"}],
    "exclude": ["src"],
}


def test_rules_are_the_same_after_they_were_recorded():
    record = as_record(parse_rules(FULL))
    assert as_record(parse_rules(record)) == record
    assert record["environment"] == {"LD_LIBRARY_PATH": "/r/nccl/lib:/r/base/lib"}
    assert as_record(parse_rules({})) == as_record(parse_rules(dict.fromkeys(FULL))) == {}


@pytest.mark.parametrize(("given", "endings", "recorded"), [
    ({}, UNOPENED, {}),
    ({"unopened": None}, UNOPENED, {}),
    ({"unopened": []}, (), {"unopened": []}),
    ({"unopened": [".x"]}, (".x",), {"unopened": [".x"]}),
])
def test_that_every_file_is_opened_is_recorded_like_other_rules(given, endings, recorded):
    rules = parse_rules(given)
    assert rules.unopened == endings
    assert as_record(rules) == recorded and parse_rules(recorded) == rules


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"provider": []}, "no rule 'provider'"),
        ({"allow_missing": [{"name": "libcuda.so.1"}]}, "has no reason"),
        ({"allow_missing": [{"name": "libcuda.so.1", "reason": "x", "why": "y"}]}, "is not right"),
        ({"allow_missing": "libcuda.so.1"}, "is not a list"),
        ({"providers": [{"name": "libnccl.so.2", "path": 3}]}, "or not a text"),
        ({"forbid": [{"path": "lib/stubs", "reason": "x"}]}, "can never match"),
        ({"embedded": [{"pattern": "(", "provider": "/r", "name": "x"}]}, "not a regular expression"),
        ({"embedded": [{"pattern": "x*", "provider": "/r", "name": "x"}]}, "matches nothing at all"),
        ({"allow_embedded": [{"name": "NCCL", "object": "**", "reason": "r"}]}, "nothing under embedded is called"),
        ({"preloaded": ["lib/libtorch.so"]}, "not an absolute path"),
        ({"preloaded": "/r/libtorch.so"}, "not a list of texts"),
        ({"program": "python"}, "not an absolute path"),
        ({"environment": ["LD_LIBRARY_PATH"]}, "not a mapping"),
        ({"unopened": ["so"]}, "not the ending of a name"),
        ({"unopened": ["."]}, "not the ending of a name"),
    ],
)
def test_a_wrong_rule_is_refused_and_named(change, words):
    with pytest.raises(StackError) as caught:
        parse_rules(change)
    assert words in caught.value.message
    assert caught.value.failed_step == "rules"
    assert caught.value.remedy


def test_a_soname_glob_means_the_whole_name():
    assert soname_glob("libnccl.so*").fullmatch("libnccl.so.2")
    assert not soname_glob("libnccl.so").fullmatch("libnccl.so.2")
    assert soname_glob("libstdc++.so.?").fullmatch("libstdc++.so.6")


def test_a_path_matches_as_it_is_and_where_it_leads(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "liba.so.1").write_bytes(b"")
    (tmp_path / "link").symlink_to("real")
    by_link = os.fsencode(str(tmp_path / "link" / "liba.so.1"))
    by_name = os.fsencode(str(tmp_path / "real" / "liba.so.1"))
    paths = Paths()
    for glob in (path_glob(str(tmp_path / "real" / "*")), path_glob(str(tmp_path / "link" / "*"))):
        assert paths.match(glob, by_link) and paths.match(glob, by_name)
    assert not paths.match(path_glob("/elsewhere/*"), by_link)
    assert paths.match(path_glob("**/liba.so.*"), by_link)


def test_a_forbidden_directory_forbids_what_lies_below_and_not_what_begins_alike():
    glob = path_glob("/opt/cuda/*/stubs", below=True)
    paths = Paths()
    for path in (b"/opt/cuda/lib64/stubs", b"/opt/cuda/lib64/stubs/", b"/opt/cuda/lib64/x/../stubs/libcuda.so"):
        assert paths.match(glob, path), path
    for path in (b"/opt/cuda/lib64/stubs-real/libcuda.so", b"/opt/cuda/stubs"):
        assert not paths.match(glob, path), path


def test_dots_in_a_path_are_taken_away_only_where_that_is_the_same_file(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a/b")
    (tmp_path / "a" / "lib.so").write_bytes(b"")
    top = os.fsencode(str(tmp_path))
    paths = Paths()
    assert paths.plain(top + b"/a/b/../lib.so") == top + b"/a/lib.so"
    assert paths.plain(top + b"/link/../lib.so") == top + b"/link/../lib.so"


@pytest.mark.parametrize(
    ("pattern", "literal"),
    [
        (r"NCCL version [0-9]+\.[0-9]+", b"NCCL version "), (r"a\.b", b"a.b"), (r"abc*", b"ab"), (r"abc{0,2}", b"ab"),
        (r"ab|cd", b""), (r"(?i)abc", b""), (r"\d+x", b""), (r"abc", b"abc"), (r"ab+", b"a"), (r"^ab", b""),
        (r"ab\x41", b"ab"),
    ],
)
def test_every_match_begins_with_the_literal_beginning(pattern, literal):
    assert literal_beginning(pattern) == literal
    assert re.compile(pattern.encode())


def test_a_directory_is_renamed_where_it_is_one_and_nowhere_else():
    rules = {"a": ["/r/2026/lib:/x:/r/2026", "/r/2026-old/lib", "see /r/2026"], "b": {"c": "/r/2026"}, "d": 1}
    moved = relocate(rules, "/r/2026", "{prefix}")
    assert moved == {
        "a": ["{prefix}/lib:/x:{prefix}", "/r/2026-old/lib", "see /r/2026"], "b": {"c": "{prefix}"}, "d": 1,
    }
    assert relocate(moved, "{prefix}", "/r/2026") == rules
