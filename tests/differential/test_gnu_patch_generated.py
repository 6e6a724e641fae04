# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Series that are hard on purpose, and the project's own history: GNU patch and we leave the same trees.

Where test_gnu_patch.py lets diff and git write the patches, here most hunks are written by hand: any amount of context
on either side, headers that are hundreds of lines off, hunks out of order, equally distant places, changes at the first
and last line, lines that look like parts of a diff. GNU patch without fuzz judges each series on disk; the module's own
``run`` has to leave the same files, bytes and execute bits and report the same offsets, or the tree as it was.

``TORCHSTACK_PATCH_SEEDS`` is the number of generated series (default 500), ``TORCHSTACK_PATCH_FIRST_SEED`` where they
begin, so one series of a failure is replayed with its seed and 1. ``TORCHSTACK_PATCH_REPOSITORIES`` names further git
repositories, separated by colons, whose histories are applied too.
"""

from __future__ import annotations

import collections
import os
import random
import shutil
import subprocess

import pytest
import test_gnu_patch as judge
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.modules import patch_series

pytestmark = judge.pytestmark

SEEDS = int(os.environ.get("TORCHSTACK_PATCH_SEEDS", "500"))
FIRST = int(os.environ.get("TORCHSTACK_PATCH_FIRST_SEED", "0"))
# What GNU patch does silently and a build must not; these alone may be refused where it succeeds.
STRICTER = {
    "newline": "without a newline inside the file",
    "beyond": "it inserts at line",
    # "@@ -0,0" and no time in the header: a new file for us, for GNU patch also lines for the top of one that is there,
    # so that a file which such a patch has created would get its lines twice.
    "new or not": "the file is there already",
    "patched": "it looks patched already",
    "context": "it changes the context of the hunk before it",
    # Without blob ids the module cannot know whether such a tree is patched already; GNU patch never asks.
    "alike": "alike, and no record tells which it is",
}


class Hunk:
    """Lines ``at`` to ``at + gone`` (from 0) replaced by ``new``, with so much context before and after."""

    def __init__(self, at, gone, new, before, after, lie=0):
        self.at, self.gone, self.new, self.before, self.after, self.lie = at, gone, new, before, after, lie

    def text(self, lines, grown):
        first = max(self.at - self.before, 0)
        last = min(self.at + self.gone + self.after, len(lines))
        body = [(b" ", line) for line in lines[first:self.at]]
        body += [(b"-", line) for line in lines[self.at:self.at + self.gone]]
        body += [(b"+", line) for line in self.new]
        body += [(b" ", line) for line in lines[self.at + self.gone:last]]
        old, new = (sum(mark != skip for mark, _line in body) for skip in (b"+", b"-"))
        start = max(first + self.lie, 0)
        numbers = start + (old > 0), old, max(start + grown, 0) + (new > 0), new
        if old and not numbers[0]:
            numbers = (1, *numbers[1:])
        out = b"@@ -%s +%s @@\n" % (self.range(*numbers[:2]), self.range(*numbers[2:]))
        for mark, line in body:
            out += mark + line
            if not line.endswith(b"\n"):
                out += b"\n\\ No newline at end of file\n"
        return out

    @staticmethod
    def range(first, count):
        return b"%d" % first if count == 1 else b"%d,%d" % (first, count)


class Maker:
    """One generated series: a tree, patches that build on each other, and the tree that they are applied to."""

    STYLES = ("unique", "few", "blank", "block", "odd")
    ODD = (b"-- x", b"++ y", b"-- a/z\tdate", b"@@ -1 +1 @@", b"diff --git a/z b/z", b"\\ No newline at end of file",
           b"Index: z", b"", b" ", b"\t", b"*** z", b"*** 1,2 ****", b"From x Mon Sep 17 00:00:00 2001", b"\x00\xff",
           b"rename from z", b"2,3c4", b"0a1")

    def __init__(self, seed):
        self.random = random.Random("patches %d" % seed)
        self.choice = self.random.choice
        self.style = self.choice(self.STYLES)
        self.end = self.choice((b"\n",) * 4 + (b"\r\n",))
        self.serial = 0
        names = ["f", "sub/f", "sub/deep/er/g.h", "with blank.c", "a/b", "caf\udce9", "x-1.2", "sub/z"]
        self.names = self.random.sample(names, self.random.randint(1, 3))

    def line(self):
        self.serial += 1
        kind = self.random.random()
        if self.style == "unique" or kind < 0.1:
            return b"line %d;" % self.serial
        if self.style == "few":
            return self.choice((b"a", b"b", b"}"))
        if self.style == "blank":
            return self.choice((b"", b"", b"", b"x", b"}"))
        if self.style == "block":
            return (b"begin", b"  work", b"  more", b"end")[self.serial % 4]
        return self.choice(self.ODD)

    def lines(self, count):
        return [self.line() + (self.end if self.random.random() < 0.95 else b"\n") for _each in range(count)]

    def file(self):
        lines = self.lines(self.choice((0, 1, 2, 5, 12, 30, 30, 80, 400)))
        if lines and self.random.random() < 0.2:
            lines[-1] = lines[-1].rstrip(b"\r\n") or b"last"
        return lines

    # -- one patch ------------------------------------------------------------------------------------------------

    def hunks(self, lines):
        """Hunks that do not touch each other, in order, and the lines after them."""
        context = self.choice((0, 1, 2, 3, 3, 3, 3, 5, 8))
        uneven = self.random.random() < 0.25
        hunks, after, at = [], [], 0
        for _each in range(self.choice((1, 1, 2, 3, 6))):
            where = self.choice((at, len(lines), self.random.randint(at, len(lines))))
            before, behind = (
                self.choice((0, 1, context)) if uneven else context for _side in range(2)
            )
            before = min(before, where - at)
            if not uneven and hunks and before < context:
                break
            gone = min(self.choice((0, 0, 1, 1, 2, 5)), len(lines) - where)
            new = self.lines(self.choice((0, 1, 1, 3))) if gone else self.lines(self.choice((1, 2)))
            ends = where + gone == len(lines)
            if where and not gone and ends and not lines[-1].endswith(b"\n"):
                break
            if ends and new and self.random.random() < 0.3:
                new[-1] = new[-1].rstrip(b"\r\n") or b"last"
            if gone and new == lines[where:where + gone]:
                break
            hunks.append(Hunk(where, gone, new, before, behind))
            after += lines[at:where] + new
            at = where + gone
            lead = at + behind
            after_context = lines[at:lead]
            after += after_context
            at = min(lead, len(lines))
            if at >= len(lines):
                break
        return hunks, after + lines[at:]

    def part(self, name, lines, hunks):
        """The part of a plain diff for one file, in one of the forms that are found in the wild."""
        raw = os.fsencode(name)
        stamps = self.choice(((b"", b""), (b"\t2024-05-01 10:00:00.000000000 +0200", b"\t2024-05-02 09:00:00 +0000"),
                              (b"\tWed May  1 10:00:00 2024", b"\tThu May  2 10:00:00 2024")))
        if b" " in raw and not stamps[0]:
            stamps = (b"\t", b"\t")
        out = self.choice((b"", b"Index: %s\n%s\n" % (raw, b"=" * 67), b"diff -u -r a/%s b/%s\n" % (raw, raw)))
        out += b"--- a/%s%s\n+++ b/%s%s\n" % (raw, stamps[0], raw, stamps[1])
        grown, texts = 0, []
        for hunk in hunks:
            texts.append(hunk.text(lines, grown))
            grown += len(hunk.new) - hunk.gone
        if len(texts) > 1 and self.random.random() < 0.03:
            self.random.shuffle(texts)
        return out + b"".join(texts)

    def patch(self, tree):
        """One patch on a tree of lines, and the tree after it."""
        after, parts = dict(tree), []
        lie = self.choice((0,) * 6 + (1, -1, 3, -7, 150, -250))
        for name in sorted(tree):
            if tree[name] is None or self.random.random() < 0.3:
                continue
            hunks, lines = self.hunks(tree[name])
            if not hunks or (not lines and not tree[name]):
                continue
            # A file of which nothing is left is gone for GNU patch where the time says so; here it stays, empty.
            if not lines or not tree[name]:
                continue
            for hunk in hunks:
                hunk.lie = lie
            parts.append(self.part(name, tree[name], hunks))
            after[name] = lines
        prose = self.choice((b"", b"Subject: [PATCH] something\n\nWhy this is needed.\n---\n f | 2 +-\n\n"))
        end = self.choice((b"", b"-- \n2.39.5\n\n")) if prose else b""
        return (prose + b"".join(parts) + end if parts else b""), after

    def drift(self, lines):
        """What happens to a file between the version that a patch was made for and ours."""
        lines = list(lines)
        how = self.choice(("none", "none", "top", "cut", "twin", "edit", "newline", "many"))
        if how == "top":
            lines[:0] = self.lines(self.choice((1, 3, 40, 300)))
        if how == "cut":
            del lines[:self.choice((1, 2, 5))]
        if how == "twin" and lines:
            at, count = self.random.randrange(len(lines)), self.choice((3, 10, len(lines)))
            lines[at:at] = lines[max(at - count, 0):at]
        if how == "edit" and lines:
            lines[self.random.randrange(len(lines))] = self.line() + b"\n"
        if how == "newline" and lines:
            lines[-1] = lines[-1].rstrip(b"\r\n") + self.choice((b"", b"\n", b"\r\n"))
        if how == "many":
            for _each in range(3):
                at = self.random.randint(0, len(lines))
                lines[at:at + self.choice((0, 0, 1))] = self.lines(self.choice((0, 1, 20)))
        if any(not line.endswith(b"\n") for line in lines[:-1]):
            lines = [line if line.endswith(b"\n") else line + b"\n" for line in lines[:-1]] + lines[-1:]
        return lines

    def series(self, folder):
        """The tree to patch, as path to (content, executable), and the patches."""
        if self.random.random() < 0.25:
            return self.git_series(folder)
        tree = {name: self.file() for name in self.names}
        start = self.start(tree)
        patches = []
        for _each in range(self.choice((1, 1, 2, 4, 7))):
            text, tree = self.patch(tree)
            patches.append(text)
        return start, [text for text in patches if text]

    def start(self, tree):
        """The tree that the patches meet: every other one has drifted."""
        drifts = self.random.random() < 0.5
        return {name: (b"".join(self.drift(lines) if drifts else lines), False) for name, lines in tree.items()}

    def git_series(self, folder):
        """Patches of git's own making: files come, go, change name and mode."""
        # GNU patch cannot split "diff --git" with blanks in a name.
        tree = {name.replace(" ", "_"): self.file() for name in self.names}
        start = self.start(tree)
        tree = {name: (b"".join(lines), False) for name, lines in tree.items()}
        trees, patches = judge.Trees(self.random.random(), folder), []
        context = self.choice((0, 1, 2, 3, 3, 3, 6, 8))
        for _each in range(self.choice((1, 2, 4))):
            after = trees.change(tree, True)
            patches.append(judge.git_names(trees.diff(tree, after, True, context)))
            tree = after
        return start, [text for text in patches if text]


