# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What comes to the verified bytes of a modulefile, and how it is read back."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles import visible_text as subject
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.layout import SYNTAXES

VERIFIED = b"#%Module1.0\nverified\n"
ODD = 'goes "soon" \\ {now} [exec x] $HOME -- ]] # ä \u2028 %s'


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_nothing_added_is_the_verified_bytes(syntax):
    assert subject.visible_bytes(syntax, VERIFIED, subject.Added()) == VERIFIED
    assert subject.read_added(VERIFIED) == subject.read_added(None) == subject.Added()


@pytest.mark.parametrize("syntax", SYNTAXES)
@pytest.mark.parametrize("added", [
    subject.Added("goes"), subject.Added("", ("one", "two")), subject.Added(ODD, (ODD,)),
])
def test_what_is_added_stands_behind_the_verified_bytes_and_is_read_back(syntax, added):
    content = subject.visible_bytes(syntax, VERIFIED, added)
    assert content.startswith(VERIFIED) and subject.read_added(content) == added
    assert subject.visible_bytes(syntax, VERIFIED, subject.read_added(content)) == content


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_a_tombstone_stands_before_the_verified_bytes(syntax):
    added = subject.Added(ODD, (), True)
    content = subject.visible_bytes(syntax, VERIFIED, added)
    assert content.endswith(VERIFIED) and content != VERIFIED and subject.read_added(content) == added
    assert syntax == "lmod" or content.startswith(b"#%Module1.0\n")


@pytest.mark.parametrize("text", [
    b"# torchstack: {}\n", b"# torchstack: {broken}\n", b"# torchstack: {\"notice\": 1}\n", b"x # torchstack: {}\n",
    b"\xff\xfe",
])
def test_what_only_looks_like_ours_is_nothing(text):
    assert subject.read_added(text) == subject.Added()


def test_a_sentence_is_one_line():
    assert subject.one_line(" a\n  b\tc ") == "a b c"


def test_a_notice_makes_no_terminal_do_anything():
    assert subject.one_line("It \x1b[2Jgoes\x1b]52;c;ZXZpbA==\x07 on \x9b1mMonday\u202e.") == "It goes on Monday."
