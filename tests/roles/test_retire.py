# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A release that comes into use while it is retired is put back, and the name of one that is gone is not used again."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest
from support import published_release, sites
from support.role_plays import play_tasks

CHECKOUT = pathlib.Path(__file__).parents[2]


@pytest.fixture(name="small")
def small_root(tmp_path):
    root = tmp_path / "root"
    published_release.stage(root, "r1")
    published_release.change(root, "r1")
    (root / "r1" / "libx.so").write_bytes(b"x" * 5000)
    (root / "r1").chmod(0o555)
    yield root
    (root / "r1").chmod(0o755)


def test_a_release_that_comes_into_use_meanwhile_is_put_back_and_users_see_it_as_before(small, ansible_environment):
    program = "import sys; stream = open(sys.argv[1]); print(1, flush=True); sys.stdin.read()"
    user = subprocess.Popen(
        [sys.executable, "-c", program, str(small / "r1" / "libx.so")], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    user.stdout.readline()
    visible = small / "modulefiles" / "lmod" / "torchstack" / "r1.lua"
    seen = visible.read_bytes()
    published_release.change(small, "r1", "gone", notice="It was retired.")
    # What the role knows when it has looked once, and nobody used it.
    variables = {"torchstack_root": str(small), "torchstack_release": "r1", "retire_to": "removed",
                 "retire_judged": {"deleting": False, "seen": True, "stage": ""}}
    process = play_tasks("retire", "remove", variables, [{}], ansible_environment, small.parent)
    user.communicate()
    assert process.returncode != 0
    text = " ".join(process.stdout.split())
    assert "Release r1 is back in its place, and nothing of it was removed: it came into use meanwhile." in text
    assert "1 process uses it: %d of" % user.pid in text
    assert (small / "r1" / "libx.so").stat().st_size == 5000
    assert visible.read_bytes() == seen


def test_the_name_of_a_retired_release_is_not_rolled_out_again(small, ansible_environment):
    retired = {"state": "removed", "since": "2026-11-22T08:00:00Z"}
    (small / ".torchstack" / "r1" / "retired.json").write_text(json.dumps(retired))
    original = CHECKOUT / "inventories" / "local" / "releases" / "2026-11-20.yml"
    asked = original.read_text().replace('release: "2026-11-20"', 'release: "r1"')
    sites.write_release(asked, small.parent / "r1.yml", original)
    variables = {"torchstack_site": "mysite", "torchstack_release": "r1", "torchstack_root": str(small),
                 "release_file": str(small.parent / "r1.yml"), "release_definition": {"base": {"kind": "overlay"}}}
    process = play_tasks("release", "records", variables, [{}], ansible_environment, small.parent)
    assert process.returncode != 0
    assert "Release r1 was retired on 2026-11-22, and its name is not used again" in " ".join(process.stdout.split())


def test_a_release_that_is_kept_after_all_is_seen_as_before(small, ansible_environment):
    tree = small / "modulefiles"
    before = {str(path): path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    variables = {"torchstack_root": str(small), "torchstack_release": "r1", "retire_minimum_age": 0,
                 "retire_to": "{{ case.to }}"}
    cases = [{"to": "hidden"}, {"to": "kept"}]
    process = play_tasks("retire", "main", variables, cases, ansible_environment, small.parent)
    assert process.returncode == 0, process.stdout[-6000:]
    text = " ".join(process.stdout.split())
    assert "not retired before, hidden now" in text and "hidden before, kept now" in text
    after = {str(path): path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    assert {path: content for path, content in after.items() if path in before} == before
    assert not (small / ".torchstack" / "r1" / "retired.json").exists()
