# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""patch_series through real Ansible runs, and its whole flow with a process that dies at every write."""

from __future__ import annotations

import difflib
import fcntl
import hashlib
import itertools
import json
import os
import shutil
import stat

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.journal import has_open_journal
from ansible_collections.hpcml.torchstack.plugins.modules import patch_series

A0 = "".join("a%d\n" % number for number in range(1, 21))
B0 = "".join("b%d\n" % number for number in range(1, 21))
A1 = A0.replace("a10\n", "a10 first\n")
A2 = A1.replace("a11\n", "a11 second\n")
B2 = B0.replace("b5\n", "b5 second\n")
PRISTINE = {"a.txt": A0, "b.txt": B0, "sub/c.txt": "c\n"}
PATCHED = {"a.txt": A2, "b.txt": B2, "sub/c.txt": "c\n"}


def blob(text):
    data = text.encode()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def diff(name, old, new, ids=True):
    """One file's part of a patch in git's dialect; None stands for no file."""
    lines = ["diff --git a/%s b/%s" % (name, name)]
    if old is None:
        lines.append("new file mode 100644")
    if new is None:
        lines.append("deleted file mode 100644")
    if ids:
        sides = ["0" * 10 if side is None else blob(side)[:10] for side in (old, new)]
        lines.append("index %s..%s%s" % (sides[0], sides[1], "" if None in (old, new) else " 100644"))
    before, after = ((side or "").splitlines() for side in (old, new))
    names = "/dev/null" if old is None else "a/" + name, "/dev/null" if new is None else "b/" + name
    lines += difflib.unified_diff(before, after, names[0], names[1], lineterm="")
    return "\n".join(lines) + "\n"


FIRST = "Subject: first\n\n" + diff("a.txt", A0, A1)
SECOND = diff("a.txt", A1, A2) + diff("b.txt", B0, B2)
TOOL_MODE = "diff --git a/tool.sh b/tool.sh\nold mode 100644\nnew mode 100755\n"


class Site:
    """A tree, a series and a state_dir below one directory."""

    def __init__(self, top):
        self.top = top
        self.src, self.series, self.state = top / "src", top / "series", top / "state"

    def tree(self, files):
        if self.src.exists():
            shutil.rmtree(str(self.src))
        for name, text in files.items():
            path = self.src / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return self

    def patches(self, texts):
        if self.series.exists():
            shutil.rmtree(str(self.series))
        self.series.mkdir()
        for name, text in texts.items():
            (self.series / name).write_text(text)
        return self

    def arguments(self, **more):
        return dict({"src": str(self.src), "series": str(self.series), "state_dir": str(self.state)}, **more)

    def found(self):
        """Everything below src: files as (text, mode), directories as (None, mode)."""
        entries = {}
        for folder, folders, files in os.walk(str(self.src)):
            for name in folders + files:
                path = os.path.join(folder, name)
                text = None
                if name in files:
                    with open(path) as stream:
                        text = stream.read()
                entries[os.path.relpath(path, str(self.src))] = (text, stat.S_IMODE(os.stat(path).st_mode))
        return entries

    def files(self):
        return {name: text for name, (text, _mode) in self.found().items() if text is not None}

    def names_in_state(self, ending):
        return [name for name in os.listdir(str(self.state)) if name.endswith(ending)]


@pytest.fixture()
def site(tmp_path):
    return Site(tmp_path).tree(PRISTINE).patches({"0001-first.patch": FIRST, "0002-second.patch": SECOND})


def inner(site, check=False, diff=False, **more):
    """The module's work without Ansible around it, for tests that need many runs."""
    params = {"state": "present", "strip": 1, "max_offset": 0, "allow_unverified": False}
    params.update(site.arguments(), **more)
    return patch_series.reconcile(params, check, diff)


# -- what a loop over a patch module gets wrong: one test for each row -----------------------------------------------


def test_row_check_on_a_clean_tree_plans_both_patches_and_writes_nothing(site, run_module):
    result = run_module("patch_series", site.arguments(), check=True)
    assert result.changed
    assert result["state_before"] == {"kind": "pristine", "applied": 0, "of": 2}
    assert result["state_after"] == {"kind": "applied", "applied": 2, "of": 2}
    assert result["files"] == ["a.txt", "b.txt"]
    assert site.files() == PRISTINE
    assert not site.state.exists()