def by_gnu_patch(trees, start, patches, label):
    """What GNU patch makes of it: kind, tree and offsets of each patch."""
    tree, offsets = start, []
    top = trees.write(start, label)
    try:
        for patch in patches:
            fine, after, found = judge.gnu_patch(patch, top)
            if not fine:
                shutil.rmtree(top)
                fuzzy = judge.gnu_patch(patch, trees.write(tree, label), fuzz=3) is None
                return "fuzzy" if fuzzy else "refused", start, []
            tree = after
            offsets.append([pair for entry in found for pair in sorted(entry.items())])
        return "offset" if any(offsets) else "exact", tree, offsets
    finally:
        shutil.rmtree(top)


def by_us(trees, start, patches, top):
    """The same by the module, and the reason where it refuses. What it did it can undo."""
    src, series = trees.write(start, os.path.join(top, "src")), os.path.join(top, "series")
    os.mkdir(series)
    for number, patch in enumerate(patches):
        with open(os.path.join(series, "%04d.patch" % number), "wb") as stream:
            stream.write(patch)
    params = {"src": src, "series": series, "state_dir": os.path.join(top, "state"), "state": "present", "strip": 1,
              "max_offset": judge.ANY_OFFSET, "allow_unverified": True}
    try:
        result = patch_series.reconcile(params, False, False)
    except StackError as error:
        return error.message, judge.read_tree(src), []
    tree = judge.read_tree(src)
    if result["state_before"]["applied"]:
        return STRICTER["patched"], tree, []
    assert not patch_series.reconcile(params, True, False)["changed"]
    patch_series.reconcile(dict(params, state="absent"), False, False)
    assert judge.read_tree(src) == start
    offsets = [[(entry["hunk"], entry["offset"]) for entry in patch["offsets"]] for patch in result["patches"]]
    return "", tree, offsets


