# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""tree_manifest as Ansible runs it."""

from __future__ import annotations

import json
import os
import stat
import struct
import subprocess

import pytest


def mode(path):
    return stat.S_IMODE(os.lstat(str(path)).st_mode)


@pytest.fixture()
def release(tmp_path):
    """A frozen release."""
    top = tmp_path / "root" / "release"
    for name in ("bin/tool", "lib/data", "lib/deep/x.so", ".torchstack/release.yml"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(name)
        (top / name).chmod(0o644)
    (top / "lib" / "link").symlink_to("data")
    for directory in (top, top / "bin", top / "lib", top / "lib" / "deep", top / ".torchstack"):
        directory.chmod(0o755)
    subprocess.run(["chmod", "-R", "a-w", str(top)], check=True)
    yield top
    subprocess.run(["chmod", "-R", "u+rwX", str(top.parent)], check=True)


def arguments(release, **more):
    place = str(release / ".torchstack" / "manifest.json")
    return dict({"path": str(release), "root": str(release.parent), "record": place}, **more)


def test_check_do_check_again_do_again(run_module, release):
    place = release / ".torchstack" / "manifest.json"
    planned = run_module("tree_manifest", arguments(release), check=True, diff=True)
    assert planned.changed and not planned.failed
    assert not place.exists() and mode(release / ".torchstack") == 0o555
    done = run_module("tree_manifest", arguments(release), diff=True)
    assert done.changed
    assert planned.shown_difference == done.shown_difference != []
    for key in ("digest", "previous", "counts", "bytes", "totals", "added", "excluded"):
        assert planned[key] == done[key], key
    assert json.loads(place.read_text())["digest"] == done["digest"]
    assert (mode(place), mode(release / ".torchstack")) == (0o444, 0o555)
    before = os.stat(str(place)).st_mtime_ns
    for check in (True, False):
        again = run_module("tree_manifest", arguments(release), check=check, diff=True)
        assert not again.changed and not again.failed
        assert (again["digest"], again["previous"], again.shown_difference) == (done["digest"], done["digest"], [])
    assert os.stat(str(place)).st_mtime_ns == before


def test_a_freeze_finds_nothing_to_do_after_the_record_was_written(run_module, release):
    run_module("tree_manifest", arguments(release))
    freeze = {"path": str(release), "root": str(release.parent), "state": "frozen"}
    assert not run_module("tree_permissions", freeze).changed
    assert not run_module("tree_manifest", arguments(release, state="compared")).failed


def test_the_diff_shows_what_came_went_and_changed(run_module, release):
    first = run_module("tree_manifest", arguments(release))
    (release / "lib").chmod(0o755)
    (release / "lib" / "data").chmod(0o644)
    (release / "lib" / "data").write_text("LIB/DATA")
    (release / "lib" / "new").write_text("")
    (release / "lib" / "link").unlink()
    result = run_module("tree_manifest", arguments(release, max_listed=2), check=True, diff=True)
    shown = "\n".join(result.shown_difference)
    assert "-# digest %s" % first["digest"] in shown and "+# digest %s" % result["digest"] in shown
    for line in ("-removed: lib/link", "+added: lib/new", "-mode: lib: 0555", "+mode: lib: 0755"):
        assert line in shown
    assert "+# 1 more not listed" in shown
    assert result["totals"]["content"] == 1


def test_comparing_fails_on_drift_and_says_what_and_where(run_module, release):
    run_module("tree_manifest", arguments(release))
    same = run_module("tree_manifest", arguments(release, state="compared"))
    assert same["matches"] is True and not same.failed and not same.changed
    (release / "lib" / "deep" / "x.so").chmod(0o755)
    (release / "lib" / "data").chmod(0o644)
    (release / "lib" / "data").write_text("LIB/DATA")
    (release / "lib" / "data").chmod(0o444)
    result = run_module("tree_manifest", arguments(release, state="compared"))
    assert result.failed and not result.changed and result["failed_step"] == "compare"
    assert "(1 mode, 1 content), first lib/data, lib/deep/x.so." in result["msg"]
    assert {(entry["kind"], entry["path"]) for entry in result["differing"]} == {
        ("content", "lib/data"), ("mode", "lib/deep/x.so")
    }
    reported = run_module("tree_manifest", arguments(release, state="compared", fail_on_drift=False), check=True)
    assert not reported.failed and not reported.changed and reported["matches"] is False
    assert reported["differing"] == result["differing"]


def test_a_quick_comparison_reads_no_file(run_module, release):
    run_module("tree_manifest", arguments(release))
    (release / "lib" / "data").chmod(0o644)
    (release / "lib" / "data").write_text("LIB/DATA")
    (release / "lib" / "data").chmod(0o444)
    assert run_module("tree_manifest", arguments(release, state="compared", content="quick"))["matches"] is True
    assert run_module("tree_manifest", arguments(release, state="compared")).failed


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_cannot_be_read_is_named_and_nothing_is_recorded(run_module, release):
    (release / "lib" / "data").chmod(0)
    result = run_module("tree_manifest", arguments(release))
    assert result.failed and result["failed_step"] == "read the tree"
    assert result["unreadable"] == ["lib/data (Permission denied)"]
    assert not (release / ".torchstack" / "manifest.json").exists()
    assert mode(release / ".torchstack") == 0o555


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"path": "/", "root": "/"}, "is the root of the file system"),
        ({"root": "{release}/lib"}, "lies outside"),
        ({"record": "{release}/../../manifest.json"}, "lies outside"),
        ({"state": "compared"}, "There is no record"),
    ],
)
def test_what_cannot_be_recorded_is_refused_with_a_remedy(run_module, release, change, words):
    change = {key: value.format(release=release) for key, value in change.items()}
    result = run_module("tree_manifest", arguments(release, **change))
    assert result.failed and words in result["msg"] and result["remedy"]