def test_row_first_run_applies_both_patches(site, run_module):
    result = run_module("patch_series", site.arguments())
    assert result.changed
    assert result["verified"] is True
    assert [patch["name"] for patch in result["patches"]] == ["0001-first.patch", "0002-second.patch"]
    assert site.files() == PATCHED


def test_row_second_run_is_unchanged_and_leaves_no_litter(site, run_module):
    run_module("patch_series", site.arguments())
    again = run_module("patch_series", site.arguments())
    assert not again.changed
    assert again["state_before"] == {"kind": "applied", "applied": 2, "of": 2}
    assert site.files() == PATCHED


def test_row_context_drift_in_b_txt_only_leaves_the_whole_tree_untouched(site, run_module):
    drifted = dict(PRISTINE, **{"b.txt": B0.replace("b6\n", "b6 other\n")})
    site.tree(drifted)
    result = run_module("patch_series", site.arguments(allow_unverified=True))
    assert (result["failed_step"], result["patch"], result["file"], result["hunk"]) == (
        "detect state", "0002-second.patch", "b.txt", 1)
    assert "line 6 of the file is 'b6 other' where the patch expects 'b6'" in result["msg"]
    assert result["state_before"]["kind"] == "foreign"
    assert site.files() == drifted


def test_row_two_drifted_context_lines_around_0001_are_refused_not_fuzzed(site, run_module):
    drifted = dict(PRISTINE, **{"a.txt": A0.replace("a7\n", "x7\n").replace("a13\n", "x13\n")})
    site.tree(drifted)
    result = run_module("patch_series", site.arguments(allow_unverified=True, max_offset=1000))
    assert (result["failed_step"], result["patch"], result["file"], result["hunk"]) == (
        "detect state", "0001-first.patch", "a.txt", 1)
    assert site.files() == drifted


def test_row_diff_shows_the_total_change_of_both_patches(site, run_module):
    result = run_module("patch_series", site.arguments(), check=True, diff=True)
    for line in ("-a10", "+a10 first", "+a11 second", "+b5 second"):
        assert line in result.console.splitlines()
    entries = inner(site, check=True, diff=True)["diff"]
    shown = {entry["before_header"].split()[0]: (entry["before"], entry["after"]) for entry in entries}
    assert shown == {"a.txt": (A0, A2), "b.txt": (B0, B2)}


# -- the promise ------------------------------------------------------------------------------------------------------


def test_check_do_check_do_agree_for_applying_and_for_undoing(site, run_module):
    steps = [run_module("patch_series", site.arguments(), check=check) for check in (True, False, True, False)]
    assert [step.changed for step in steps] == [True, True, False, False]
    assert steps[0]["series_digest"] == steps[3]["series_digest"]
    undo = [run_module("patch_series", site.arguments(state="absent"), check=check)
            for check in (True, False, True, False)]
    assert [step.changed for step in undo] == [True, True, False, False]
    assert site.files() == PRISTINE


def test_absent_undoes_the_series_with_its_files_directories_and_modes(tmp_path, run_module):
    site = Site(tmp_path).tree({"a.txt": A0, "gone.txt": "g\n", "tool.sh": "t\n"})
    (site.src / "gone.txt").chmod(0o640)
    (site.src / "tool.sh").chmod(0o644)
    rename = "diff --git a/a.txt b/moved/a.txt\nsimilarity index 100%\nrename from a.txt\nrename to moved/a.txt\n"
    site.patches({
        "1.patch": diff("new/deep/f.txt", None, "f\n") + diff("gone.txt", "g\n", None) + TOOL_MODE,
        "2.patch": rename + diff("new/deep/f.txt", "f\n", "ff\n"),
    })
    before = site.found()
    result = run_module("patch_series", site.arguments(), diff=True)
    assert result.changed
    assert site.files() == {"moved/a.txt": A0, "new/deep/f.txt": "ff\n", "tool.sh": "t\n"}
    assert site.found()["tool.sh"] == ("t\n", 0o755)
    assert "tool.sh (mode 0644) -> tool.sh (mode 0755)" in result.console.splitlines()
    undone = run_module("patch_series", site.arguments(state="absent"))
    assert undone.changed
    assert site.found() == before


