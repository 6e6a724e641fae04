# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The meeting of a node's ranks, and what they share: runscripts/lib/node.py, with processes of its own."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import signal
import subprocess
import sys

import pytest

LIBRARY = pathlib.Path(__file__).resolve().parents[2] / "roles" / "container" / "files" / "runscripts" / "lib"

# A rank that meets the others, looks at what they have left, says so, and goes at a word or at the end of its input.
RANK = """\
import os, sys
sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
import node
place, identity, rank, size, seconds = sys.argv[2:]
meeting = node.Meeting(place, identity, int(rank), int(size))
try:
    meeting.enter(float(seconds))
    open(os.path.join(meeting.path, "of-%s" % rank), "w").close()
    meeting.arrive(ready=rank == "0")
    meeting.wait(float(seconds))
    print(sum(name.startswith("of-") for name in os.listdir(meeting.path)), flush=True)
    sys.stdin.readline()
except node.MeetingError as error:
    print(error, flush=True)
finally:
    meeting.leave()
"""


@pytest.fixture(name="node", scope="module")
def the_library():
    specification = importlib.util.spec_from_file_location("node", LIBRARY / "node.py")
    node = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(node)
    return node


@pytest.fixture()
def rank(tmp_path):
    """Start a rank; the process."""
    started = []

    def start(number, size, identity="1.0", seconds=300):
        words = [sys.executable, "-S", "-c", RANK, LIBRARY, tmp_path, identity, number, size, seconds]
        started.append(subprocess.Popen(
            [str(word) for word in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def test_s38_all_ranks_that_come_at_once_share_one_place_and_the_last_removes_it(rank, tmp_path):
    for _round in range(3):
        ranks = [rank(number, 6) for number in range(6)]
        assert [process.stdout.readline() for process in ranks] == ["6\n"] * 6
        for process in ranks[:5]:
            process.stdin.close()
            process.wait()
        (place,) = tmp_path.iterdir()
        assert place.stat().st_mode & 0o7777 == 0o700
        ranks[5].stdin.close()
        assert ranks[5].wait() == 0
        assert list(tmp_path.iterdir()) == []


def test_s38_ranks_that_go_at_once_remove_it_too(rank, tmp_path):
    ranks = [rank(number, 6) for number in range(6)]
    for process in ranks:
        process.stdin.close()
    assert [process.stdout.readline() for process in ranks] == ["6\n"] * 6
    assert [process.wait() for process in ranks] == [0] * 6
    assert list(tmp_path.iterdir()) == []


def test_nothing_of_another_account_is_opened_to_see_whether_it_was_left(node, tmp_path, monkeypatch):
    place = tmp_path / ("torchstack-%d-x" % os.geteuid())
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "lock").write_text("")
    place.symlink_to(elsewhere)
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        node._remove_if_left(str(place))
    place.unlink()
    place.mkdir()
    (place / "lock").write_text("")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    node._remove_if_left(str(place))
    assert (place / "lock").exists() and (elsewhere / "lock").exists()
    monkeypatch.undo()
    node._remove_if_left(str(place))
    assert not place.exists()


def test_s38_what_killed_ranks_left_is_not_used_and_is_removed(rank, tmp_path):
    for identity in ("1.0", "2.0"):
        ranks = [rank(number, 2, identity) for number in range(2)]
        assert [process.stdout.readline() for process in ranks] == ["2\n"] * 2
        for process in ranks:
            process.send_signal(signal.SIGKILL)
            process.wait()
    assert len(list(tmp_path.iterdir())) == 2
    # The same one again: rank 0 does not take what is there for the word of rank 1.
    first = rank(0, 2, "2.0", seconds=0)
    assert "waited 0 seconds for local rank 1;" in first.stdout.readline()
    assert first.wait() == 0
    assert list(tmp_path.iterdir()) == []


def test_s38_the_place_of_others_who_are_alive_stays(rank, tmp_path):
    other = rank(0, 1, "other")
    assert other.stdout.readline() == "1\n"
    mine = rank(0, 1, "mine")
    assert mine.stdout.readline() == "1\n"
    mine.stdin.close()
    mine.wait()
    assert [path.name.split("-")[2].partition(".")[0] for path in tmp_path.iterdir()] == ["other"]


@pytest.mark.parametrize("kind", ["link", "file", "open directory"])
def test_s38_what_somebody_else_may_have_put_there_is_neither_followed_nor_in_the_way(node, tmp_path, kind):
    first, second = (node.Meeting(str(tmp_path), "4711.0-nid001", number, 2) for number in range(2))
    treasure = tmp_path / "treasure"
    treasure.mkdir(mode=0o700)
    (treasure / "kept").touch()
    traps = [tmp_path / (first.name.rstrip(".") + end) for end in ("", ".", ".aaaaaaaa")]
    for trap in traps:
        if kind == "link":
            trap.symlink_to(treasure)
        elif kind == "file":
            trap.touch()
        else:
            trap.mkdir()
            trap.chmod(0o777)
    first.enter(5)
    second.enter(5)
    assert first.path == second.path and pathlib.Path(first.path) not in traps
    first.leave()
    second.leave()
    assert [path.name for path in treasure.iterdir()] == ["kept"]
    assert all(os.path.lexists(trap) for trap in traps)


def test_s38_ranks_that_come_before_the_first_wait_for_it(rank):
    others = [rank(number, 3) for number in (2, 1)]
    first = rank(0, 3)
    assert [process.stdout.readline() for process in (first, *others)] == ["3\n"] * 3


def test_s38_a_rank_whose_first_one_never_comes_says_so(node, tmp_path):
    meeting = node.Meeting(str(tmp_path), "1.0", 1, 2)
    with pytest.raises(node.MeetingError, match="waited 0 seconds for local rank 0"):
        meeting.enter(0)
    meeting.leave()


def test_s38_a_place_that_cannot_be_used_is_named(node, tmp_path):
    with pytest.raises(node.MeetingError, match=r"absent cannot be used: No such file.*TORCHSTACK_NODE_TMP"):
        node.Meeting(str(tmp_path / "absent"), "1.0", 0, 1).enter(0)


def test_s38_a_rank_that_cannot_begin_does_not_keep_the_others(node, tmp_path):
    first, second = (node.Meeting(str(tmp_path), "1.0", number, 2) for number in range(2))
    first.enter(5)
    second.enter(5)
    first.fail()
    with pytest.raises(node.MeetingError, match="another rank of this node could not begin"):
        second.wait(300)
    first.leave()
    second.leave()
    assert list(tmp_path.iterdir()) == []
