# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a tree holds, and that its removal takes that and nothing else, at the rate that was asked for."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.zipapp import program_text
from ansible_collections.hpcml.torchstack.plugins.module_utils.standalone import removal


@pytest.fixture(name="tree")
def frozen_tree(tmp_path):
    """Two directories below each other, frozen: files, links, a loop of links, a name that is no text."""
    top = tmp_path / "release"
    (top / "d" / "below").mkdir(parents=True)
    for name in ("one", "two"):
        (top / "d" / name).write_text("x" * 5000)
    (top / "d" / "below" / "three").write_text("three")
    (top / "d" / "loop").symlink_to("../d")
    (top / "outside").symlink_to(tmp_path / "kept")
    with open(os.path.join(os.fsencode(str(top)), b"caf\xe9"), "wb") as stream:
        stream.write(b"odd")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("of somebody else")
    for path in (top / "d" / "below", top / "d", top):
        path.chmod(0o555)
    yield top
    for directory, _names, _files in os.walk(str(top)):
        os.chmod(directory, 0o755)


def remove(tree, rate=0.0, planned=None, lines=None):
    record = str(tree.parent / "removal.json")
    planned = planned or removal.measure(str(tree)).as_dict()
    return removal.remove([str(tree)], planned, record, lambda: rate, (lines if lines is not None else []).append)


def disk_usage(path):
    """Bytes of blocks by du(1), each inode once."""
    return int(subprocess.check_output(["du", "-s", "--block-size=1", str(path)]).split()[0])


def test_a_frozen_tree_goes_and_what_its_links_lead_to_stays(tree):
    result = remove(tree)
    assert result["done"] and result["refused"] == []
    assert not os.path.lexists(str(tree))
    assert (tree.parent / "kept" / "file").read_text() == "of somebody else"


def test_what_was_planned_is_what_comes_back_and_what_du_says(tree):
    planned = removal.measure(str(tree)).as_dict()
    assert planned["names"] == planned["inodes"] == 9
    assert planned["bytes"] == disk_usage(tree)
    freed = remove(tree)["freed"]
    assert freed == {key: planned[key] for key in ("names", "inodes", "bytes")}


def test_of_a_file_with_a_further_name_elsewhere_nothing_comes_back(tree):
    (tree / "d").chmod(0o755)
    before = removal.measure(str(tree))
    os.link(str(tree / "d" / "one"), str(tree / "d" / "again"))
    os.link(str(tree / "d" / "two"), str(tree.parent / "kept" / "two"))
    after = removal.measure(str(tree))
    assert (after.names, after.inodes, after.shared) == (before.names + 1, before.inodes - 1, 1)
    freed = remove(tree)["freed"]
    assert (freed["inodes"], freed["bytes"]) == (after.inodes, after.bytes)
    assert (tree.parent / "kept" / "two").stat().st_size == 5000


def test_a_second_attempt_counts_what_the_first_one_removed(tree):
    planned = removal.measure(str(tree)).as_dict()
    removal.record(str(tree.parent / "removal.json"), {"attempts": 1})
    (tree / "d").chmod(0o755)
    (tree / "d" / "one").unlink()
    lines = []
    result = remove(tree, planned=planned, lines=lines)
    assert result["attempts"] == 2 and result["freed"] == {key: planned[key] for key in ("names", "inodes", "bytes")}
    assert lines[0] == "1 of 9 names are gone already." and lines[-1] == "[9/9] removed"


def test_a_tree_that_is_gone_is_removed(tmp_path):
    nothing = {"names": 0, "inodes": 0, "bytes": 0}
    assert removal.remove([str(tmp_path / "gone")], nothing, str(tmp_path / "removal.json"), lambda: 0, print)["done"]


def test_a_link_in_the_place_of_the_tree_is_refused_and_its_target_stays(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "release").symlink_to("kept")
    result = remove(tmp_path / "release")
    assert not result["done"] and len(result["refused"]) == 1
    assert (tmp_path / "kept").is_dir()


