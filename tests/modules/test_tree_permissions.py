# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""tree_permissions as Ansible runs it."""

from __future__ import annotations

import os
import stat
import struct
import subprocess
import types

import pytest
from ansible_collections.hpcml.torchstack.plugins.modules import tree_permissions


def mode(path):
    return stat.S_IMODE(os.lstat(str(path)).st_mode)


@pytest.fixture()
def release(tmp_path):
    top = tmp_path / "root" / "release"
    (top / "bin").mkdir(parents=True)
    (top / "lib").mkdir()
    (top / "bin" / "tool").write_text("#!/bin/sh\n")
    (top / "bin" / "tool").chmod(0o755)
    (top / "lib" / "data").write_text("")
    (top / "lib" / "data").chmod(0o644)
    (top / "lib" / "link").symlink_to("data")
    for directory in (top, top / "bin", top / "lib"):
        directory.chmod(0o755)
    yield top
    subprocess.run(["chmod", "-R", "u+rwX", str(top)], check=True)


def arguments(release, **more):
    return dict({"path": str(release), "root": str(release.parent), "state": "frozen"}, **more)


def test_check_do_check_again_do_again(run_module, release):
    planned = run_module("tree_permissions", arguments(release), check=True, diff=True)
    assert planned.changed and not planned.failed
    assert mode(release / "lib" / "data") == 0o644
    done = run_module("tree_permissions", arguments(release), diff=True)
    assert done.changed
    assert planned.shown_difference == done.shown_difference != []
    for key in ("drift", "drift_total", "files", "directories", "symlinks", "changed_files"):
        assert planned[key] == done[key], key
    assert [mode(release / name) for name in ("", "bin/tool", "lib/data")] == [0o555, 0o555, 0o444]
    for check in (True, False):
        again = run_module("tree_permissions", arguments(release), check=check, diff=True)
        assert not again.changed and not again.failed
        assert (again["drift"], again.shown_difference) == ([], [])


def test_the_diff_shows_counts_and_old_and_new_modes(run_module, release):
    result = run_module("tree_permissions", arguments(release, max_listed=2), check=True, diff=True)
    assert result.shown_difference == [
        "-0755 .", "-0755 bin", "+0555 .", "+0555 bin",
        "+# 2 of 2 files and 3 of 3 directories change, 3 more not listed",
    ]


def test_thaw_after_freeze_gives_the_owner_the_write_bit(run_module, release):
    run_module("tree_permissions", arguments(release))
    result = run_module("tree_permissions", arguments(release, state="writable"))
    assert result.changed
    assert [mode(release / name) for name in ("", "bin/tool", "lib/data")] == [0o755, 0o755, 0o644]
    assert not run_module("tree_permissions", arguments(release, state="writable")).changed


def test_a_part_of_a_release_can_be_thawed_alone(run_module, release):
    run_module("tree_permissions", arguments(release))
    run_module("tree_permissions", arguments(release / "lib", root=str(release.parent), state="writable"))
    assert (mode(release / "lib" / "data"), mode(release / "bin" / "tool")) == (0o644, 0o555)


def test_s03_freeze_repairs_directories_left_at_2500_and_reports_them(run_module, release):
    (release / "lib").chmod(0o2500)
    result = run_module("tree_permissions", arguments(release))
    assert mode(release / "lib") == 0o2555
    assert {"path": "lib", "from": "2500", "to": "2555"} in result["drift"]


def test_a_policy_of_the_site_is_followed_and_a_wrong_one_refused_before_anything_changes(run_module, release):
    refused = run_module("tree_permissions", arguments(release, policy={"files": "0644"}))
    assert refused.failed and refused["failed_step"] == "policy"
    assert "leaves a write bit" in refused["msg"]
    assert mode(release / "bin") == 0o755
    run_module(
        "tree_permissions", arguments(release, policy={"files": "440", "executables": "a-w,o=", "directories": "2550"})
    )
    assert [mode(release / name) for name in ("lib", "bin/tool", "lib/data")] == [0o2550, 0o550, 0o440]


