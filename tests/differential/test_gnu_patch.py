# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Applying patches in memory gives, byte for byte and offset for offset, what GNU patch gives without fuzz.

Each seed makes a small tree, a series of changes to it, and the patches as ``diff -u`` or ``git diff`` writes them with
some amount of context. Most trees are then drifted away from what the patches were made for. GNU patch is the judge:
where it fails or wants fuzz we refuse, where it succeeds we give the same bytes and the same offsets.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import stat
import subprocess

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.parser import parse_patch
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.series import Files, apply_patch
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.source_files import TreeFile

pytestmark = pytest.mark.skipif(
    not all(shutil.which(tool) for tool in ("patch", "diff", "git")), reason="needs GNU patch, diff and git"
)

ANY_OFFSET = 10**6
SEEDS = 300
# What GNU patch does silently and a build must not: these alone may be refused where it succeeds.
STRICTER = ("without a newline inside the file", "it inserts at line")
OFFSET = re.compile(r"^Hunk #(\d+) succeeded at \d+(?: \(offset (-?\d+) lines?\))?\.$")
ENVIRONMENT = dict(os.environ, LC_ALL="C", HOME="/nonexistent", GIT_CONFIG_NOSYSTEM="1", GIT_CONFIG_GLOBAL="/dev/null",
                   GIT_CEILING_DIRECTORIES="/")


def command(*words, cwd=None):
    return subprocess.run(
        words, cwd=cwd, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )


class Trees:
    """Trees as dictionaries, their files on disk, and the patches between them."""

    def __init__(self, seed, folder):
        self.random = random.Random(seed)
        self.folder = folder

    def line(self):
        """Few different lines, so that hunks also fit in wrong places."""
        number = self.random.randrange(40)
        return self.random.choice((b"", b"}", b"  return;", b"int x = %d;" % number, b"\xff\xe9 caf"))

    def file(self, length):
        end = self.random.choice((b"\n", b"\n", b"\n", b"\r\n"))
        content = b"".join(self.line() + end for _each in range(length))
        return content[:-1] if content and self.random.random() < 0.2 else content

    def edit(self, content, edits):
        """Replace, insert or delete a few lines."""
        lines = content.split(b"\n")
        for _each in range(edits):
            at = self.random.randrange(len(lines) + 1)
            gone = self.random.choice((0, 0, 1, 2))
            lines[at:at + gone] = [self.line() for _each in range(self.random.choice((0, 1, 1, 3)))]
        return b"\n".join(lines)

    def drift(self, content, how):
        """Nothing, some lines more at the top, or one or two edits anywhere."""
        return (
            content,
            b"".join(b"// %d\n" % self.random.randrange(99) for _each in range(self.random.randint(0, 3))) + content,
            self.edit(content, 1),
            self.edit(content, 2),
        )[how]

    def change(self, tree, git):
        """The tree after one more patch: edits, now and then a file that is new, gone, renamed or of another mode."""
        after = dict(tree)
        for name in self.random.sample(sorted(after), self.random.randint(1, len(after))):
            content, executable = after[name]
            after[name] = (self.edit(content, self.random.randint(1, 4)), executable)
        if self.random.random() < 0.25:
            # GNU patch cannot split "diff --git" with blanks in a name, so blanks are for plain diffs.
            name = "new%sdir/%d.txt" % ("-" if git else " ", self.random.randrange(9))
            after[name] = (self.file(5), self.random.random() < 0.5)
        # Plain diff is silent about an empty file that comes or goes, so these stay.
        full = sorted(path for path, entry in after.items() if entry[0] and tree.get(path, entry)[0])
        if self.random.random() < 0.15 and len(full) > 1:
            after.pop(full.pop(self.random.randrange(len(full))))
        if self.random.random() < 0.15 and full:
            old = self.random.choice(full)
            after["moved/%d" % self.random.randrange(99)] = after.pop(old)
        if self.random.random() < 0.15:
            name = self.random.choice(sorted(after))
            after[name] = (after[name][0], not after[name][1])
        return after

    def write(self, tree, name):
        top = os.path.join(self.folder, name)
        os.makedirs(top, exist_ok=True)
        for path, (content, executable) in tree.items():
            target = os.path.join(top, path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "wb") as stream:
                stream.write(content)
            os.chmod(target, 0o755 if executable else 0o644)
        return top

    def diff(self, before, after, git, context):
        """The patch between two trees as a tool writes it."""
        folders = [self.write(before, "a"), self.write(after, "b")]
        if git:
            words = ["git", "diff", "--no-index", "--no-color", "--no-prefix", "--text", "-M", "-U%d" % context,
                     "a", "b"]
        else:
            words = ["diff", "-u", "-r", "-N", "-a", "-U", str(context), "a", "b"]
        made = command(*words, cwd=self.folder)
        for folder in folders:
            shutil.rmtree(folder)
        assert made.returncode in (0, 1), made.stdout
        return made.stdout