def test_s15_patches_per_version_links_followed_and_order_independent_of_the_locale(tmp_path, run_module):
    site = Site(tmp_path).tree({"a.txt": A0})
    one, two = A0.replace("a10\n", "B\n"), A0.replace("a10\n", "a\n")
    store, version = tmp_path / "patches" / "v2.4.0", tmp_path / "patches" / "v2.4.1"
    store.mkdir(parents=True)
    version.symlink_to("v2.4.0")
    # Byte order puts upper case first; most other locales would take a.patch first, which does not fit.
    (store / "B.patch").write_text(diff("a.txt", A0, one))
    (tmp_path / "elsewhere").write_text(diff("a.txt", one, two))
    (store / "a.patch").symlink_to(tmp_path / "elsewhere")
    for name in ("README.md", "series", "a.patch~", ".a.patch.swp", "#a.patch#"):
        (store / name).write_text("not a patch\n")
    digests = set()
    for locale in ("C", "C.UTF-8", "en_US.UTF-8"):
        result = run_module(
            "patch_series", site.arguments(series=str(version)), check=True, environment={"LC_COLLATE": locale})
        assert [patch["name"] for patch in result["patches"]] == ["B.patch", "a.patch"]
        digests.add(result["series_digest"])
    assert len(digests) == 1
    done = run_module("patch_series", site.arguments(series=str(version)))
    assert done["ignored"] == ["#a.patch#", ".a.patch.swp", "README.md", "a.patch~", "series"]
    assert site.files() == {"a.txt": two}


def test_the_digest_follows_names_contents_and_order(site):
    first = inner(site, check=True)["series_digest"]
    (site.series / "0001-first.patch").rename(site.series / "0001-other.patch")
    renamed = inner(site, check=True)["series_digest"]
    with open(str(site.series / "0002-second.patch"), "a") as stream:
        stream.write("\nprose\n")
    assert len({first, renamed, inner(site, check=True)["series_digest"]}) == 3


def test_an_offset_is_refused_by_default_and_reported_when_allowed(site, run_module):
    site.tree(dict(PRISTINE, **{"a.txt": "one\ntwo\n" + A0}))
    refused = run_module("patch_series", site.arguments(allow_unverified=True))
    assert (refused["file"], refused["hunk"]) == ("a.txt", 1)
    assert "it fits 2 lines further down, and max_offset allows 0" in refused["msg"]
    done = run_module("patch_series", site.arguments(allow_unverified=True, max_offset=2))
    assert [patch["offsets"] for patch in done["patches"]] == [[{"file": "a.txt", "hunk": 1, "offset": 2}]] * 2
    assert site.files()["a.txt"] == "one\ntwo\n" + A2
    # The record knows where the hunks are, so a stricter limit later does not lose the tree.
    again = run_module("patch_series", site.arguments(allow_unverified=True))
    assert not again.changed and again["state_before"]["applied"] == 2


# -- bad input changes nothing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("spoil, step, words", [
    pytest.param(lambda site: {"src": str(site.top / "none")}, "check options", "is not a directory", id="missing src"),
    pytest.param(lambda site: {"series": str(site.top / "none")}, "read series", "No such file", id="missing series"),
    pytest.param(lambda site: {"state_dir": str(site.src / "state")}, "check options", "lies in the tree",
                 id="state_dir in the tree"),
    pytest.param(lambda site: {"max_offset": -1}, "check options", "cannot be negative", id="negative offset"),
])
def test_bad_options_are_refused_with_the_tree_untouched(site, run_module, spoil, step, words):
    result = run_module("patch_series", site.arguments(**spoil(site)))
    assert result["failed_step"] == step
    assert words in result["msg"] and result["remedy"] in result["msg"]
    assert site.files() == PRISTINE
    assert not site.state.exists()


def test_malformed_hunk_counts_are_named_with_file_and_line(site, run_module):
    text = SECOND.replace("@@ -2,7 +2,7 @@", "@@ -2,12 +2,12 @@")
    (site.series / "0002-second.patch").write_text(text)
    line = text.splitlines().index("@@ -2,12 +2,12 @@") + 1
    result = run_module("patch_series", site.arguments())
    assert result["failed_step"] == "parse series"
    assert result["msg"].startswith("0002-second.patch, line %d: the hunk has fewer lines than its header says." % line)
    assert (result["patch"], result["line"]) == ("0002-second.patch", line)
    assert site.files() == PRISTINE