def test_excluded_paths_stay_as_they_are(run_module, release):
    result = run_module("tree_permissions", arguments(release, exclude=["lib"]))
    assert result["excluded"] == 1
    assert (mode(release / "lib"), mode(release / "lib" / "data"), mode(release / "bin")) == (0o755, 0o644, 0o555)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"path": "/", "root": "/"}, "is the root of the file system"),
        ({"root": "/"}, "is the root of the file system"),
        ({"path": "/usr/bin"}, "lies outside"),
        ({"path": "{release}/link"}, "is a symbolic link"),
        ({"path": "{release}/nothing"}, "does not exist"),
        ({"path": "{home}", "root": "{home}"}, "is the home directory"),
    ],
    ids=["slash", "a boundary of slash", "a path outside root", "a link", "nothing", "a home"],
)
def test_what_must_not_be_frozen_is_refused_and_nothing_changes(run_module, release, change, words):
    (release / "link").symlink_to("lib")
    home = os.path.realpath(os.path.expanduser("~"))
    change = {key: value.format(release=release, home=home) for key, value in change.items()}
    if "{home}" in str(change) or not os.path.isdir(home):
        pytest.skip("this account has no home directory")
    result = run_module("tree_permissions", arguments(release, **change), check=change.get("path") == home)
    assert result.failed and result["failed_step"] == "check the boundary"
    assert words in result["msg"]
    assert mode(release / "lib" / "data") == 0o644


def test_setgid_directories_stay_setgid_frozen_and_thawed(run_module, release):
    (release / "lib").chmod(0o2775)
    run_module("tree_permissions", arguments(release))
    assert mode(release / "lib") == 0o2555
    run_module("tree_permissions", arguments(release, state="writable"))
    assert mode(release / "lib") == 0o2755


def test_symbolic_links_are_never_followed(run_module, release, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("")
    (outside / "file").chmod(0o644)
    outside.chmod(0o755)
    (release / "to directory").symlink_to(outside)
    (release / "lib" / "to file").symlink_to(outside / "file")
    result = run_module("tree_permissions", arguments(release))
    assert result["symlinks"] == 3
    assert (mode(outside), mode(outside / "file")) == (0o755, 0o644)


def test_hard_links_are_frozen_under_all_their_names_and_those_outside_reported(run_module, release):
    os.link(str(release / "lib" / "data"), str(release / "bin" / "same"))
    os.link(str(release / "bin" / "tool"), str(release.parent / "cache"))
    result = run_module("tree_permissions", arguments(release))
    assert [mode(release / name) for name in ("lib/data", "bin/same", "bin/tool")] == [0o444, 0o444, 0o555]
    assert (result["hardlinked"], result["hardlinked_outside"], result["changed_files"]) == (3, 1, 2)
    assert not run_module("tree_permissions", arguments(release)).changed


def test_a_plan_for_a_tree_that_an_earlier_step_creates_names_that_step(run_module, release):
    later = arguments(release / "later", root=str(release.parent), planned_after="pytorch install")
    planned = run_module("tree_permissions", later, check=True)
    assert planned.changed and planned["planned_after"] == "pytorch install"
    assert run_module("tree_permissions", later).failed


def test_the_umask_of_the_caller_does_not_matter(run_module, release):
    previous = os.umask(0o077)
    try:
        run_module("tree_permissions", arguments(release))
    finally:
        os.umask(previous)
    assert [mode(release / name) for name in ("", "bin/tool", "lib/data")] == [0o555, 0o555, 0o444]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may change files of any owner")
def test_names_that_are_no_text_come_through_the_report(run_module, release):
    with open(os.path.join(os.fsencode(str(release)), b"caf\xe9\n"), "wb"):
        pass
    result = run_module("tree_permissions", arguments(release))
    assert "caf\\xe9\n" in [entry["path"] for entry in result["drift"]]


def test_a_freeze_warns_of_a_default_access_list_that_lets_others_write(run_module, release):
    entries = b"".join(struct.pack("<HHI", tag, bits, 0xFFFFFFFF) for tag, bits in ((1, 7), (4, 7), (32, 5)))
    try:
        os.setxattr(str(release / "lib"), "system.posix_acl_default", struct.pack("<I", 2) + entries)
    except OSError as error:
        pytest.skip("needs a file system with access control lists: %s" % error.strerror)
    for check in (True, False):
        done = run_module("tree_permissions", arguments(release), check=check)
        assert [(one["path"], one["kind"]) for one in done["special"]] == [("lib", "default access list")]
    warned = []
    asked = arguments(
        release, policy=None, exclude=[], keep_private=[], workers=1, max_listed=100, planned_after=None)
    module = types.SimpleNamespace(params=asked, check_mode=True, _diff=False, warn=warned.append)
    tree_permissions.run(module)
    assert len(warned) == 1 and "setfacl --remove-default" in warned[0] and "first lib." in warned[0]
    asked["state"] = "writable"
    tree_permissions.run(module)
    assert len(warned) == 1
