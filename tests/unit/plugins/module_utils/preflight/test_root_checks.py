# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the facts about a root mean for a rollout."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.preflight import root_checks


def only(findings):
    """The one finding there is."""
    assert len(findings) == 1, findings
    return findings[0]


def errors(findings):
    return [found for found in findings if found.severity == "error"]


@pytest.mark.parametrize("root", ["/soft/stacks", "/lus/eagle/a_b-c.d+e@f~g=h,i/j", "/" + "x" * 66])
def test_a_plain_name_of_a_root_is_fit(root):
    assert only(root_checks.judge_path(root, 60)).ok


@pytest.mark.parametrize(
    ("root", "words", "remedy"),
    [
        ("", "is not an absolute path", "in full"),
        ("soft", "is not an absolute path", "in full"),
        ("~/soft", "is not an absolute path", "in full"),
        ("/my soft", "break compiler wrappers and the first lines of scripts: space.", "letters, digits"),
        ("/it's/\"so\"", 'scripts: double quote, single quote.', "letters, digits"),
        ("/a:b/$c", "scripts: $, :.", "letters, digits"),
        ("/a\nb", "scripts: '\\n'.", "letters, digits"),
        ("/caf\u00e9", "scripts: \u00e9.", "letters, digits"),
        ("/soft/", "is not a plain name", "Write it as /soft."),
        ("/soft//x", "is not a plain name", "Write it as /soft/x."),
        ("/soft/../x", "is not a plain name", "Write it as /x."),
        ("/", "The root '/' is the whole machine.", "a directory for releases alone, such as"),
        ("//", "is the whole machine", "a directory for releases alone, such as"),
    ],
)
def test_a_name_that_breaks_scripts_is_refused_with_the_reason(root, words, remedy):
    found = only(root_checks.judge_path(root, 60))
    assert found.severity == "error" and words in found.message and remedy in found.remedy


def test_a_name_too_long_for_a_first_line_of_a_script_is_warned_of():
    found = only(root_checks.judge_path("/" + "x" * 67, 60))
    assert found.severity == "warning" and "about 128" in found.message and "at most 67 characters" in found.remedy


FACTS = {
    "path": "/soft/stacks", "exists": True, "nearest": "/soft/stacks", "directory": True, "uid": 1001,
    "owner": "stacks", "mode": "0755", "records": {}, "writable": True, "mount": {"type": "lustre", "point": "/soft"},
    "read_only": False, "noexec": False, "free_bytes": 100 << 30, "free_inodes": 1000000,
}
WANTED = {
    "release_done": False, "required_bytes": 60 << 30, "required_inodes": 400000, "latency": {"warn_ms": 0}}


def judge(wanted=None, probe=None, uid=1001, **changes):
    facts = dict(FACTS, **changes)
    if probe is not None:
        facts["probe"] = dict({"error": ""}, **probe)
    return root_checks.judge_root(facts, uid, "stacks", dict(WANTED, **(wanted or {})))


def test_a_root_with_room_that_is_ours_will_do():
    findings = judge(probe={})
    assert [found.severity for found in findings] == ["note", "note"]
    assert findings[0].message == "/soft/stacks can be written by stacks."
    assert judge(exists=False, nearest="/soft", uid=0)[0].message == "/soft/stacks can be created by stacks."


@pytest.mark.parametrize(
    ("changes", "check", "words"),
    [
        ({"directory": False}, "root.writable", "/soft/stacks is not a directory."),
        ({"directory": False, "exists": False, "nearest": "/soft"}, "root.writable",
         "/soft is not a directory, so that /soft/stacks cannot be created."),
        ({"uid": 0, "owner": "root"}, "root.owner", "/soft/stacks belongs to root, and this runs as stacks."),
        ({"uid": 0, "owner": "root", "writable": False}, "root.owner",
         "/soft/stacks belongs to root, and this runs as stacks."),
        ({"records": {"path": "/soft/stacks/.torchstack", "uid": 7, "owner": "old"}}, "root.owner",
         "/soft/stacks/.torchstack belongs to old, and this runs as stacks."),
        ({"exists": False, "nearest": "/soft", "records": {"path": "/soft/.torchstack", "uid": 7, "owner": "old"}},
         "root.owner", "/soft/.torchstack belongs to old, and this runs as stacks."),
        ({"read_only": True, "writable": False}, "root.mount",
         "/soft/stacks lies on a file system that is mounted read-only (lustre at /soft)."),
        ({"noexec": True}, "root.mount",
         "/soft/stacks lies on a file system where no program can be run (lustre at /soft, noexec)."),
        ({"writable": False}, "root.writable",
         "/soft/stacks cannot be written, because stacks may not write in /soft/stacks."),
        ({"writable": False, "exists": False, "nearest": "/soft"}, "root.writable",
         "/soft/stacks cannot be created, because stacks may not write in /soft."),
        ({"free_bytes": 10 << 30}, "root.space",
         "/soft/stacks (lustre at /soft) has 10 GiB free, and the release needs about 60 GiB."),
        ({"free_inodes": 5}, "root.inodes",
         "/soft/stacks (lustre at /soft) has room for 5 more files, and the release needs about 400000."),
    ],
)
def test_what_stands_in_the_way_is_one_error_with_its_remedy(changes, check, words):
    found = only(errors(judge(**changes)))
    assert found.check == check and found.message == words and found.remedy