def test_a_patch_that_cannot_be_read_or_is_compressed_is_named(site):
    (site.series / "0003.patch").symlink_to("nowhere")
    with pytest.raises(StackError, match=r"Cannot read the patch .*0003\.patch"):
        inner(site)
    (site.series / "0003.patch").unlink()
    (site.series / "0003.patch.gz").write_text("")
    with pytest.raises(StackError, match=r"0003\.patch\.gz in the series is compressed"):
        inner(site)
    assert site.files() == PRISTINE


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_permissions_that_are_missing_are_told_and_the_tree_stays_whole(site):
    (site.series / "0002-second.patch").chmod(0)
    with pytest.raises(StackError, match="Cannot read the patch"):
        inner(site)
    site.patches({"1.patch": FIRST, "2.patch": diff("sub/c.txt", "c\n", "d\n")})
    (site.src / "sub").chmod(0o555)
    try:
        with pytest.raises(StackError) as caught:
            inner(site)
    finally:
        (site.src / "sub").chmod(0o755)
    assert caught.value.failed_step == "write" and "The tree is as it was before." in caught.value.message
    assert site.files() == PRISTINE
    assert not has_open_journal(str(site.src), str(site.state))
    (site.top / "closed").mkdir(mode=0o555)
    with pytest.raises(StackError, match="Cannot write in state_dir"):
        inner(site, state_dir=str(site.top / "closed" / "state"))
    assert site.files() == PRISTINE


@pytest.mark.parametrize("target", ["link.txt", "dir/c.txt"])
def test_a_target_behind_a_symbolic_link_is_refused(site, target):
    (site.src / "link.txt").symlink_to("a.txt")
    (site.src / "dir").symlink_to("sub")
    site.patches({"1.patch": diff(target, "c\n", "d\n")})
    with pytest.raises(StackError, match="is a symbolic link in the tree"):
        inner(site)


# -- verified against the real blobs ----------------------------------------------------------------------------------


def test_a_patch_that_names_no_blob_is_refused_unless_allowed(site, run_module):
    site.patches({"1.patch": diff("a.txt", A0, A1, ids=False)})
    refused = run_module("patch_series", site.arguments())
    assert refused["failed_step"] == "verify series"
    assert "1.patch names no pristine blob for a.txt" in refused["msg"]
    assert site.files() == PRISTINE
    allowed = run_module("patch_series", site.arguments(allow_unverified=True))
    assert allowed.changed and allowed["verified"] is False
    assert allowed["unverified"] == [
        {"patch": "1.patch", "file": "a.txt", "side": "before", "named": None, "actual": blob(A0)}]


def test_hunks_that_fit_another_version_of_the_file_are_unverified(site):
    site.tree(dict(PRISTINE, **{"a.txt": A0 + "a21\n"}))
    with pytest.raises(StackError) as caught:
        inner(site)
    assert caught.value.failed_step == "verify series"
    assert "0001-first.patch was made for blob %s of a.txt" % blob(A0)[:10] in caught.value.message
    assert inner(site, allow_unverified=True)["changed"]


def test_a_patch_edited_after_it_was_made_is_unverified(site):
    site.patches({"1.patch": FIRST.replace("+a10 first", "+a10 other")})
    with pytest.raises(StackError, match="it was edited after it was made"):
        inner(site)


def test_a_header_line_of_our_own_names_the_blob_of_a_plain_diff(site):
    plain = "".join(difflib.unified_diff(A0.splitlines(True), A1.splitlines(True), "x/a.txt", "y/a.txt"))
    site.patches({"1.patch": "Torchstack-Pristine: %s a.txt\n%s" % (blob(A0)[:12], plain)})
    assert inner(site)["verified"]
    assert site.files()["a.txt"] == A1


# -- how far a tree is ------------------------------------------------------------------------------------------------


def test_an_appended_patch_is_applied_on_top_and_the_tree_is_known_to_be_at_two_of_three(site):
    inner(site)
    (site.series / "0003-third.patch").write_text(diff("sub/c.txt", "c\n", "cc\n"))
    result = inner(site)
    assert result["state_before"] == {"kind": "applied", "applied": 2, "of": 3}
    assert result["files"] == ["sub/c.txt"]
    assert not inner(site)["changed"]


