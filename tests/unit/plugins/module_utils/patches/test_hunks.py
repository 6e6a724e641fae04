# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Hunks in memory: exact context, the places of GNU patch, bounded offsets. The differential tests use the real one."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.hunks import FileLines, Misfit, reverse_hunks
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.hunks import apply_hunks as apply_to
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.parser import Hunk, parse_patch, split_lines

FILE = split_lines(b"".join(b"l%d\n" % number for number in range(1, 21)))
FAR = 1000


class Applied:
    def __init__(self, applied):
        self.lines, self.offsets = split_lines(applied.content), applied.offsets

    def __iter__(self):
        return iter((self.lines, self.offsets))


def apply_hunks(lines, hunks, max_offset, pinned=None):
    return Applied(apply_to(FileLines(b"".join(lines)), hunks, max_offset, pinned))


def hunks(text):
    (section,) = parse_patch(b"--- a/f\n+++ b/f\n" + text, b"x.patch").files
    return section.hunks


CHANGE = hunks(b"@@ -9,3 +9,3 @@\n l9\n-l10\n+ten\n l11\n")


def test_a_hunk_replaces_exactly_its_lines():
    lines, offsets = apply_hunks(FILE, CHANGE, 0)
    assert lines == [*FILE[:9], b"ten\n", *FILE[10:]]
    assert offsets == (0,)


def test_offsets_are_counted_from_the_header_and_carried_to_the_next_hunk():
    both = CHANGE + hunks(b"@@ -15,3 +15,3 @@\n l15\n-l16\n+sixteen\n l17\n")
    moved = [b"x\n", b"y\n", *FILE]
    assert apply_hunks(moved, both, 2).offsets == (2, 2)
    with pytest.raises(Misfit) as caught:
        apply_hunks(moved, both, 1)
    assert (caught.value.hunk, caught.value.offset) == (1, 2)
    assert caught.value.reason == "it fits 2 lines further down, and max_offset allows 1"
    with pytest.raises(Misfit, match="it fits 1 line further up, and max_offset allows 0"):
        apply_hunks(FILE[1:], CHANGE, 0)


def test_of_two_places_equally_near_the_later_one_is_taken():
    twice = hunks(b"@@ -10,3 +10,3 @@\n a\n-b\n+c\n a\n")
    lines = [b"f%d\n" % number for number in range(20)]
    lines[6:9] = lines[12:15] = [b"a\n", b"b\n", b"a\n"]
    assert apply_hunks(lines, twice, FAR).offsets == (3,)
    lines[12] = b"other\n"
    assert apply_hunks(lines, twice, FAR).offsets == (-3,)


@pytest.mark.parametrize("change", [
    lambda lines: [*lines[:8], b"drift\n", *lines[9:]],
    lambda lines: [*lines[:10], b"drift\n", *lines[11:]],
    lambda lines: [line.replace(b"\n", b"\r\n") for line in lines],
    lambda lines: [b" " + line for line in lines],
])
def test_context_is_exact_whatever_the_offset(change):
    with pytest.raises(Misfit):
        apply_hunks(change(list(FILE)), CHANGE, FAR)


def test_less_context_before_than_after_ties_a_hunk_to_the_first_line():
    first = hunks(b"@@ -1,2 +1,3 @@\n+zero\n l1\n l2\n")
    assert apply_hunks(FILE, first, 0).lines[0] == b"zero\n"
    with pytest.raises(Misfit):
        apply_hunks([b"x\n", *FILE], first, FAR)


def test_less_context_after_than_before_ties_a_hunk_to_the_last_line():
    last = hunks(b"@@ -19,2 +19,3 @@\n l19\n l20\n+end\n")
    assert apply_hunks(FILE, last, 0).lines[-1] == b"end\n"
    assert apply_hunks([b"x\n", *FILE], last, 1).offsets == (1,)
    with pytest.raises(Misfit, match="tied to the begin or end"):
        apply_hunks([*FILE, b"x\n"], last, FAR)