def test_a_plan_for_a_tree_that_an_earlier_step_creates_names_that_step(run_module, release):
    later = dict(arguments(release / "later", planned_after="freeze"), root=str(release.parent))
    planned = run_module("tree_manifest", later, check=True)
    assert planned.changed and planned["planned_after"] == "freeze"
    compared = run_module("tree_manifest", dict(later, state="compared"), check=True)
    assert not compared.changed and compared["planned_after"] == "freeze"
    assert run_module("tree_manifest", later).failed


def test_names_that_are_no_text_come_through_record_and_report(run_module, release):
    (release / "lib").chmod(0o755)
    with open(os.path.join(os.fsencode(str(release)), b"lib", b"caf\xe9\n"), "wb"):
        pass
    result = run_module("tree_manifest", arguments(release))
    assert "lib/caf\\xe9\n" in result["added"]
    assert '"lib/caf\\udce9\\n"' in (release / ".torchstack" / "manifest.json").read_text(encoding="ascii")
    assert run_module("tree_manifest", arguments(release, state="compared"))["matches"] is True


def attribute(path, name, value):
    """Set an extended attribute of something frozen."""
    before = mode(path)
    path.chmod(before | 0o200)
    try:
        os.setxattr(str(path), name, value)
    except OSError as error:
        pytest.skip("needs a file system with extended attributes: %s" % error.strerror)
    finally:
        path.chmod(before)


def access_list(*entries):
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry, 0xFFFFFFFF) for entry in entries)


def test_attributes_and_access_lists_that_come_later_are_drift_of_a_full_comparison(run_module, release):
    attribute(release / "lib" / "data", "user.kept", b"as it was")
    assert run_module("tree_manifest", arguments(release)).changed
    assert run_module("tree_manifest", arguments(release, state="compared"))["matches"]
    attribute(release / "bin" / "tool", "user.note", b"new")
    attribute(release / "lib" / "data", "user.kept", b"otherwise")
    attribute(release / "lib", "system.posix_acl_default", access_list((1, 7), (4, 7), (32, 5)))
    drift = run_module("tree_manifest", arguments(release, state="compared", fail_on_drift=False))
    assert drift["totals"]["attributes"] == 3 and not drift["matches"]
    said = {entry["path"]: (entry["kind"], entry["from"], entry["to"]) for entry in drift["differing"]}
    assert said["bin/tool"] == ("attributes", "", "user.note=6e6577")
    assert said["lib"] == ("attributes", "", "system.posix_acl_default=user::rwx,group::rwx,other::r-x")
    refused = run_module("tree_manifest", arguments(release, state="compared"))
    assert refused.failed and "(3 attributes), first bin/tool, lib, lib/data" in refused["msg"]
    assert run_module("tree_manifest", arguments(release, state="compared", content="quick"))["matches"]


def test_a_record_of_before_there_were_attributes_stays_as_it_is(run_module, release):
    record = release / ".torchstack" / "manifest.json"
    run_module("tree_manifest", arguments(release))
    record.chmod(0o644)
    record.write_text(record.read_text().replace('"attributes": true,\n', ""))
    record.chmod(0o444)
    attribute(release / "bin" / "tool", "user.note", b"new")
    assert run_module("tree_manifest", arguments(release, state="compared"))["matches"]
    assert not run_module("tree_manifest", arguments(release)).changed