@pytest.mark.parametrize("change", ["changed", "reordered", "shortened", "emptied"])
def test_a_changed_series_on_a_patched_tree_says_to_extract_the_source_again(site, change):
    site.patches({"1.patch": diff("a.txt", A0, A1), "2.patch": diff("b.txt", B0, B2)})
    inner(site)
    patched = site.files()
    if change == "changed":
        (site.series / "1.patch").write_text(diff("a.txt", A0, A0.replace("a10\n", "a10 better\n")))
    if change == "reordered":
        (site.series / "2.patch").rename(site.series / "0.patch")
    if change in ("shortened", "emptied"):
        (site.series / "2.patch").unlink()
    if change == "emptied":
        (site.series / "1.patch").unlink()
    for check in (True, False):
        with pytest.raises(StackError, match="The series has changed since the tree was patched") as caught:
            inner(site, check=check)
        assert "Extract the source again" in caught.value.as_result()["msg"]
    assert site.files() == patched
    # The remedy works: a freshly extracted tree takes the new series, whatever the record says.
    site.tree(PRISTINE)
    assert inner(site)["changed"] is (change != "emptied")
    assert not inner(site)["changed"]


def test_a_changed_series_is_found_out_without_a_record_too(site):
    inner(site)
    shutil.rmtree(str(site.state))
    (site.series / "0001-first.patch").write_text(diff("a.txt", A0, A0.replace("a10\n", "a10 better\n")))
    patched = site.files()
    with pytest.raises(StackError, match="The tree is foreign"):
        inner(site)
    assert site.files() == patched


def test_a_patched_tree_is_recognised_without_its_record(site):
    inner(site)
    shutil.rmtree(str(site.state))
    assert not inner(site)["changed"]
    shutil.rmtree(str(site.state))
    assert inner(site, state="absent")["changed"]
    assert site.files() == PRISTINE


def test_a_file_edited_after_patching_makes_the_tree_foreign_and_is_named(site):
    inner(site)
    (site.src / "b.txt").write_text(B2.replace("b20\n", "by hand\n"))
    with pytest.raises(StackError, match=r"The tree is foreign: b\.txt is neither"):
        inner(site)


def test_a_mix_of_patched_and_pristine_files_is_named_with_and_without_a_record(site):
    inner(site)
    (site.src / "b.txt").write_text(B0)
    with pytest.raises(StackError, match=r"The tree is foreign: b\.txt is not as patch 2 leaves it"):
        inner(site)
    shutil.rmtree(str(site.state))
    with pytest.raises(StackError, match="That file is as after 2 patches, others are as after 0"):
        inner(site)


def test_where_two_states_look_alike_the_record_decides(site):
    site.patches({"1.patch": diff("a.txt", A0, A1), "2.patch": diff("a.txt", A1, A0)})
    assert inner(site, check=True)["state_before"]["kind"] == "pristine"
    assert inner(site)["changed"]
    assert inner(site)["state_before"] == {"kind": "applied", "applied": 2, "of": 2}
    assert not inner(site)["changed"]


def test_states_that_look_alike_without_blobs_and_record_are_refused(site):
    site.tree({"a.txt": "x\n" * 9})
    site.patches({"1.patch": "--- a/a.txt\n+++ b/a.txt\n@@ -4,2 +4,3 @@\n x\n+x\n x\n"})
    with pytest.raises(StackError, match="looks pristine and patched up to 1 alike"):
        inner(site, allow_unverified=True)


def test_an_empty_series_is_fine(site):
    result = inner(site.patches({}))
    assert not result["changed"]
    assert result["state_after"] == {"kind": "pristine", "applied": 0, "of": 0}


def test_check_mode_plans_after_the_step_that_extracts_the_source(site, run_module):
    shutil.rmtree(str(site.src))
    result = run_module("patch_series", site.arguments(planned_after="pytorch source"), check=True)
    assert result.changed and result["planned_after"] == "pytorch source"
    assert len(result["patches"]) == 2
    failed = run_module("patch_series", site.arguments(planned_after="pytorch source"))
    assert failed["failed_step"] == "check options"