@pytest.mark.parametrize(
    ("name", "check", "words"),
    [
        ("EROFS", "root.mount", "read-only"),
        ("EACCES", "root.writable", "may not write in /soft/stacks"),
        ("ENOSPC", "root.space", "Not even a small file can be created in /soft/stacks: the file system is full."),
        ("EDQUOT", "root.space", "the quota of stacks is used up"),
        ("EIO", "root.writable", "could not be written in /soft/stacks (EIO)"),
    ],
)
def test_what_really_writing_showed_counts_more_than_the_permissions(name, check, words):
    found = only(errors(judge(probe={"error": name})))
    assert found.check == check and words in found.message and found.remedy


def test_what_a_release_has_already_is_taken_off_what_it_needs_and_both_are_said():
    there = {"held": {"bytes": 40 << 30, "inodes": 300000, "complete": True}}
    assert judge(free_bytes=21 << 30, free_inodes=110000, **there)[-1].message == (
        "21 GiB are free; the release needs about 20 GiB more, of 60 GiB in all: 40 GiB are there already.")
    found = only(errors(judge(free_bytes=19 << 30, **there)))
    assert found.message == (
        "/soft/stacks (lustre at /soft) has 19 GiB free, and the release needs about 20 GiB more, of 60 GiB in all: "
        "40 GiB are there already.")
    found = only(errors(judge(free_inodes=99999, **there)))
    assert "needs about 100000 more, of 400000 in all." in found.message


def test_some_room_is_needed_however_much_is_there():
    there = {"held": {"bytes": 90 << 30, "inodes": 900000, "complete": True}}
    assert "needs about 6 GiB more" in only(errors(judge(free_bytes=5 << 30, **there))).message
    assert "needs about 40000 more" in only(errors(judge(free_inodes=39999, **there))).message
    assert errors(judge(free_bytes=6 << 30, free_inodes=40000, **there)) == []


def reservation(**changes):
    return {"reservation": dict({"wanted": 60 << 30, "reserved": 60 << 30, "error": "", "supported": True}, **changes)}


@pytest.mark.parametrize(
    ("name", "words"),
    [("EDQUOT", "the quota of stacks is used up"), ("ENOSPC", "the file system is full"), ("EFBIG", "'ulimit -f'")],
)
def test_a_quota_smaller_than_the_free_space_is_found_by_reserving(name, words):
    found = only(errors(judge(probe=reservation(error=name, reserved=5 << 30))))
    assert found.message.startswith("Of the 60 GiB that the release needs, 5 GiB could be reserved below /soft/stacks:")
    assert words in found.message


def test_a_file_system_that_cannot_reserve_leaves_the_quota_open():
    found = judge(probe=reservation(supported=False, reserved=0))[-1]
    assert found.ok and "a quota may still be met" in found.message and "by hand" in found.remedy
    assert judge(probe=reservation())[-1].message == "100 GiB are free; 60 GiB could be reserved."


def test_inodes_that_the_file_system_does_not_count_are_no_shortage():
    assert errors(judge(free_inodes=None)) == []


@pytest.mark.parametrize(("mode", "warned"), [
    ("0755", False), ("0775", True), ("2775", True), ("0777", True), ("1777", False), ("0757", True)])
def test_a_root_that_others_can_write_is_warned_of(mode, warned):
    found = [found for found in judge(mode=mode) if found.check == "root.mode"]
    assert bool(found) is warned
    assert all(one.severity == "warning" and "chmod go-w /soft/stacks" in one.remedy for one in found)


def test_the_mode_of_a_directory_above_the_root_is_not_ours_to_judge():
    assert [found.check for found in judge(mode="0777", exists=False, nearest="/soft")] == [
        "root.writable", "root.space"]


MEASURED = {"latency": {"files": 50, "median_ms": 31.4, "worst_ms": 90.0}}


def test_s31_a_slow_file_system_is_warned_of_above_the_sites_own_limit():
    found = judge({"latency": {"warn_ms": 20}}, MEASURED)[-1]
    assert found.severity == "warning" and found.check == "root.latency"
    assert found.message == (
        "A small file takes 31.4 ms (median of 50) on lustre at /soft, more than the 20 ms that this site allows.")
    assert judge({"latency": {"warn_ms": 40}}, MEASURED)[-1].severity == "note"
    assert judge({"latency": {"warn_ms": 0}}, MEASURED)[-1].severity == "note"


def test_a_release_that_is_done_needs_no_more_room():
    assert errors(judge({"release_done": True}, free_bytes=0, free_inodes=0)) == []


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (60 << 30, "60 GiB"), (3 << 40, "3 TiB"),
     (4000 << 40, "4000 TiB")],
)
def test_sizes_are_said_as_people_say_them(count, text):
    assert root_checks.format_bytes(count) == text
