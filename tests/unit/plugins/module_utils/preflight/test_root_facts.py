# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Facts about a root, and what it can take when really tried."""

from __future__ import annotations

import errno
import os

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.account import account_name
from ansible_collections.hpcml.torchstack.plugins.module_utils.preflight import root_facts as root_directory

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:25 / /lus rw - lustre 10.0.0.1@o2ib:/lus rw,flock
31 30 0:26 /x /lus/my\\040soft rw - nfs4 server:/x rw
32 30 0:27 / /lus/grand ro - lustre grand rw
33 22 0:28 / /lus/grand rw - tmpfs tmpfs rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "point", "kind"),
    [
        ("/home/me", "/", "ext4"),
        ("/lus", "/lus", "lustre"),
        ("/lustre/x", "/", "ext4"),
        ("/lus/eagle/soft", "/lus", "lustre"),
        ("/lus/my soft/r", "/lus/my soft", "nfs4"),
        ("/lus/grand/r", "/lus/grand", "tmpfs"),
    ],
)
def test_a_path_lies_on_the_innermost_and_latest_mount(path, point, kind):
    assert root_directory.mount_of(path, MOUNTS) == {"point": point, "type": kind}


def test_a_root_that_does_not_exist_is_looked_at_through_what_does(tmp_path):
    facts = root_directory.examine(str(tmp_path / "a" / "b"))
    assert facts["exists"] is False and facts["nearest"] == str(tmp_path) and facts["directory"]
    assert facts["owner"] == account_name(os.geteuid()) and facts["writable"]
    assert facts["free_bytes"] > 0 and facts["mount"]["type"] and not facts["read_only"]
    assert os.listdir(str(tmp_path)) == []


def test_a_file_or_a_broken_link_in_the_way_is_seen(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("file", "link"):
        facts = root_directory.examine(str(tmp_path / name / "below"))
        assert facts["nearest"] == str(tmp_path / name) and facts["directory"] is False


def test_the_nearest_records_are_found_above_and_in_the_root(tmp_path):
    (tmp_path / ".torchstack").mkdir()
    (tmp_path / "inner").mkdir()
    assert root_directory.examine(str(tmp_path / "inner" / "r"))["records"]["path"] == str(tmp_path / ".torchstack")
    (tmp_path / "inner" / ".torchstack").mkdir()
    records = root_directory.examine(str(tmp_path / "inner"))["records"]
    assert records == {
        "path": str(tmp_path / "inner" / ".torchstack"), "uid": os.geteuid(),
        "owner": account_name(os.geteuid())}


def test_an_account_without_a_name_is_its_number():
    assert account_name(3999999999) == "3999999999"


def test_a_probe_leaves_nothing_behind_and_measures(tmp_path):
    result = root_directory.probe(str(tmp_path), 1 << 20, 5)
    assert result["error"] == ""
    assert result["reservation"]["error"] == ""
    assert result["latency"]["files"] == 5 and 0 < result["latency"]["median_ms"] <= result["latency"]["worst_ms"]
    assert os.listdir(str(tmp_path)) == []
    assert root_directory.probe(str(tmp_path), 0, 0) == {"error": ""}


def test_a_probe_that_may_not_write_says_why(tmp_path):
    assert root_directory.probe(str(tmp_path / "missing"), 1, 1) == {"error": "ENOENT"}


def test_space_is_reserved_piece_by_piece_until_it_is_all_there(tmp_path):
    asked = []
    result = root_directory.reserve(
        str(tmp_path), 200 << 30, lambda descriptor, offset, length: asked.append((offset, length)), budget=60)
    assert result == {"wanted": 200 << 30, "reserved": 200 << 30, "error": "", "supported": True}
    assert asked[0] == (0, (200 << 30) // 64)
    assert sum(length for _offset, length in asked) == 200 << 30
    assert all(offset == sum(length for _o, length in asked[:number]) for number, (offset, _l) in enumerate(asked))


@pytest.mark.parametrize("name", ["EDQUOT", "ENOSPC", "EFBIG"])
def test_a_quota_met_on_the_way_is_named_with_what_was_reached(tmp_path, name):
    def allocate(descriptor, offset, length):
        if offset >= 2 << 30:
            raise OSError(getattr(errno, name), "no")

    result = root_directory.reserve(str(tmp_path), 4 << 30, allocate, budget=60)
    assert result == {"wanted": 4 << 30, "reserved": 2 << 30, "error": name, "supported": True}
    assert os.listdir(str(tmp_path)) == []


def test_a_file_system_that_cannot_reserve_is_written_to_a_little_instead(tmp_path):
    sizes = []

    def allocate(descriptor, offset, length):
        sizes.append(descriptor)
        raise OSError(errno.EOPNOTSUPP, "no")

    result = root_directory.reserve(str(tmp_path), 4 << 30, allocate)
    assert result == {"wanted": 4 << 30, "reserved": 0, "error": "", "supported": False}
    assert len(sizes) == 1 and os.listdir(str(tmp_path)) == []


def test_a_slow_reservation_ends_with_its_budget(tmp_path):
    calls = []
    result = root_directory.reserve(str(tmp_path), 1 << 40, lambda *arguments: calls.append(arguments), budget=-1)
    assert result["reserved"] == 0 and calls == [] and result["error"] == ""


def test_a_slow_file_system_is_not_measured_for_longer_than_its_budget(tmp_path):
    assert root_directory.latency(str(tmp_path), 1000, budget=-1)["files"] == 1


def test_reserving_is_a_real_call_that_the_file_shows(tmp_path):
    with open(str(tmp_path / "file"), "wb") as stream:
        try:
            root_directory.fallocate(stream.fileno(), 0, 1 << 20)
        except OSError as error:
            pytest.skip("this file system cannot reserve: %s" % error)
        assert os.fstat(stream.fileno()).st_blocks * 512 >= 1 << 20
    with pytest.raises(OSError) as caught:
        root_directory.fallocate(-1, 0, 1)
    assert caught.value.errno == errno.EBADF


def test_what_a_directory_holds_counts_files_once_and_follows_no_links(tmp_path):
    outside = tmp_path / "outside"
    outside.write_bytes(b"x" * (1 << 20))
    release = tmp_path / "release"
    (release / "src").mkdir(parents=True)
    (release / "src" / "a").write_bytes(b"x" * (1 << 20))
    os.link(str(release / "src" / "a"), str(release / "again"))
    (release / "link").symlink_to(outside)
    (release / "loop").symlink_to(release)
    found = root_directory.held(str(release))
    assert (1 << 20) <= found["bytes"] < (2 << 20)
    assert (found["inodes"], found["complete"]) == (4, True)  # src, the file, two links


def test_a_count_that_takes_too_long_is_too_small_and_says_so(tmp_path):
    (tmp_path / "a").mkdir()
    assert root_directory.held(str(tmp_path), -1.0) == {"bytes": 0, "inodes": 0, "complete": False}
    assert root_directory.held(str(tmp_path / "none"))["bytes"] == 0