def test_names_that_are_not_utf8_and_names_with_blanks_are_patched(tmp_path, run_module):
    site = Site(tmp_path).tree({"with blank.txt": A0})
    odd = os.path.join(os.fsencode(str(site.src)), b"caf\xe9.txt")
    with open(odd, "wb") as stream:
        stream.write(A0.encode())
    quoted = diff("X", A0, A1).replace("a/X", '"a/caf\\351.txt"').replace("b/X", '"b/caf\\351.txt"')
    site.patches({"1.patch": quoted + diff("with blank.txt", A0, A1)})
    result = run_module("patch_series", site.arguments())
    assert result["files"] == ["caf\\xe9.txt", "with blank.txt"]
    again = run_module("patch_series", site.arguments())
    assert not again.changed and again["state_before"]["applied"] == 1
    with open(odd, "rb") as stream:
        assert stream.read().decode() == A1


def test_s03_the_umask_of_the_caller_does_not_reach_new_files_and_directories(site):
    site.patches({"1.patch": diff("new/f.txt", None, "f\n")})
    old = os.umask(0o077)
    try:
        inner(site)
    finally:
        os.umask(old)
    found = site.found()
    assert (found["new"], found["new/f.txt"]) == ((None, 0o755), ("f\n", 0o644))
    assert stat.S_IMODE(os.stat(str(site.state)).st_mode) == 0o755


def test_sixty_patches_are_told_apart_with_and_without_the_record(tmp_path):
    site = Site(tmp_path)
    text = "".join("line %d of the file\n" % number for number in range(1000))
    files = {"f%d.c" % number: text for number in range(20)}
    site.tree(files)
    series = {}
    for number in range(60):
        name = "f%d.c" % (number % 20)
        after = files[name].replace("line %d of" % (100 + number * 10), "row %d of" % number)
        series["%03d.patch" % number] = diff(name, files[name], after)
        files[name] = after
    site.patches(series)
    for changed in (True, False, False):
        assert inner(site)["changed"] is changed
        if not changed:
            shutil.rmtree(str(site.state))
    assert site.files() == files


# -- killed at any write ----------------------------------------------------------------------------------------------

WRITES = ("open", "write", "fsync", "fchmod", "replace", "unlink", "mkdir", "chmod", "rmdir")


