# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A release file becomes short by a command, and says the same afterwards."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import release_file
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.locking import cli, facts

HEAD = """\
---
# yaml-language-server: $schema=../docs/release-file.schema.json
# What it is for.
"""
TEXT = HEAD + """\
release: one
title: One
pytorch: {version: "2.1"}
# Rules of the site.
verification:  # why
  libraries: &l {}
  imports: *l

# Further packages.
# In this order.
packages:
  - {name: x}
locks: {tools: ""}  # last
"""


@pytest.fixture()
def one(tmp_path):
    path = tmp_path / "one.yml"
    path.write_text(TEXT)
    return path


def test_keys_go_with_their_comments_into_files_and_nothing_else_changes(one, capsys):
    before = release_file.read(one).content
    assert cli.main([str(one), "--part", "verification", "--part", "packages"]) == 0
    assert one.read_text() == HEAD + """\
release: one
title: One
parts: [one/verification.yml, one/packages.yml]
pytorch: {version: "2.1"}
locks: {tools: ""}  # last
"""
    head = "---\n# yaml-language-server: $schema=../../docs/release-file-part.schema.json\n"
    part = (one.parent / "one" / "verification.yml").read_text()
    assert part == head + "# Rules of the site.\nverification:  # why\n  libraries: &l {}\n  imports: *l\n\n"
    assert (one.parent / "one" / "packages.yml").read_text() == (
        head + "# Further packages.\n# In this order.\npackages:\n  - {name: x}\n")
    assert release_file.read(one).content == before
    assert "one.yml: 8 lines instead of 16, and one/verification.yml, one/packages.yml." in capsys.readouterr().out


def test_several_keys_may_be_in_one_file_and_more_may_follow(one):
    before = release_file.read(one).content
    assert cli.main([str(one), "--part", "packages", "--to", "parts/all.yml"]) == 0
    assert cli.main([str(one), "--part", "verification", "--part", "pytorch", "--to", "parts/all.yml"]) == 0
    assert "parts: [parts/all.yml]\n" in one.read_text() and release_file.read(one).content == before
    assert [key for key in release_file.read(one).places.parts] == ["packages", "verification", "pytorch"]


def test_with_check_nothing_is_written(one):
    assert cli.main([str(one), "--part", "packages", "--check"]) == 1
    assert one.read_text() == TEXT and not (one.parent / "one").exists()


@pytest.mark.parametrize(("words", "said"), [
    (["--part", "pakages"], "'pakages' is none of the keys that can be moved, did you mean 'packages'; there are "),
    (["--part", "release"], "'release' is none of the keys that can be moved"),
    (["--part", "packages", "--to", "rules.yml"], "The part rules.yml, which has to be a file NAME.yml in a directory"),
    (["--part", "packages", "--to", "there/x.yml"], "there/x.yml is there already, and is no part of"),
    (["--to", "x/y.yml"], "--to says where --part moves a key; add --part KEY."),
])
def test_what_cannot_be_moved_is_one_sentence_and_nothing_changes(one, capsys, words, said):
    (one.parent / "there").mkdir()
    (one.parent / "there" / "x.yml").write_text("a: 1\n")
    assert cli.main([str(one), *words]) == 2
    assert said in capsys.readouterr().err and one.read_text() == TEXT
    assert (one.parent / "there" / "x.yml").read_text() == "a: 1\n"


def test_a_key_that_shares_an_anchor_with_another_one_stays(one, capsys):
    one.write_text("release: one\na: &a {b: 1}\nc: *a\n")
    assert cli.main([str(one), "--part", "c"]) == 2
    assert "'c' cannot stand in a file of its own (found undefined alias" in capsys.readouterr().err


def test_locks_in_a_part_are_moved_into_files_too(one, capsys):
    assert cli.main([str(one), "--part", "locks"]) == 0
    part = one.parent / "one" / "locks.yml"
    part.write_text("locks:\n  base: |\n    six==1.0 --hash=sha256:%s\n" % ("a" * 64))
    before = release_file.read(one).content
    assert cli.main([str(one), "--split"]) == 0
    assert part.read_text() == "locks:\n  base: one/base.txt\n"
    assert release_file.read(one).content == before
    assert cli.main([str(one), "--split"]) == 0
    assert "one.yml has no lock in itself." in capsys.readouterr().out


def test_what_is_looked_up_is_written_into_the_file_that_has_it(one, capsys):
    one.write_text("release: one\nparts: [one/nccl.yml]\nmpi4py:\n  version: '1'\n")
    part = one.parent / "one" / "nccl.yml"
    part.parent.mkdir()
    part.write_text("nccl:\n  repository: r\n  tag: v1  # why\n")
    release = cli.read(one)
    found = {asked.path: (asked, "%040d" % number) for number, asked in enumerate(facts.wanted(release.content))}
    assert cli._tell_and_write(release, {}, {}, list(found.values()), check=False) == 0
    assert part.read_text() == "nccl:\n  repository: r\n  tag: v1  # why\n  commit: %s\n" % found["nccl.commit"][1]
    assert one.read_text().endswith("mpi4py:\n  version: '1'\n  sha256: %s\n" % found["mpi4py.sha256"][1])
    assert "and 2 values of one/nccl.yml, one.yml." in capsys.readouterr().out
