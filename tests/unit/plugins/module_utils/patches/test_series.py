# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A series in memory: order, digests, renames and copies as git means them, and how far a tree is.

Covers patch_apply, series_state and series_plan, too.
"""

from __future__ import annotations

import hashlib

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.diff_model import blob_id
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.journal import Place
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.parser import parse_patch
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.patch_apply import MemoryTree, apply_patch
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.series import (
    Series,
    load_series,
    reconcile_series,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.series_plan import make_record, plan
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.series_state import (
    detect,
    find_possible_levels,
    run_trial,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.source_files import TreeFile


def edit(path, old, new, ids=True):
    """A one-line change of a one-line file."""
    head = b"diff --git a/%s b/%s\n" % (path, path)
    if ids:
        head += b"index %s..%s 100644\n" % tuple(blob_id(side).encode()[:9] for side in (old, new))
    return head + b"--- a/%s\n+++ b/%s\n@@ -1 +1 @@\n-%s+%s" % (path, path, old, new)


def series_of(*texts, strip=1):
    patches = tuple(parse_patch(text, b"%04d.patch" % number, strip) for number, text in enumerate(texts, 1))
    return Series(patches, hashlib.sha256(b"".join(texts)).hexdigest(), (), strip)


def tree(**files):
    return {name.encode(): TreeFile(text, 0o644) for name, text in files.items()}


def after(patch, start, undo=False):
    files = MemoryTree(start.get)
    parsed = parse_patch(patch, b"x.patch")
    outcome = apply_patch(parsed, files, 0, undo=undo)
    paths = set(start) | {path for section in parsed.files for path in (section.old, section.new)}
    found = {path: files.get(path) for path in paths}
    return {path: file.content for path, file in found.items() if file is not None}, outcome


CHAIN = series_of(edit(b"f", b"0\n", b"1\n"), edit(b"g", b"0\n", b"1\n"), edit(b"f", b"1\n", b"2\n"))
LEVELS = [tree(f=b"0\n", g=b"0\n"), tree(f=b"1\n", g=b"0\n"), tree(f=b"1\n", g=b"1\n"), tree(f=b"2\n", g=b"1\n")]


@pytest.mark.parametrize("level", range(4))
def test_the_level_of_a_tree_is_told_from_its_contents(level):
    trial = detect(CHAIN, LEVELS[level].get, None, 0)
    assert (trial.level, trial.faults, trial.notes) == (level, [], [])
    assert {path: file.content for path, file in trial.pristine.items()} == {b"f": b"0\n", b"g": b"0\n"}
    assert {path: file.content for path, file in trial.final.items()} == {b"f": b"2\n", b"g": b"1\n"}


def test_only_levels_between_what_can_be_undone_and_what_can_be_applied_are_tried():
    assert find_possible_levels(CHAIN, LEVELS[2].get, 0) == [2]


def test_a_mix_of_levels_is_foreign_and_says_which_file_is_where():
    with pytest.raises(StackError) as caught:
        detect(CHAIN, tree(f=b"2\n", g=b"0\n").get, None, 0)
    assert caught.value.details["state_before"] == {"kind": "foreign", "applied": None, "of": 3}
    assert "That file is as after 3 patches, others are as after 0." in caught.value.message


def test_a_foreign_file_is_named_with_patch_and_hunk():
    with pytest.raises(StackError) as caught:
        detect(CHAIN, tree(f=b"0\n", g=b"strange\n").get, None, 0, allow_unverified=True)
    details = caught.value.details
    assert (details["patch"], details["file"], details["hunk"], details["line"]) == ("0002.patch", "g", 1, 5)


@pytest.mark.parametrize("applied, level", [(0, 0), (2, 2)])
def test_the_record_decides_between_states_that_look_alike(applied, level):
    forth_and_back = series_of(edit(b"f", b"0\n", b"1\n"), edit(b"f", b"1\n", b"0\n"), edit(b"f", b"0\n", b"3\n"))
    read = tree(f=b"0\n").get
    record = make_record(forth_and_back, run_trial(forth_and_back, read, 0, 0), applied, [], b"src")
    assert detect(forth_and_back, read, record, 0).level == level
    assert detect(forth_and_back, read, None, 0).level == 0


def test_r25_of_levels_that_look_alike_any_leads_to_the_same_trees():
    # The last two patches cancel each other out, so that nothing tells one patch from all three.
    cancelling = series_of(edit(b"f", b"0\n", b"1\n"), edit(b"f", b"1\n", b"2\n"), edit(b"f", b"2\n", b"1\n"))
    read = tree(f=b"1\n").get
    assert find_possible_levels(cancelling, read, 0) == [1, 3]
    trial = detect(cancelling, read, None, 0)
    assert trial.level == 1
    for ours, theirs in ((trial.pristine, b"0\n"), (trial.final, b"1\n")):
        assert {path: file.content for path, file in ours.items()} == {b"f": theirs}
    record = make_record(cancelling, run_trial(cancelling, tree(f=b"0\n").get, 0, 0), 3, [], b"src")
    assert detect(cancelling, read, record, 0).level == 3


def test_a_record_of_another_series_counts_only_while_the_tree_carries_it():
    record = make_record(CHAIN, run_trial(CHAIN, LEVELS[0].get, 0, 0), 3, [], b"src")
    other = series_of(edit(b"f", b"0\n", b"better\n"))
    assert detect(other, LEVELS[0].get, record, 0).level == 0
    with pytest.raises(StackError, match=r"changed since the tree was patched \(0001.patch changed, 0002.patch gone"):
        detect(other, LEVELS[3].get, record, 0)


def test_a_longer_series_goes_on_where_the_recorded_one_ended():
    record = make_record(CHAIN, run_trial(CHAIN, LEVELS[0].get, 0, 0), 3, [], b"src")
    longer = CHAIN._replace(patches=(*CHAIN.patches, parse_patch(edit(b"g", b"1\n", b"2\n"), b"0004.patch")))
    assert detect(longer, LEVELS[3].get, record, 0).level == 3


@pytest.mark.parametrize("text, reason", [
    (edit(b"f", b"0\n", b"1\n", ids=False), "names no pristine blob for f"),
    (edit(b"f", b"0\n", b"1\n").replace(blob_id(b"0\n").encode()[:9], b"123456789"),
     "was made for blob 123456789 of f"),
    (edit(b"f", b"0\n", b"1\n").replace(b"+1\n", b"+7\n"), "edited after it was made"),
])
def test_hunks_that_fit_are_not_enough(text, reason):
    read = tree(f=b"0\n").get
    with pytest.raises(StackError, match=reason) as caught:
        detect(series_of(text), read, None, 0)
    assert caught.value.failed_step == "verify series"
    trial = detect(series_of(text), read, None, 0, allow_unverified=True)
    assert [note.path for note in trial.notes] == [b"f"]


def test_a_dependent_patch_names_the_blob_that_the_earlier_one_leaves():
    assert detect(CHAIN, LEVELS[0].get, None, 0).notes == []


def test_files_trade_names_and_a_copy_takes_the_file_as_it_was_before_the_patch():
    swap = (b"diff --git a/f b/g\nsimilarity index 100%\nrename from f\nrename to g\n"
            b"diff --git a/g b/f\nsimilarity index 100%\nrename from g\nrename to f\n")
    start = tree(f=b"F\n", g=b"G\n")
    assert after(swap, start)[0] == {b"f": b"G\n", b"g": b"F\n"}
    assert after(swap, tree(f=b"G\n", g=b"F\n"), undo=True)[0] == {b"f": b"F\n", b"g": b"G\n"}
    copy = edit(b"f", b"0\n", b"1\n") + b"diff --git a/f b/h\nsimilarity index 100%\ncopy from f\ncopy to h\n"
    assert after(copy, tree(f=b"0\n"))[0] == {b"f": b"1\n", b"h": b"0\n"}
    assert after(copy, tree(f=b"1\n", h=b"0\n"), undo=True)[0] == {b"f": b"0\n"}


def test_one_plain_patch_may_change_a_file_twice():
    text = edit(b"f", b"0\n", b"1\n").split(b"--- ")[1]
    again = edit(b"f", b"1\n", b"2\n").split(b"--- ")[1]
    both = b"--- " + text + b"--- " + again
    assert after(both, tree(f=b"0\n"))[0] == {b"f": b"2\n"}
    assert after(both, tree(f=b"2\n"), undo=True)[0] == {b"f": b"0\n"}


@pytest.mark.parametrize("text, start, reason", [
    (b"--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+x\n", {"f": b""}, "is there already"),
    (edit(b"f", b"0\n", b"1\n"), {}, "is not there"),
    (b"--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n", {"f": b"x\ny\n"}, "lines are left"),
    (b"diff --git a/f b/f\ndeleted file mode 100644\n", {"f": b"x\n"}, "lines are left"),
    (b"diff --git a/f b/g\nrename from f\nrename to g\n", {"f": b"x\n", "g": b"y\n"}, "is there already"),
    (b"diff --git a/f b/g\nrename from f\nrename to g\n", {}, "the file f is not there"),
    (b"diff --git a/f b/f\nold mode 100755\nnew mode 100644\n", {"f": b"x\n"}, "is not executable already"),
])
def test_what_does_not_fit_the_tree_is_a_fault(text, start, reason):
    outcome = after(text, tree(**start))[1]
    assert reason in outcome.faults[0].reason


def test_an_executable_bit_alone_tells_levels_apart():
    chmod = series_of(b"diff --git a/f b/f\nold mode 100644\nnew mode 100755\n")
    assert detect(chmod, tree(f=b"x\n").get, None, 0).level == 0
    patched = detect(chmod, {b"f": TreeFile(b"x\n", 0o750)}.get, None, 0)
    assert patched.level == 1
    assert patched.pristine[b"f"].mode == 0o640


def test_names_come_in_byte_order_and_the_digest_is_over_names_and_contents(tmp_path):
    for name in ("b.patch", "B.diff", "a.patch", "10.patch", "9.patch"):
        (tmp_path / name).write_bytes(edit(b"f", b"0\n", b"1\n"))
    (tmp_path / ".hidden.patch").write_bytes(b"")
    (tmp_path / "README").write_bytes(b"")
    series = load_series(str(tmp_path))
    assert [patch.name for patch in series.patches] == [b"10.patch", b"9.patch", b"B.diff", b"a.patch", b"b.patch"]
    assert series.ignored == (b".hidden.patch", b"README")
    expected = hashlib.sha256()
    for patch in series.patches:
        expected.update(patch.name + b"\0" + hashlib.sha256(edit(b"f", b"0\n", b"1\n")).hexdigest().encode() + b"\n")
    assert series.digest == expected.hexdigest()


def test_a_name_that_an_earlier_patch_creates_counts_as_there():
    create = b"--- /dev/null\n+++ b/new/f\n@@ -0,0 +1 @@\n+x\n"
    change = b"--- old/f.orig\n+++ b/new/f\n@@ -1 +1 @@\n-x\n+y\n"
    series = reconcile_series(series_of(create, change), {}.get)
    assert series.patches[1].files[0].old == b"new/f"


def test_the_plan_names_changes_and_directories(tmp_path):
    src, state = tmp_path / "src", tmp_path / "state"
    src.mkdir()
    (src / "f").write_bytes(b"0\n")
    create = b"diff --git a/n/m/x b/n/m/x\nnew file mode 100755\n--- /dev/null\n+++ b/n/m/x\n@@ -0,0 +1 @@\n+x\n"
    series = series_of(edit(b"f", b"0\n", b"1\n"), create)
    start = tree(f=b"0\n")
    params = {"state": "present", "strip": 1}
    journal = plan(Place(str(src), str(state)), series, detect(series, start.get, None, 0), params, None)
    assert [(change.path, change.after) for change in journal.changes] == [
        (b"f", TreeFile(b"1\n", 0o644)), (b"n/m/x", TreeFile(b"x\n", 0o755))]
    assert journal.make == ((b"n", 0o755), (b"n/m", 0o755))
    assert journal.record["directories"] == ["n", "n/m"]
    assert not state.exists()