def test_a_missing_newline_is_part_of_the_line():
    grow = hunks(b"@@ -1 +1,2 @@\n-x\n\\ No newline at end of file\n+x\n+y\n")
    assert apply_hunks([b"x"], grow, 0).lines == [b"x\n", b"y\n"]
    with pytest.raises(Misfit, match=r"line 1 of the file is 'x' where the patch expects 'x' without a newline"):
        apply_hunks([b"x\n"], grow, 0)
    shrink = hunks(b"@@ -1 +1 @@\n-x\n+y\n\\ No newline at end of file\n")
    with pytest.raises(Misfit, match="without a newline inside the file"):
        apply_hunks([b"x\n", b"z\n"], shrink, 0)


def test_an_insertion_without_context_stays_inside_the_file():
    insert = hunks(b"@@ -3,0 +4 @@\n+x\n")
    assert apply_hunks(FILE, insert, 0).lines[3] == b"x\n"
    with pytest.raises(Misfit, match="inserts at line 4 of a file with 2 lines"):
        apply_hunks(FILE[:2], insert, 0)


def test_hunks_that_overlap_are_refused():
    again = (*CHANGE, CHANGE[0]._replace(old=(b"l9\n", b"l10\n", b"l11\n"), new=(b"l9\n", b"10\n", b"l11\n")))
    with pytest.raises(Misfit) as caught:
        apply_hunks(FILE, again, FAR)
    assert caught.value.hunk == 2


def test_a_hunk_that_changes_the_context_of_the_one_before_is_refused_for_it_could_not_be_undone():
    inside = hunks(b"@@ -11 +11 @@\n-l11\n+eleven\n")
    with pytest.raises(Misfit, match="it changes the context of the hunk before it"):
        apply_hunks(FILE, CHANGE + inside, FAR)
    behind = CHANGE + hunks(b"@@ -12 +12 @@\n-l12\n+twelve\n")
    applied = apply_hunks(FILE, behind, 0)
    assert apply_hunks(applied.lines, reverse_hunks(behind), 0).lines == FILE


def test_the_message_shows_the_first_line_that_differs_or_is_not_there():
    with pytest.raises(Misfit, match="line 9 of the file is expected to be 'l9', and the file has 3 lines"):
        apply_hunks(FILE[:3], CHANGE, 0)
    long = [b"%s\n" % (b"y" * 200)] * 20
    with pytest.raises(Misfit) as caught:
        apply_hunks(long, CHANGE, 0)
    assert "'%s...'" % ("y" * 80) in caught.value.reason


def test_pinned_offsets_are_used_without_a_search_and_without_a_limit():
    lines = FILE * 2
    assert apply_hunks(lines, CHANGE, 0).lines[9] == b"ten\n"
    pinned = apply_hunks(lines, CHANGE, 0, pinned=[20])
    assert pinned.lines[29] == b"ten\n" and pinned.lines[9] == b"l10\n"
    with pytest.raises(Misfit):
        apply_hunks(lines, CHANGE, FAR, pinned=[3])


def test_reversed_hunks_undo_whatever_the_header_says_about_the_new_side():
    many = hunks(b"@@ -2,3 +77,4 @@\n l2\n-l3\n+a\n+b\n l4\n@@ -9,3 +99,2 @@\n l9\n-l10\n l11\n@@ -15,0 +16 @@\n+new\n")
    applied = apply_hunks(FILE, many, 0)
    assert applied.offsets == (0, 0, 0)
    assert apply_hunks(applied.lines, reverse_hunks(many), 0).lines == FILE
    shifted = apply_hunks([b"x\n", *FILE], many, 1)
    assert apply_hunks(shifted.lines, reverse_hunks(many), 0, shifted.offsets).lines == [b"x\n", *FILE]


def test_a_hunk_far_away_is_found_in_a_large_file():
    lines = [b"same\n"] * 50000 + [b"l9\n", b"l10\n", b"l11\n"]
    assert apply_hunks(lines, CHANGE, 10**6).offsets == (50000 - 8,)
    with pytest.raises(Misfit):
        apply_hunks(lines, (Hunk(1, 9, (b"none\n",), (), 0, 0),), 10**6)
