# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What drift says of a frozen release: every difference, who and when as far as that is known, and what explains it.

Covers drift_attribution, drift_content, drift_record and drift_text, too.
"""

from __future__ import annotations

import json
import os
import pathlib
import pwd
import shutil
import subprocess
import time

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.account import actor
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import drift, drift_record, drift_text
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import manifest

LEVELS = ("quick", "full")
RELEASE = "2026-11-20"
ME = pwd.getpwuid(os.geteuid()).pw_name
not_root = pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")


def freeze(root, name=RELEASE):
    """A frozen release with its manifest, and the record of its freeze."""
    prefix, afterwards = root / name, root / ".torchstack" / name
    for path, content in {"base/lib/libz.so.1": "z", "base/x.py": "x = 1\n"}.items():
        (prefix / path).parent.mkdir(parents=True, exist_ok=True)
        (prefix / path).write_text(content)
    (prefix / "base" / "lib" / "libz.so").symlink_to("libz.so.1")
    (prefix / ".torchstack").mkdir()
    (prefix / ".torchstack" / "release.yml").write_text("release: '%s'\n" % name)
    subprocess.run(["chmod", "-R", "a-w", str(prefix)], check=True)
    result = manifest.record(
        manifest.Request(str(prefix), str(root), str(prefix / ".torchstack" / "manifest.json")), True)
    afterwards.mkdir(parents=True)
    record = {"frozen_at": "2026-11-22T03:08:13Z", "digest": "d", "manifest": {"digest": result["digest"]}}
    (afterwards / "frozen.json").write_text(json.dumps(record))
    return prefix


@pytest.fixture()
def root(tmp_path):
    yield tmp_path / "root"
    subprocess.run(["chmod", "-R", "u+rwX", str(tmp_path)], check=True)


@pytest.fixture()
def prefix(root):
    return freeze(root)


def look(root, level="quick", release=RELEASE, limit=100):
    found, = drift.find_frozen(str(root), [release])
    return drift.compare_release(str(root), found, level, limit, 0)[0]


def edit(path, content=None, bits=None):
    """Change a file of a frozen tree without a trace in its directory."""
    before = path.stat()
    path.chmod(0o644)
    if content is not None:
        path.write_text(content)
    path.chmod(before.st_mode & 0o7777 if bits is None else bits)


def kinds(outcome):
    return sorted((finding["kind"], finding["path"]) for finding in outcome["findings"])


def test_a_release_as_it_was_frozen_matches_at_both_levels(root, prefix):
    for level in LEVELS:
        outcome = look(root, level)
        assert (outcome["matches"], outcome["drifted"], outcome["findings"]) == (True, False, [])
        assert (outcome["touched"], outcome["touched_total"], outcome["files"]) == ([], 0, 3)
    assert drift_text.summary_lines(RELEASE, outcome) == ["2026-11-20: all 3 files are as recorded (full)."]


@pytest.mark.parametrize("level", LEVELS)
def test_every_kind_of_difference_is_named_with_owner_and_times(root, prefix, level):
    base = prefix / "base"
    base.chmod(0o755)
    (base / "lib").chmod(0o755)
    (base / "lib" / "libz.so").unlink()
    (base / "lib" / "libz.so").symlink_to("libz.so.2")
    (base / "lib" / "libz.so.1").unlink()
    (base / "extra").write_text("")
    for directory in (base / "lib", base):
        directory.chmod(0o555)
    edit(base / "x.py", "x = 2\n")
    (prefix / ".torchstack" / "release.yml").chmod(0o644)
    outcome = look(root, level)
    assert kinds(outcome) == [
        ("added", "base/extra"), ("content", "base/x.py"), ("mode", ".torchstack/release.yml"),
        ("removed", "base/lib/libz.so.1"), ("target", "base/lib/libz.so")]
    assert outcome["findings_total"] == 5 and outcome["drifted"] and not outcome["matches"]
    assert outcome["totals"]["content"] == 1
    by_path = {finding["path"]: finding for finding in outcome["findings"]}
    for path, finding in by_path.items():
        at = prefix / path if finding["kind"] != "removed" else base / "lib"
        assert finding["owner"] == ME
        assert finding["changed"] == in_utc(at.lstat().st_ctime)
        assert finding["modified"] == in_utc(at.lstat().st_mtime)
    assert by_path["base/lib/libz.so.1"]["seen_on"] == "base/lib"
    assert by_path[".torchstack/release.yml"]["from"] == "0444"
    assert by_path["base/lib/libz.so"]["to"] == "libz.so.2"


def in_utc(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def test_one_byte_behind_a_restored_time_of_modification_is_found_at_the_quick_level_too(root, prefix):
    path = prefix / "base" / "x.py"
    before = path.stat()
    edit(path, "x = 9\n")
    os.utime(str(path), ns=(before.st_atime_ns, before.st_mtime_ns))
    assert kinds(look(root)) == [("content", "base/x.py")]


def test_what_was_touched_and_put_back_is_no_difference(root, prefix):
    edit(prefix / "base" / "x.py", "x = 2\n")
    edit(prefix / "base" / "x.py", "x = 1\n")
    outcome = look(root)
    assert outcome["matches"] and outcome["touched"] == []


@not_root
def test_rights_that_were_lost_are_findings(root, prefix):
    (prefix / "base" / "lib").chmod(0o000)
    outcome = look(root, "full")
    assert ("mode", "base/lib") in kinds(outcome) and ("unreadable", "base/lib") in kinds(outcome)
    assert outcome["totals"]["removed"] == 0
    assert "Permission denied" in " ".join(drift_text.summary_lines(RELEASE, outcome))


def test_a_copied_release_is_told_as_touched_and_compares_in_full(root, prefix):
    copy = root / "copy"
    subprocess.run(["cp", "-a", str(prefix), str(copy)], check=True)
    subprocess.run(["chmod", "-R", "u+w", str(prefix)], check=True)
    shutil.rmtree(str(prefix))
    copy.rename(prefix)
    quick = look(root, limit=3)
    # More than are listed: nothing is read then, and it is said.
    assert quick["matches"] and quick["touched_total"] > 3 > len(quick["touched"])
    assert "nearly all" in drift_text.summary_lines(RELEASE, quick)[1]
    assert look(root, "full")["matches"]


def test_a_manifest_that_is_not_the_one_of_the_freeze_is_a_finding(root, prefix):
    record = prefix / ".torchstack" / "manifest.json"
    edit(prefix / "base" / "x.py", "x = 2\n")
    manifest.record(manifest.Request(str(prefix), str(root), str(record)), True)
    outcome = look(root, "full")
    assert kinds(outcome) == [("manifest", ".torchstack/manifest.json")] and outcome["drifted"]
    assert "the manifest itself" in drift_text.summary_lines(RELEASE, outcome)[0]


def test_a_release_without_manifest_or_directory_is_a_finding_and_hides_no_other(root, prefix):
    other = freeze(root, "2026-05-02")
    (other / ".torchstack").chmod(0o755)
    (other / ".torchstack" / "manifest.json").unlink()
    assert kinds(look(root, release="2026-05-02")) == [("removed", ".torchstack/manifest.json")]
    subprocess.run(["chmod", "-R", "u+w", str(other)], check=True)
    shutil.rmtree(str(other))
    assert [found.release for found in drift.find_frozen(str(root), [])] == ["2026-05-02", RELEASE]
    gone = look(root, release="2026-05-02")
    assert kinds(gone) == [("removed", ".")] and gone["drifted"]
    said = drift_text.summary_lines("2026-05-02", gone)[0]
    assert said.endswith("1 difference from its manifest (quick): 1 removed.")
    assert look(root)["matches"]


def test_a_damaged_manifest_is_named(root, prefix):
    edit(prefix / ".torchstack" / "manifest.json", "{")
    outcome = look(root)
    assert kinds(outcome) == [("unreadable", ".torchstack/manifest.json")]
    assert "not a record as it was written" in outcome["findings"][0]["reason"]


def test_an_open_thaw_explains_what_it_names_and_nothing_else(root, prefix):
    thaw = {"paths": ["base/lib"], "who": "anna", "why": "CVE", "at": "2026-11-23T08:00:00Z"}
    (root / ".torchstack" / RELEASE / "thawed.json").write_text(json.dumps(thaw))
    (prefix / "base" / "lib").chmod(0o755)
    (prefix / "base").chmod(0o755)
    edit(prefix / "base" / "lib" / "libz.so.1", "new", 0o644)
    outcome = look(root)
    assert (outcome["matches"], outcome["drifted"], outcome["explained"]) == (False, False, 4)
    assert outcome["thawed"] == {"who": "anna", "why": "CVE", "at": "2026-11-23T08:00:00Z"}
    edit(prefix / "base" / "x.py", "x = 22\n")
    outcome = look(root, limit=1)
    assert outcome["drifted"] and outcome["explained"] == 4
    assert kinds(outcome) == [("size", "base/x.py")]


def test_a_thaw_before_is_told_with_a_difference_that_came_later(root, prefix):
    past = {"paths": ["base/x.py"], "who": "anna", "why": "CVE", "at": "2026-11-23T08:00:00Z", "difference": []}
    (root / ".torchstack" / RELEASE / "thaw.jsonl").write_text(json.dumps(past) + "\n")
    edit(prefix / "base" / "x.py", "x = 22\n")
    outcome = look(root)
    assert outcome["drifted"] and outcome["findings"][0]["thaw"]["who"] == "anna"
    assert "was thawed before by anna" in drift_text.summary_lines(RELEASE, outcome)[1]


def test_a_release_that_is_being_removed_is_listed_and_not_compared(root, prefix):
    (root / ".torchstack" / RELEASE / "retired.json").write_text(json.dumps({"state": "removing"}))
    found, = drift.find_frozen(str(root), [])
    assert found.removal == "removing" and not found.loadable


def test_what_was_never_frozen_is_refused(root, prefix):
    with pytest.raises(StackError, match="not a frozen release"):
        drift.find_frozen(str(root), ["2026-01-01"])
    with pytest.raises(StackError, match="no absolute path"):
        drift.find_frozen("relative", [])
    assert drift.find_frozen(str(root / "nothing"), []) == []


def test_the_record_changes_with_what_is_found_and_not_with_time(root, prefix):
    record = root / ".torchstack" / RELEASE / "drift.json"
    history = pathlib.Path(str(record) + "l")

    def keep(apply=True):
        return drift_record.keep_outcome(str(root), RELEASE, "quick", look(root), apply)[0]

    assert keep(apply=False) and not record.exists()
    assert keep()
    os.utime(str(record), (1, 1))
    content = record.read_bytes()
    assert not keep(apply=False) and record.stat().st_mtime == 1
    assert not keep() and record.read_bytes() == content and record.stat().st_mtime > 1
    edit(prefix / "base" / "x.py", "x = 2\n")
    assert keep() and not keep()
    lines = [json.loads(line) for line in history.read_text().splitlines()]
    assert [line["drifted"] for line in lines] == [False, True] and lines[1]["by"] == actor()
    record.write_text("{")
    assert keep() and len(history.read_text().splitlines()) == 2  # an interrupted run had it already


def test_one_byte_one_mode_one_link_one_added_and_one_deleted_file_among_45000_are_found(root):
    """Must show 4, with as many files as a release has; each of them small."""
    prefix = root / RELEASE
    for number in range(300):
        directory = prefix / "base" / ("d%03d" % number)
        directory.mkdir(parents=True)
        for name in range(150):
            descriptor = os.open("%s/f%03d" % (directory, name), os.O_WRONLY | os.O_CREAT, 0o644)
            os.write(descriptor, b"%03d" % name)
            os.close(descriptor)
    freeze(root)
    edit(prefix / "base" / "d007" / "f007", "008")
    (prefix / "base" / "d100" / "f001").chmod(0o555)
    for directory in ("d200", "lib"):
        (prefix / "base" / directory).chmod(0o755)
    (prefix / "base" / "lib" / "libz.so").unlink()
    (prefix / "base" / "lib" / "libz.so").symlink_to("elsewhere")
    (prefix / "base" / "d200" / "new").write_text("new")
    (prefix / "base" / "d200" / "f003").unlink()
    for directory in ("d200", "lib"):
        (prefix / "base" / directory).chmod(0o555)
    for level in LEVELS:
        outcome = look(root, level)
        assert kinds(outcome) == [
            ("added", "base/d200/new"), ("content", "base/d007/f007"), ("mode", "base/d100/f001"),
            ("removed", "base/d200/f003"), ("target", "base/lib/libz.so")], level
        assert outcome["findings_total"] == 5
