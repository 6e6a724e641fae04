# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Patch files as data: what is understood, and what is refused with its line.

Covers diff_model and hunk_parser, too.
"""

from __future__ import annotations

import hashlib

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.diff_model import blob_id, split_lines
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.parser import parse_patch
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.series import reconcile_names

NOW = b"\t2024-01-01 00:00:00.5 +0000"
EPOCH = b"\t1970-01-01 00:00:00.000000000 +0000"
PLAIN = b"--- a/f.c\n+++ b/f.c\n@@ -1,2 +1,2 @@\n-old\n+new\n same\n"


def parse(text, strip=1):
    return parse_patch(text, b"x.patch", strip)


def only(text, strip=1):
    (section,) = parse(text, strip).files
    return section


def test_a_plain_diff_is_a_modification_with_exact_lines():
    patch = parse(b"Some words.\n\n" + PLAIN)
    (section,) = patch.files
    (hunk,) = section.hunks
    assert (section.kind, section.old, section.new, section.line) == ("modify", b"f.c", b"f.c", 3)
    assert (hunk.line, hunk.first, hunk.prefix, hunk.suffix) == (5, 1, 0, 1)
    assert (hunk.old, hunk.new) == ((b"old\n", b"same\n"), (b"new\n", b"same\n"))
    assert patch.sha256 == hashlib.sha256(b"Some words.\n\n" + PLAIN).hexdigest()


def test_format_patch_mail_with_signature_and_several_files():
    text = (
        b"From 1234 Mon Sep 17 00:00:00 2001\nSubject: x\n\n---\n f.c | 2 +-\n 1 file changed\n\n"
        b"diff --git a/f.c b/f.c\nindex 0358b15c117..65ef4d6a0a0 100644\n" + PLAIN
        + b"diff --git a/g.c b/g.c\nindex 1111111..2222222 100755\n" + PLAIN.replace(b"f.c", b"g.c")
        + b"-- \n2.39.5\n\n"
    )
    first, second = parse(text).files
    assert (first.old_id, first.new_id) == ("0358b15c117", "65ef4d6a0a0")
    assert (second.new, second.old_id, second.mode_change) == (b"g.c", "1111111", False)


@pytest.mark.parametrize("text, kind, path", [
    (b"--- /dev/null\n+++ b/new dir/n\n@@ -0,0 +1 @@\n+x\n", "create", b"new dir/n"),
    (b"--- a/n" + EPOCH + b"\n+++ b/n" + NOW + b"\n@@ -0,0 +1 @@\n+x\n", "create", b"n"),
    (b"--- a/n\t1970-01-01 01:00:00.0 +0100\n+++ b/n" + NOW + b"\n@@ -0,0 +1 @@\n+x\n", "create", b"n"),
    (b"--- a/n\n+++ b/n\n@@ -0,0 +1 @@\n+x\n", "create", b"n"),
    (b"--- a/n" + NOW + b"\n+++ b/n" + NOW + b"\n@@ -0,0 +1 @@\n+x\n", "modify", b"n"),
    (b"--- a/n" + NOW + b"\n+++ /dev/null" + EPOCH + b"\n@@ -1 +0,0 @@\n-x\n", "delete", b"n"),
    (b"--- a/n" + NOW + b"\n+++ b/n" + EPOCH + b"\n@@ -1 +0,0 @@\n-x\n", "delete", b"n"),
    (b"--- a/n" + NOW + b"\n+++ b/n" + NOW + b"\n@@ -1 +0,0 @@\n-x\n", "modify", b"n"),
    (b"diff --git a/n b/n\nnew file mode 100755\nindex 0000000..e69de29\n", "create", b"n"),
    (b"diff --git a/n b/n\ndeleted file mode 100644\nindex e69de29..0000000\n", "delete", b"n"),
    (b"diff --git a/n m b/n m\nold mode 100644\nnew mode 100755\n", "modify", b"n m"),
    (b'diff --git "a/caf\\303\\251" "b/caf\\303\\251"\nold mode 100644\nnew mode 100755\n', "modify", b"caf\xc3\xa9"),
    (b'--- "a/t\\tq\\"b"\n+++ "b/t\\tq\\"b"\n@@ -1 +1 @@\n-x\n+y\n', "modify", b't\tq"b'),
    (b"--- a/\xff\xfe\n+++ b/\xff\xfe\n@@ -1 +1 @@\n-x\n+y\n", "modify", b"\xff\xfe"),
    (b"--- a/with blank.c\t\n+++ b/with blank.c\t\n@@ -1 +1 @@\n-x\n+y\n", "modify", b"with blank.c"),
    (b"--- a/f.c 2024-01-01 00:00:00.0 +0000\n+++ b/f.c Mon Jan  1 00:00:00 2024\n@@ -1 +1 @@\n-x\n+y\n",
     "modify", b"f.c"),
    (b"Index: f.c\n=====\n--- a//f.c\t(revision 3)\n+++ b/./f.c\t(working copy)\n@@ -1 +1 @@\n-x\n+y\n",
     "modify", b"f.c"),
])
def test_what_happens_to_a_file_is_told_by_its_header(text, kind, path):
    section = only(text)
    assert (section.kind, section.new, section.old) == (kind, path, path)


def test_renames_and_copies_carry_both_names_which_git_writes_without_prefix():
    rename = b"diff --git a/x/o b/x/n\nsimilarity index 90%%\nrename from %so\nrename to %sn\n"
    section = only(rename % (b"x/", b"x/"))
    assert (section.kind, section.old, section.new) == ("rename", b"x/o", b"x/n")
    assert only(rename % (b"x/", b"x/"), strip=2).old == b"o"
    copy = only(b"diff --git a/o b/n\nsimilarity index 100%\ncopy from o\ncopy to n\n")
    assert (copy.kind, copy.old, copy.new, copy.hunks) == ("copy", b"o", b"n", ())


def test_strip_takes_components_off_as_patch_does():
    text = PLAIN.replace(b"a/f.c", b"a/b/c/f.c").replace(b"b/f.c", b"a/b/c/f.c")
    assert [only(text, strip).new for strip in (0, 1, 3)] == [b"a/b/c/f.c", b"b/c/f.c", b"f.c"]


def test_missing_newlines_stay_missing_on_their_own_side():
    hunk = only(b"--- a/f\n+++ b/f\n@@ -1 +1,2 @@\n-x\n\\ No newline at end of file\n+x\n+y\n").hunks[0]
    assert (hunk.old, hunk.new) == ((b"x",), (b"x\n", b"y\n"))
    hunk = only(b"--- a/f\n+++ b/f\n@@ -1,2 +1 @@\n-y\n x\n\\ Kein Zeilenumbruch am Dateiende\n").hunks[0]
    assert (hunk.old, hunk.new) == ((b"y\n", b"x"), (b"x",))


def test_crlf_content_is_kept_and_an_empty_context_line_may_have_lost_its_blank():
    hunk = only(b"--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n-x\r\n+y\r\n\n z\r\n").hunks[0]
    assert hunk.old == (b"x\r\n", b"\n", b"z\r\n")


def test_an_insertion_without_context_goes_before_the_line_after():
    hunk = only(b"--- a/f\n+++ b/f\n@@ -4,0 +5 @@\n+x\n").hunks[0]
    assert (hunk.first, hunk.old) == (5, ())


@pytest.mark.parametrize("text, words, line", [
    (b"words only\n", "no unified diff", 1),
    (b"", "no unified diff", 1),
    (PLAIN.replace(b"-1,2 +1,2", b"-1,5 +1,5"), "fewer lines than its header says", 3),
    (PLAIN.replace(b"-1,2 +1,2", b"-1,2 +1"), "more lines than its header says", 3),
    (PLAIN.replace(b"@@ -1,2 +1,2 @@", b"@@ -1,x +1,2 @@"), "malformed hunk header", 3),
    (PLAIN.replace(b"@@ -1,2 +1,2 @@", b"@@ -1,2 +1%s,2 @@" % (b"9" * 5000)), "malformed hunk header", 3),
    (PLAIN.replace(b"@@ -1,2", b"@@ -0,2"), "line 0", 3),
    (PLAIN[:-1], "ends in the middle of a line", 6),
    (PLAIN.replace(b"-old\n+new\n", b" old\n"), "changes nothing", 3),
    (PLAIN.replace(b"\n", b"\r\n"), "carriage return", 1),
    (b"--- a/f\n+++ b/f\nwords\n", "no unified diff", 1),
    (b"diff --git a/f b/f\n--- a/f\n+++ b/f\nwords\n", "a file header without a hunk", 1),
    (PLAIN + b"+more\n", "more lines than its header says", 3),
    (PLAIN + b"-more\n", "more lines than its header says", 3),
    (b"--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-x\n+y\n", "both names are /dev/null", 1),
    (b"@@ -1 +1 @@\n-x\n+y\n", "without the name of a file", 1),
    (b"diff --git a/f b/f\nindex 1234567..89abcde 100644\n", "without a change", 1),
    (b"diff --git a/f b/f\nindex 1234567..89abcde 100644\nGIT binary patch\nliteral 1\n", "binary", 3),
    (b"diff --git a/f b/f\nindex 1234567..89abcde 100644\nBinary files a/f and b/f differ\n", "binary", 3),
    (b"Binary files a/f and b/f differ\n", "binary", 1),
    (b"*** a/f\n--- b/f\n***************\n*** 1 ****\n", "context diff", 3),
    (b"diff --cc f\n", "combined diff", 1),
    (b"diff --git a/l b/l\nnew file mode 120000\nindex 0000000..1234567\n", "symbolic link", 2),
    (b"diff --git a/s b/s\nindex 1234567..89abcde 160000\n", "submodule", 2),
    (b"diff --git a/s b/s\nnew file mode 040000\n", "regular file", 2),
    (b"diff --git a/o b/n\nrename from o\n", "only one of its two names", 1),
    (b"diff --git a/o b/n\nindex 1234567..89abcde 100644\n--- a/o\n+++ b/n\n@@ -1 +1 @@\n-x\n+y\n",
     "two different files", 1),
    (PLAIN.replace(b"a/f.c", b"/etc/f.c").replace(b"b/f.c", b"/etc/f.c"), "absolute", 1),
    (PLAIN.replace(b"/f.c", b"/../f.c"), "leads out of the tree", 1),
    (PLAIN.replace(b"/f.c", b"/x/../../f.c"), "leads out of the tree", 1),
    (PLAIN.replace(b"a/f.c", b"f.c").replace(b"b/f.c", b"f.c"), "no component left after strip=1", 1),
    (PLAIN.replace(b"/f.c", b"/.git/hooks/x"), "not the name of a source file", 1),
    (b"diff --git a/o b/n\nsimilarity index 100%\nrename from o\nrename to ../n\n", "leads out of the tree", 1),
    (b'--- "a/f\n+++ b/f\n@@ -1 +1 @@\n-x\n+y\n', "quoted name", 1),
    (b"Torchstack-Pristine: zzz f.c\n" + PLAIN, "expected 'Torchstack-Pristine:", 1),
    (b"Torchstack-Pristine: 1234567 other.c\n" + PLAIN, "does not touch", 1),
    (b"--- a/f\n+++ b/f\n@@ -5,0 +11,0 @@\n\\ No newline at end of file\n", "changes nothing", 3),
    (b"--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n-x\n\\ No newline at end of file\n-y\n+x\n+z\n",
     "without a newline inside", 3),
])
def test_what_a_build_must_not_guess_about_is_refused_with_patch_and_line(text, words, line):
    with pytest.raises(StackError) as caught:
        parse(text)
    assert words in caught.value.message
    assert caught.value.message.startswith("x.patch, line %d: " % line)
    assert (caught.value.failed_step, caught.value.details) == ("parse series", {"patch": "x.patch", "line": line})
    assert caught.value.remedy


@pytest.mark.parametrize("text, note", [
    (PLAIN.replace(b"-1,2 +1,2", b"-1,4 +1,4"), "line 3: blank lines at the end of the patch are missing"),
    (PLAIN + b" and some words\n", "line 3: what follows the hunk looks like more of it and is left out"),
    (PLAIN.replace(b"-1,2 +1,2", b"-1 +1"), "line 3: what follows the hunk looks like more of it and is left out"),
    (b"It quotes\n--- a/x\n+++ b/x\nwithout a hunk.\n" + PLAIN, "line 2: the names of a file without a hunk"),
])
def test_what_gnu_patch_takes_and_its_author_may_not_have_meant_is_taken_with_a_note(text, note):
    patch = parse(text)
    assert [section.new for section in patch.files] == [b"f.c"]
    assert len(patch.notes) == 1 and note in patch.notes[0]


def test_a_rule_after_the_last_hunk_is_nothing_odd():
    assert parse(PLAIN + b"---\n").notes == parse(PLAIN + b"-- \n2.30\n").notes == ()


def test_chopped_blank_lines_are_context_of_both_sides():
    hunk = only(b"--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n-x\n+y\n").hunks[0]
    assert (hunk.old, hunk.new, hunk.suffix) == ((b"x\n", b"\n", b"\n"), (b"y\n", b"\n", b"\n"), 2)


def test_a_header_line_of_our_own_names_the_blob_and_may_not_contradict_git_s():
    assert only(b"Torchstack-Pristine: 0358b15c117 f.c\n" + PLAIN).old_id == "0358b15c117"
    git = b"diff --git a/f.c b/f.c\nindex 0358b15..65ef4d6 100644\n" + PLAIN
    assert only(b"Torchstack-Pristine: 0358b15c117 f.c\n" + git).old_id == "0358b15c117"
    with pytest.raises(StackError, match="contradicts the index line") as caught:
        parse(b"Torchstack-Pristine: 1358b15c117 f.c\n" + git)
    assert "Remove the index line" in caught.value.remedy
    remedied = git.replace(b"index 0358b15..65ef4d6 100644\n", b"")
    assert only(b"Torchstack-Pristine: 1358b15c117 f.c\n" + remedied).old_id == "1358b15c117"


def test_an_abbreviation_of_fewer_than_seven_digits_names_nothing():
    section = only(b"diff --git a/f.c b/f.c\nindex 0358..65ef4d6 100644\n" + PLAIN)
    assert (section.old_id, section.new_id) == (None, "65ef4d6")


def test_blob_ids_are_git_s():
    assert blob_id(b"") == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    assert blob_id(b"hello\n") == "ce013625030ba8dba906f756967f9e9ca394464a"
    assert len(blob_id(b"", 64)) == 64


def test_only_newlines_end_lines():
    assert split_lines(b"a\rb\x0bc\r\n\nd") == [b"a\rb\x0bc\r\n", b"\n", b"d"]
    assert split_lines(b"") == []


@pytest.mark.parametrize("there, chosen", [
    ({b"f.c"}, b"f.c"), ({b"f.c.orig"}, b"f.c.orig"), ({b"f.c", b"f.c.orig"}, b"f.c"), (set(), b"f.c"),
])
def test_of_two_names_in_a_plain_diff_the_one_is_taken_that_is_there(there, chosen):
    patch = parse(PLAIN.replace(b"a/f.c", b"a/f.c.orig"))
    (section,) = reconcile_names(patch, lambda path: path in there).files
    assert (section.old, section.new) == (chosen, chosen)