def test_what_refuses_to_go_is_named_and_the_rest_goes(tree, monkeypatch):
    unlink = os.unlink

    def refuse(name, **options):
        if name == "three":
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        unlink(name, **options)

    monkeypatch.setattr(os, "unlink", refuse)
    result = remove(tree)
    assert not result["done"]
    assert result["refused"] == ["%s (Operation not permitted)" % (tree / "d" / "below" / "three")]
    assert sorted(os.listdir(str(tree / "d"))) == ["below"]


def test_a_file_system_that_fails_ends_the_removal(tree, monkeypatch):
    def fail(_name, **_options):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "unlink", fail)
    with pytest.raises(OSError) as caught:
        remove(tree)
    assert caught.value.errno == errno.EIO


def test_a_mount_point_is_not_entered(tree, monkeypatch):
    monkeypatch.setattr(removal, "own_mounts", lambda path: [os.path.join(path, "d", "below")])
    result = remove(tree)
    assert [entry.partition(" (")[0] for entry in result["refused"]] == [str(tree / "d" / "below")]
    assert (tree / "d" / "below" / "three").read_text() == "three"


class Clock:
    def __init__(self):
        self.now, self.slept = 100.0, []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


@pytest.mark.parametrize("rate", [20.0, 1000.0])
def test_operations_stay_below_the_rate(rate):
    clock = Clock()
    bucket = removal.Bucket(rate, clock, clock.sleep)
    for number in range(1, 501):
        bucket.take()
        assert number <= (clock.now - 100.0) * rate + max(1.0, rate / 10) + 1e-6
    assert bucket.taken == 500
    assert (clock.now - 100.0) * rate >= 500 - max(1.0, rate / 10) - 1


def test_an_idle_while_gives_no_more_than_a_tenth_of_a_second_s_worth():
    clock = Clock()
    bucket = removal.Bucket(100.0, clock, clock.sleep)
    clock.now += 3600
    for _number in range(10):
        bucket.take()
    assert clock.slept == []
    bucket.take()
    assert len(clock.slept) == 1


def test_a_removal_that_goes_on_takes_another_rate():
    clock = Clock()
    bucket = removal.Bucket(10.0, clock, clock.sleep)
    for _number in range(100):
        bucket.take()
    slow = clock.now
    bucket.change(1000.0)
    for _number in range(100):
        bucket.take()
    assert clock.now - slow < (slow - 100.0) / 10


def test_without_a_rate_nothing_waits():
    clock = Clock()
    bucket = removal.Bucket(0, clock, clock.sleep)
    for _number in range(1000):
        bucket.take()
    assert clock.slept == [] and bucket.taken == 1000


def test_its_text_alone_is_the_program_of_the_step(tree):
    planned = removal.measure(str(tree)).as_dict()
    record = tree.parent / "removal.json"
    rate = tree.parent / "rate"
    rate.write_text("0.0\n")
    asked = {"trees": [str(tree)], "planned": planned, "record": str(record), "rate": str(rate)}
    output = subprocess.check_output(
        [sys.executable, "-I", "-", json.dumps(asked)], input=program_text(removal), universal_newlines=True)
    assert output.splitlines()[-1] == "[9/9] removed"
    assert json.loads(record.read_text())["done"] and not tree.exists()
    assert stat.S_IMODE(record.stat().st_mode) == 0o644


def nest(place, levels):
    """Make so many directories in one another, which no path could name."""
    top = place / "deep"
    top.mkdir()
    descriptor = os.open(str(top), os.O_RDONLY)
    for _level in range(levels):
        os.mkdir("d", dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)
    return top


def test_a_tree_of_many_directories_in_one_another_goes(tmp_path):
    top = nest(tmp_path, 600)
    amount = removal.measure(str(top))
    assert (amount.names, amount.deep) == (601, [])
    assert remove(top)["done"] and not top.exists()


def test_one_that_is_deeper_than_is_removed_is_told_of_before_anything_goes(tmp_path):
    top = nest(tmp_path, 1200)
    try:
        (path,) = removal.measure(str(top)).deep
        assert path.startswith(str(top)) and path.count("/d") >= 1000
    finally:
        subprocess.run(["rm", "-rf", str(top)], check=True)