def compare(trees, start, patches, label):
    """One series by both; returns what kind of case it was."""
    kind, expected, offsets = by_gnu_patch(trees, start, patches, label + "-gnu")
    reason, tree, ours = by_us(trees, start, patches, os.path.join(trees.folder, label))
    shutil.rmtree(os.path.join(trees.folder, label))
    if reason:
        assert tree == start, "refused, and the tree is not as it was"
        if kind in ("exact", "offset"):
            kind = next((name for name, text in STRICTER.items() if text in reason), None)
            assert kind, reason
        return kind
    assert kind in ("exact", "offset"), "GNU patch: " + kind
    assert tree == expected
    assert ours == offsets
    return kind


def test_hard_series_leave_the_tree_that_gnu_patch_leaves_or_none(tmp_path):
    kinds, patches_done = collections.Counter(), 0
    for seed in range(FIRST, FIRST + SEEDS):
        maker = Maker(seed)
        trees = judge.Trees(seed, str(tmp_path))
        start, patches = maker.series(str(tmp_path))
        if not patches:
            continue
        try:
            kinds[compare(trees, start, patches, "t%d" % seed)] += 1
        except AssertionError as error:
            replay = "TORCHSTACK_PATCH_FIRST_SEED=%d TORCHSTACK_PATCH_SEEDS=1" % seed
            raise AssertionError("%s: %s" % (replay, error)) from error
        patches_done += len(patches)
    if SEEDS >= 500:
        assert kinds["exact"] >= 100 and kinds["offset"] >= 100, kinds
        assert kinds["fuzzy"] >= 50 and kinds["refused"] >= 20, kinds
        assert sum(kinds[name] for name in STRICTER) <= 0.1 * sum(kinds.values()), kinds
        assert patches_done >= SEEDS, patches_done