def stop_at(number, how):
    """Call ``how`` in front of the number-th writing call of this process, of a write after its first half."""
    count = [0]

    def wrap(name, real):
        def call(*arguments, **keywords):
            if name == "open" and not arguments[1] & (os.O_WRONLY | os.O_RDWR):
                return real(*arguments, **keywords)
            count[0] += 1
            if count[0] == number:
                if name == "write":
                    real(arguments[0], arguments[1][:len(arguments[1]) // 2])
                how()
            return real(*arguments, **keywords)
        return call

    for name in WRITES:
        setattr(os, name, wrap(name, getattr(os, name)))
    return count


def in_child(work):
    """Run ``work`` in a forked process; returns its exit status: 0 done, 3 taken back, 4 another error."""
    process = os.fork()
    if process == 0:
        code = 70
        try:
            work()
            code = 0
        except StackError as error:
            code = 3 if "as it was before" in error.message else 4
        finally:
            os._exit(code)
    return os.WEXITSTATUS(os.waitpid(process, 0)[1])


def killed_at(site, number, **more):
    def work():
        stop_at(number, lambda: os._exit(99))
        inner(site, **more)

    return in_child(work)


def interrupt(site):
    """Kill runs, each one call later, until one leaves an open journal."""
    for number in itertools.count(1):
        assert killed_at(site, number) == 99
        if has_open_journal(str(site.src), str(site.state)):
            return


def rich(top):
    """A change with everything in it: edits, a new directory, a deletion, a rename, a mode."""
    rename = (
        "diff --git a/old.txt b/moved/new.txt\nsimilarity index 95%\nrename from old.txt\nrename to moved/new.txt\n"
        + diff("X", B0, B2).split("\n", 1)[1].replace("a/X", "a/old.txt").replace("b/X", "b/moved/new.txt")
    )
    top.mkdir()
    site = Site(top).tree({"a.txt": A0, "gone/g.txt": "g\n", "old.txt": B0, "tool.sh": "t\n"})
    (site.src / "tool.sh").chmod(0o644)
    return site.patches({
        "1.patch": diff("a.txt", A0, A1) + diff("gone/g.txt", "g\n", None),
        "2.patch": rename + diff("new/d/f.txt", None, "f\n"),
        "3.patch": TOOL_MODE + diff("a.txt", A1, A2),
    })


@pytest.mark.parametrize("first, then", [
    ("present", "present"), ("present", "absent"), ("absent", "absent"), ("absent", "present"),
])
def test_killed_at_every_write_the_next_run_ends_before_or_after(tmp_path, first, then):
    reference = rich(tmp_path / "reference")
    wanted = {"absent": reference.found()}
    inner(reference)
    wanted["present"] = reference.found()
    directions, number, status = set(), 0, 99
    while status == 99:
        number += 1
        site = rich(tmp_path / str(number))
        if first == "absent":
            inner(site)
        status = killed_at(site, number, state=first)
        if status == 0:
            break
        assert status == 99, number
        torn = site.found()
        if not has_open_journal(str(site.src), str(site.state)):
            assert torn in wanted.values(), number
        plan = inner(site, check=True, state=then)
        assert site.found() == torn
        result = inner(site, state=then)
        assert site.found() == wanted[then], number
        keys = ("changed", "state_before", "state_after", "files", "recovered")
        assert [plan.get(key) for key in keys] == [result.get(key) for key in keys]
        directions.add(result.get("recovered", {}).get("direction"))
        assert not has_open_journal(str(site.src), str(site.state))
        assert [name for name in os.listdir(str(site.state)) if name.startswith(".")] == []
        assert not inner(site, state=then)["changed"]
        shutil.rmtree(str(site.top))
    assert number > 30
    assert directions == {None, "forward" if first == then else "back"}


def test_a_write_that_fails_anywhere_is_taken_back_at_once(tmp_path):
    outcomes = []
    while 5 not in outcomes:
        site = rich(tmp_path / str(len(outcomes)))
        before = site.found()
        number = len(outcomes) + 1

        def failing(site=site, number=number):
            def full():
                raise OSError(28, "No space left on device")
            count = stop_at(number, full)
            inner(site)
            if count[0] < number:
                os._exit(5)

        outcomes.append(in_child(failing))
        assert not has_open_journal(str(site.src), str(site.state))
        if outcomes[-1] in (3, 4):
            assert site.found() == before, len(outcomes)
        else:
            # A directory that cannot be flushed, as on some file systems, is no failure.
            assert outcomes[-1] in (0, 5)
            assert not inner(site)["changed"]
        inner(site)
    assert outcomes.count(3) > 20 and outcomes.count(0) < 10
    # What is not taken back could not even begin: state_dir and the lock.
    assert outcomes.index(3) == outcomes.count(4) < 5


def test_a_file_that_changed_under_an_interrupted_run_stops_with_the_journal_named(site):
    interrupt(site)
    (site.src / "a.txt").write_text("something else\n")
    for check in (True, False):
        with pytest.raises(StackError) as caught:
            inner(site, check=check)
        assert caught.value.failed_step == "recover"
        assert caught.value.path.endswith(".journal") and caught.value.path in caught.value.as_result()["msg"]
    # The remedy works.
    site.tree(PRISTINE)
    os.unlink(caught.value.path)
    assert inner(site)["changed"]


def test_an_interrupted_run_is_reported_as_completed_through_ansible(site, run_module):
    interrupt(site)
    result = run_module("patch_series", site.arguments())
    assert result.changed
    assert result["recovered"] == {"direction": "forward", "files": ["a.txt", "b.txt"]}
    assert site.files() == PATCHED


def test_two_runs_at_once_are_kept_apart(site):
    inner(site)
    with open(str(site.state / site.names_in_state(".lock")[0])) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(StackError, match="Another run is patching"):
            inner(site)


def test_records_hold_relative_paths_and_survive_a_move(tmp_path):
    (tmp_path / "here").mkdir()
    site = Site(tmp_path / "here").tree(PRISTINE).patches({"1.patch": FIRST, "2.patch": SECOND})
    inner(site)
    record = site.names_in_state(".json")
    for name in os.listdir(str(site.state)):
        assert str(tmp_path) not in (site.state / name).read_text()
    site.top.rename(tmp_path / "there")
    moved = Site(tmp_path / "there")
    assert not inner(moved)["changed"]
    assert moved.names_in_state(".json") == record
    assert json.loads((moved.state / record[0]).read_text())["tree"] == "../src"
