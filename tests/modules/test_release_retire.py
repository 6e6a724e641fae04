# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""release_retire and release_in_use: what they refuse, and what they do, on a real root.

Covers retire_steps of module_utils/lifecycle, too.
"""

from __future__ import annotations

import getpass
import json
import os
import shutil
import stat
import subprocess
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.account import actor
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import retire_steps
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import open_files
from ansible_collections.hpcml.torchstack.plugins.modules import release_in_use, release_retire
from support import published_release

MAPS = """
import mmap, os, sys
with open(sys.argv[1], "rb") as stream:
    pages = mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ)
print("mapped", flush=True)
sys.stdin.read()
"""
OPTIONS = {
    "to": None, "minimum_age": 0, "notice_days": 0, "uses": [], "unseen": "", "reason": "", "successor": "",
    "until": "", "notice": "",
}


@pytest.fixture(name="root")
def two_releases(tmp_path):
    """Release r1 beside the default r2; other accounts may look into both."""
    root = tmp_path / "root"
    for name in ("r1", "r2"):
        published_release.stage(root, name)
        (root / name / "libx.so").write_bytes(b"x" * 5000)
        published_release.change(root, name)
    published_release.change(root, "r2", default=True)
    return root


@pytest.fixture(name="mapping")
def process_that_maps():
    """Have a process map a file, as whoever the words before it make it."""
    started = []

    def mapping(path, *words):
        process = subprocess.Popen(
            [*words, sys.executable if not words else "/usr/bin/python3", "-c", MAPS, str(path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout.readline() == b"mapped\n"
        return process

    yield mapping
    for process in started:
        process.communicate()


def retire(root, release="r1", state="judged", apply=True, **more):
    return release_retire.retire(dict(OPTIONS, root=str(root), release=release, state=state, **more), apply)


def uses(root, release="r1"):
    return release_in_use.find_processes({"root": str(root), "release": release, "leases": True})


def put_aside(root):
    """What the playbook does first: its users are told, and it is moved away."""
    published_release.change(root, "r1", "gone", notice="It is gone.")
    return retire(root, state="aside")


def refused(root, release="r1", **more):
    """Every reason that it gives; nothing is changed by that."""
    before = sorted((str(path), path.lstat().st_mtime_ns) for path in root.rglob("*"))
    with pytest.raises(StackError) as caught:
        retire(root, release, to="removed", **more)
    assert sorted((str(path), path.lstat().st_mtime_ns) for path in root.rglob("*")) == before
    return str(caught.value.as_result()["msg"])


def test_s10_check_do_check_again_do_again(run_module, root):
    asked = {"root": str(root), "release": "r1", "state": "deprecated", "reason": "too old", "notice_days": 14}
    record = root / ".torchstack" / "r1" / "retired.json"
    planned = run_module("release_retire", asked, check=True, diff=True)
    assert planned.changed and not planned.failed and not record.exists()
    done = run_module("release_retire", asked, diff=True)
    assert done.changed and planned["notice"] == done["notice"]
    assert [line for line in done.shown_difference if "since" not in line and "told_at" not in line] == [
        line for line in planned.shown_difference if "since" not in line and "told_at" not in line]
    written = json.loads(record.read_text())
    assert (written["state"], written["reason"], written["successor"]) == ("deprecated", "too old", "r2")
    before = record.stat().st_mtime_ns
    assert not run_module("release_retire", asked, check=True).changed
    assert not run_module("release_retire", asked).changed
    assert record.stat().st_mtime_ns == before
    (entry,) = [json.loads(line) for line in (root / ".torchstack" / "r1" / "retire.jsonl").read_text().splitlines()]
    assert (entry["action"], entry["by"], entry["reason"]) == ("deprecated", actor(), "too old")


def test_s10_who_uses_a_release_is_told_through_ansible_in_check_mode_too(run_module, root, mapping):
    process = mapping(root / "r1" / "libx.so")
    for check in (False, True):
        found = run_module("release_in_use", {"root": str(root), "release": "r1"}, check=check)
        assert not found.changed and found["in_use"] and found["host"] == os.uname().nodename
        assert [(use["pid"], use["how"]) for use in found["processes"]] == [(process.pid, "mapped")]


def test_s10_the_default_is_refused(root):
    assert "It is the default of Environment Modules and Lmod" in refused(root, "r2", uses=[uses(root, "r2")])


def test_a_host_whose_account_may_not_look_into_the_root_has_not_looked(root):
    mode = stat.S_IMODE(root.stat().st_mode)
    root.chmod(0)
    try:
        with pytest.raises(StackError, match=r"Cannot look for processes that use .*Permission denied"):
            uses(root)
    finally:
        root.chmod(mode)


def test_s10_a_release_in_use_is_refused(root, mapping):
    process = mapping(root / "r1" / "libx.so")
    text = refused(root, uses=[uses(root)])
    assert "1 process uses it: %d of %s" % (process.pid, getpass.getuser()) in text
    assert "(mapped %s)" % (root / "r1" / "libx.so") in text


def test_s10_a_release_that_another_account_uses_is_refused_though_proc_does_not_show_it(root, mapping, ordinary_user):
    path = root / "r1" / "libx.so"
    with open_files.ignored_lease_breaks():
        if open_files.query_lease(None, str(path)) == open_files.UNSUPPORTED:
            pytest.skip("the file system of the tests has no leases")
    for directory in path.parents:
        if directory.stat().st_uid == os.geteuid():
            directory.chmod(directory.stat().st_mode | 0o055)
    mapping(path, "sudo", "-n", "-u", ordinary_user)
    found = uses(root)
    # Only root could say who; sudo itself is root's.
    assert found["in_use"] and found["held"] == [str(path)]
    text = refused(root, uses=[found])
    assert str(path) in text


@pytest.mark.parametrize("release", ["../root/r1", ".", "..", "", "modulefiles", "link", "open", "r1/"])
def test_s10_what_is_not_a_release_is_refused(root, release):
    (root / "link").symlink_to("r1")
    (root / "open" / ".torchstack").mkdir(parents=True)
    (root / "open" / ".torchstack" / "release.yml").write_text("release: open\n")
    text = refused(root, release)
    assert "is not a frozen release" in text or "is not the name of a release" in text


def test_all_reasons_are_given_at_once(root, mapping):
    mapping(root / "r2" / "libx.so")
    unreached = {"item": "login02", "unreachable": True, "msg": "Failed to connect to the host via ssh"}
    text = refused(root, "r2", minimum_age=10000, notice_days=14, uses=[uses(root, "r2"), unreached])
    for number, words in enumerate((
        "It is the default", "It was frozen at", "Its users have not been told",
        "On %s, 1 process uses it" % os.uname().nodename,
        "login02 could not be looked at: Failed to connect to the host via ssh.",
    ), 1):
        assert "(%d) %s" % (number, words) in text


def test_what_was_put_aside_is_found_there(root, mapping):
    mapping(root / "r1" / "libx.so")
    assert put_aside(root)["changed"]
    found = uses(root)
    assert found["path"] == str(root / ".torchstack" / "r1" / "removing") and found["process_count"] == 1
    back = retire(root, state="deleting", uses=[found])
    assert back["put_back"] and "1 process uses it" in back["problems"][0]
    assert uses(root)["path"] == str(root / "r1")


def test_what_is_published_after_it_was_judged_is_not_put_aside(root):
    published_release.stage(root, "r3")
    assert not retire(root, "r3", to="removed")["seen"]
    published_release.change(root, "r3")
    with pytest.raises(StackError) as caught:
        retire(root, "r3", state="aside")
    assert "was published meanwhile, and loads in Environment Modules and Lmod" in str(caught.value)
    assert (root / "r3").exists() and not (root / ".torchstack" / "r3" / "retired.json").exists()


def test_check_mode_of_a_removal_is_its_plan_and_changes_nothing(root):
    before = sorted(str(path) for path in root.rglob("*"))
    planned = retire(root, to="removed", apply=False)["planned"]
    assert planned["names"] == 4 and planned["shared"] == 0
    for state in ("aside", "deleting", "removed"):
        seen = retire(root, state=state, apply=False)
        assert seen["changed"] and seen["planned"] == planned and not seen.get("put_back")
    assert sorted(str(path) for path in root.rglob("*")) == before


def test_an_image_that_another_release_uses_stays(root):
    for image, users in (("0123456789ab", ["r1"]), ("ba9876543210", ["r1", "r2"]), ("aaaaaaaaaaaa", [])):
        (root / "images" / image).mkdir(parents=True)
        (root / "images" / image / "x.sif").write_bytes(b"sif")
        for name in users:
            with open(str(root / name / ".torchstack" / "release.yml"), "a", encoding="utf-8") as stream:
                stream.write("# sha256: %s...\n" % image)
    aside = put_aside(root)
    assert [os.path.basename(tree) for tree in aside["trees"]] == ["removing", "removing-image-0123456789ab"]
    assert aside["planned"]["names"] == 4 + 2
    assert sorted(os.listdir(str(root / "images"))) == ["aaaaaaaaaaaa", "ba9876543210"]


def test_an_image_of_a_release_that_is_aside_stays_as_that_may_be_put_back(root):
    (root / "images" / "ba9876543210").mkdir(parents=True)
    (root / "images" / "release-notes").mkdir()
    for release in ("r1", "r2"):
        with open(str(root / release / ".torchstack" / "release.yml"), "a", encoding="utf-8") as stream:
            stream.write("# sha256: ba9876543210... release-notes\n")
    aside = root / ".torchstack" / "r2" / "removing"
    os.rename(str(root / "r2"), str(aside))
    assert retire_steps.own_images(str(root), str(root / "r1"), "r1") == []
    shutil.rmtree(str(aside))
    assert retire_steps.own_images(str(root), str(root / "r1"), "r1") == ["ba9876543210"]


def test_what_is_left_is_not_recorded_as_removed(root):
    put_aside(root)
    retire(root, state="deleting")
    with pytest.raises(StackError) as caught:
        retire(root, state="removed")
    assert "removing is still there" in str(caught.value)


def test_a_release_that_is_kept_after_all_has_no_record_of_a_retirement(root):
    retire(root, state="hidden")
    assert retire(root, state="kept")["changed"]
    assert not (root / ".torchstack" / "r1" / "retired.json").exists()
    assert not retire(root, state="kept")["changed"]
