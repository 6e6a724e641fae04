# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The patch series of the pytorch role: their headers, what is refused of them, and that their links last."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.series import load_series
from ansible_collections.hpcml.torchstack.plugins.modules import patch_series
from support.pytorch_sources import BACKEND

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
ROLE = CHECKOUT / "roles" / "pytorch"
SERIES = ROLE / "files" / "series"
VERSIONS = sorted(name for name in os.listdir(SERIES) if name[0].isdigit())
# The real files that these would be made from could not be had.
UNVERIFIED = {
    ("2.0.1", "0001-ask-the-mpi-for-cuda-support.patch"),
    ("2.0.1", "0002-make-a-group-among-its-members.patch"),
    ("2.0.1", "0003-reduce-scatter-over-mpi.patch"),
}


def headers(version):
    """The text before the diff of each patch of a version, by the patch's name."""
    found = {path.name: path.read_text().partition("\n---\n") for path in (SERIES / version).iterdir()}
    return {name: head for name, (head, _rule, _diff) in found.items()}


def made_up_tree(version, place):
    """A tree with only the lines that the patches of a version want to find, each where they want it."""
    files, moved = {}, {}
    for patch in load_series(str(SERIES / version)).patches:
        for part in patch.files:
            lines = files.setdefault(part.new, [])
            shift = moved.get(part.new, 0)
            for hunk in part.hunks:
                lines += [b"// line %d\n" % number for number in range(len(lines) + 1, hunk.first - shift)]
                lines += hunk.old
                moved[part.new] = moved.get(part.new, 0) + len(hunk.new) - len(hunk.old)
    for path, lines in files.items():
        target = place / os.fsdecode(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"".join(lines))
    return place


def apply(tree, series, **options):
    arguments = {"src": str(tree), "series": str(series), "state_dir": str(tree.parent / "state"), "state": "present",
                 "strip": 1, "max_offset": 0, "allow_unverified": False, "planned_after": None}
    return patch_series.reconcile(dict(arguments, **options), False, False)


@pytest.mark.parametrize("version", VERSIONS)
def test_each_patch_says_why_where_it_stands_upstream_and_when_to_drop_it(version):
    heads = headers(version)
    assert heads
    for number, (name, head) in enumerate(sorted(heads.items()), 1):
        assert re.match(r"%04d-[a-z0-9-]+\.patch$" % number, name)
        assert re.match(r"[A-Z][^\n]+[^.\n]\n\n\S", head), "a title, an empty line, and why"
        assert all(len(line) <= 120 for line in head.splitlines())
        for word in ("Upstream", "Unverified" if (version, name) in UNVERIFIED else "Verified", "Drop when"):
            assert len(re.findall("^%s: " % word, head, re.MULTILINE)) == 1, (name, word)


@pytest.mark.parametrize("version", VERSIONS)
def test_s16_only_a_verified_patch_names_blobs_and_they_follow_from_each_other(version):
    last = {}
    for patch in load_series(str(SERIES / version)).patches:
        name = os.fsdecode(patch.name)
        for part in patch.files:
            if (version, name) in UNVERIFIED:
                assert (part.old_id, part.new_id) == (None, None)
                continue
            assert re.fullmatch("[0-9a-f]{40}", part.old_id)
            assert re.fullmatch("[0-9a-f]{40}", part.new_id)
            if part.old in last:
                assert last[part.old] == part.old_id
            else:
                assert "applied to blob %s " % part.old_id in headers(version)[name]
            last[part.new] = part.new_id


@pytest.mark.parametrize("version", VERSIONS)
def test_s16_a_series_is_refused_on_files_that_it_was_not_made_for_unless_allowed(version, tmp_path):
    tree = made_up_tree(version, tmp_path / "tree")
    before = contents(tree)
    with pytest.raises(StackError) as refusal:
        apply(tree, SERIES / version)
    assert "unverified" in refusal.value.message
    assert "allow_unverified" in refusal.value.remedy
    notes = {(note["patch"], note["named"] is None) for note in refusal.value.details["unverified"]}
    assert {(version, name) for name, unnamed in notes if unnamed} == {
        (of, name) for of, name in UNVERIFIED if of == version}
    assert contents(tree) == before
    done = apply(tree, SERIES / version, allow_unverified=True)
    assert (done["changed"], done["verified"]) == (True, False)
    asking = [path for path, content in contents(tree).items() if b"MPICH_GPU_SUPPORT_ENABLED" in content]
    assert asking == [BACKEND]


def contents(tree):
    return {str(path.relative_to(tree)): path.read_bytes() for path in tree.rglob("*") if path.is_file()}


@pytest.mark.parametrize("version, target", [("2.4.1", "2.4.0"), ("2.3.1", "2.2.2")])
def test_s15_a_version_with_the_same_files_links_to_the_patches_of_another(version, target):
    names = sorted(os.listdir(SERIES / target))
    assert [os.readlink(SERIES / version / name) for name in names] == ["../%s/%s" % (target, name) for name in names]
    assert load_series(str(SERIES / version)).digest == load_series(str(SERIES / target)).digest


def test_s15_links_survive_a_built_collection_and_become_files_when_a_role_copies_them(tmp_path, ansible_environment):
    source = tmp_path / "source"
    shutil.copytree(ROLE, source / "roles" / "pytorch", symlinks=True)
    shutil.copytree(CHECKOUT / "meta", source / "meta")
    for name in ("galaxy.yml", "README.md"):
        shutil.copy(CHECKOUT / name, source)
    programs, there = os.path.dirname(sys.executable), tmp_path / "there"
    # The checkout on PYTHONPATH would count as the collection installed.
    environment = dict(ansible_environment, ANSIBLE_COLLECTIONS_PATH=str(there))
    environment.pop("PYTHONPATH", None)

    def run(program, *words):
        done = subprocess.run(
            [os.path.join(programs, program), *words], cwd=str(tmp_path), env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )
        assert done.returncode == 0, done.stdout

    run("ansible-galaxy", "collection", "build", "--output-path", str(tmp_path), str(source))
    archive = next(tmp_path.glob("*.tar.gz"))
    run("ansible-galaxy", "collection", "install", "--offline", "--no-deps", "-p", str(there), str(archive))
    installed = next(there.glob("ansible_collections/*/*/roles/pytorch/files/series"))
    for version in ("2.3.1", "2.4.1"):
        expected = load_series(str(SERIES / version)).digest
        assert load_series(str(installed / version)).digest == expected
        copy = tmp_path / ("copy-" + version)
        words = "src=%s/ dest=%s/ mode=0644 directory_mode=0755" % (installed / version, copy)
        run("ansible", "localhost", "-c", "local", "-m", "ansible.builtin.copy", "-a", words)
        assert load_series(str(copy)).digest == expected
        assert not [path for path in [copy, *copy.iterdir()] if path.is_symlink()]