# -- real histories ---------------------------------------------------------------------------------------------------


def git(repository, *words):
    # The checkout may belong to another account.
    command = ["git", "-c", "safe.directory=*", "-C", repository, *words]
    done = subprocess.run(command, env=judge.ENVIRONMENT, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("git %s: %s" % (words[0], done.stderr.decode("utf-8", "replace").strip()))
    return done.stdout


def ranges(repository, length, count):
    """Stretches of history without merges, each a list of commits from old to new."""
    found = git(repository, "log", "--first-parent", "--no-merges", "--reverse", "--format=%H %P").decode().splitlines()
    commits = [line.split() for line in found if len(line.split()) == 2]
    runs, run = [], []
    for commit, parent in commits:
        if run and (parent != run[-1] or len(run) == length):
            runs.append(run)
            run = []
        run.append(commit)
    runs = [run for run in [*runs, run] if run]
    return runs[::max(len(runs) // count, 1)]


def real_series(repository, commits):
    """The files before the first of these commits that any of them touches, and the commits as patches of text."""
    patches, names = [], set()
    for commit in commits:
        text = git(repository, "format-patch", "--stdout", "--full-index", "--no-color", "-1", commit)
        blobs = git(repository, "diff-tree", "-r", "-z", "--no-renames", commit + "^", commit).split(b"\0")
        modes = b" ".join(blobs[::2])
        if b"GIT binary patch" in text or b"Binary files" in text or b"120000" in modes or b"160000" in modes:
            break
        if b" " in b"".join(blobs[1::2]) or not text:
            break
        names.update(blobs[1::2])
        patches.append(text)
    start = {}
    for name in sorted(name for name in names if name):
        entry = git(repository, "ls-tree", "-z", commits[0] + "^", "--", os.fsdecode(name))
        if entry:
            mode, _kind, blob = entry.split(b"\t")[0].split()
            start[os.fsdecode(name)] = (git(repository, "cat-file", "blob", blob.decode()), mode == b"100755")
    return start, patches


REPOSITORIES = [path for path in os.environ.get("TORCHSTACK_PATCH_REPOSITORIES", "").split(":") if path]
CHECKOUT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.mark.parametrize("repository", [CHECKOUT, *REPOSITORIES], ids=os.path.basename)
def test_real_histories_apply_as_gnu_patch_applies_them(tmp_path, repository):
    kinds, patches_done = collections.Counter(), 0
    trees = judge.Trees(0, str(tmp_path))
    for commits in ranges(repository, 8, 60 if repository in REPOSITORIES else 8):
        start, patches = real_series(repository, commits)
        if patches and start:
            kinds[compare(trees, start, patches, commits[0][:12])] += 1
            patches_done += len(patches)
    print("%s: %s, %d patches" % (repository, dict(kinds), patches_done))
    if not kinds:
        pytest.skip("no history of text changes here: a shallow clone")
    assert kinds["exact"] >= 0.9 * sum(kinds.values()), kinds