def git_names(patch):
    """Give names from ``git diff --no-index a b`` the form that they have in a repository: no prefix in renames."""
    return re.sub(rb'(?m)^((?:rename|copy) (?:from|to) "?)[ab]/', rb"\1", patch)


def gnu_patch(patch, top, fuzz=0):
    """GNU patch's opinion: (succeeded, tree, offsets in order of file and hunk), or None where it took to fuzz."""
    file = top + ".patch"
    with open(file, "wb") as stream:
        stream.write(patch)
    done = command(
        "patch", "-p1", "--fuzz=%d" % fuzz, "-f", "--binary", "--no-backup-if-mismatch", "-r", "-", "-i", file, cwd=top
    )
    text = done.stdout.decode("utf-8", "replace")
    if "with fuzz" in text:
        return None
    offsets = []
    for line in text.splitlines():
        if line.startswith("patching file "):
            offsets.append({})
        match = OFFSET.match(line)
        if match and match.group(2):
            offsets[-1][int(match.group(1))] = int(match.group(2))
    return done.returncode == 0, read_tree(top), [entry for entry in offsets if entry]


def read_tree(top):
    found = {}
    for folder, _folders, files in os.walk(top):
        for name in files:
            path = os.path.join(folder, name)
            with open(path, "rb") as stream:
                content = stream.read()
            found[os.path.relpath(path, top)] = (content, bool(os.stat(path).st_mode & stat.S_IXUSR))
    return found


def ours(patch, tree):
    """Our opinion in the same form, and the reason of a refusal. What we accept we can also undo."""
    start = {os.fsencode(path): TreeFile(content, 0o755 if x else 0o644) for path, (content, x) in tree.items()}
    files = Files(start.get)
    parsed = parse_patch(patch, b"it.patch", 1)
    outcome = apply_patch(parsed, files, ANY_OFFSET)
    if outcome.faults:
        return False, None, None, outcome.faults[0].reason
    paths = set(start) | {path for section in parsed.files for path in (section.old, section.new)}
    after = {path: files.get(path) for path in paths}
    result = {os.fsdecode(path): (file.content, file.executable) for path, file in after.items() if file is not None}
    undone = apply_patch(parsed, files, 0, outcome.offsets, undo=True)
    assert not undone.faults
    assert {path: files.get(path) for path in paths} == {path: start.get(path) for path in paths}
    offsets = [{hunk: by for hunk, by in enumerate(used, 1) if by} for used in outcome.offsets]
    return True, result, [entry for entry in offsets if entry], ""


def compare(trees, patch, tree, label):
    """One patch on one tree; returns what kind of case it was, and the patched tree."""
    top = trees.write(tree, label)
    fine, expected, expected_offsets = gnu_patch(patch, top)
    shutil.rmtree(top)
    accepted, result, offsets, reason = ours(patch, tree)
    if not fine:
        assert not accepted, "GNU patch refuses it"
        fuzzy = gnu_patch(patch, trees.write(tree, label), fuzz=2) is None
        shutil.rmtree(top)
        return "fuzzy" if fuzzy else "refused", None
    if not accepted:
        assert any(text in reason for text in STRICTER), reason
        return "stricter", None
    assert result == expected
    assert offsets == expected_offsets
    return "offset" if offsets else "exact", result


def series_of(trees):
    """A pristine tree, the patches of a series made from it, and the tree after all of them."""
    tree = {name: (trees.file(trees.random.choice((0, 3, 12, 40))), False) for name in ("x.c", "sub/y.h", "z")}
    pristine, patches = tree, []
    git, context = trees.random.random() < 0.5, trees.random.choice((0, 1, 2, 3, 3, 3, 5))
    for _each in range(trees.random.randint(1, 4)):
        after = trees.change(tree, git)
        patch = trees.diff(tree, after, git, context)
        if patch:
            patches.append(git_names(patch) if git else patch)
            tree = after
    return pristine, patches, tree


def test_a_series_gives_what_gnu_patch_gives_byte_for_byte(tmp_path):
    kinds = {"exact": 0, "offset": 0, "refused": 0, "fuzzy": 0, "stricter": 0}
    for seed in range(SEEDS):
        trees = Trees(seed, str(tmp_path))
        pristine, patches, last = series_of(trees)
        drift = seed % 4
        tree = {name: (trees.drift(content, drift), x) for name, (content, x) in pristine.items()}
        for number, patch in enumerate(patches):
            kind, result = compare(trees, patch, tree, "t%d-%d" % (seed, number))
            kinds[kind] += 1
            if result is None:
                assert drift, (seed, number)
                break
            tree = result
        else:
            if not drift:
                contents = [{path: entry[0] for path, entry in side.items()} for side in (tree, last)]
                assert contents[0] == contents[1], seed
    assert all(kinds[kind] >= 50 for kind in ("exact", "offset", "refused")) and kinds["fuzzy"] >= 20, kinds
    assert kinds["stricter"] <= 0.1 * sum(kinds.values()), kinds
