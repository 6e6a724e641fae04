# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the comparison with other programs counts, decides and prints; it is not run here."""

from __future__ import annotations

import math
import pathlib
import shutil
import subprocess
import sys

import pytest

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "bench"))

import compare
import installed_tree
import noop_rollout
import patch_loop
from measuring import UnavailableError, alternate
from table import Goal, Kind, Outcome, Row, render


def row(peer: float, ours: float, goal: Goal, **more: object) -> Row:
    return Row(**{"what": "x", "peer_command": "find | x", "overhead": 1.0, **more}, peer=peer, ours=ours, goal=goal)


@pytest.mark.parametrize(
    ("goal", "peer", "ours", "met", "shown"),
    [
        (Goal(Kind.FASTER, 15), 15.0, 1.0, True, "15.0 x faster"),
        (Goal(Kind.FASTER, 15), 14.9, 1.0, False, "14.9 x faster"),
        (Goal(Kind.AT_MOST, 1.5), 2.0, 3.0, True, "1.50 x"),
        (Goal(Kind.AT_MOST, 1.5), 2.0, 3.1, False, "1.55 x"),
        (Goal(Kind.BELOW_PERCENT, 1), 100.0, 1.0, False, "1.00 %"),
        (Goal(Kind.BELOW_PERCENT, 1), 100.0, 0.5, True, "0.50 %"),
    ],
)
def test_a_goal_is_met_up_to_its_limit_and_missed_beyond(goal, peer, ours, met, shown):
    assert row(peer, ours, goal).met is met
    assert row(peer, ours, goal).cells()[5] == shown
    assert row(peer, ours, goal).cells()[7] == ("met" if met else "MISSED")


def test_a_peer_that_took_no_time_meets_no_bound():
    assert not Goal(Kind.AT_MOST, 1.5).is_met(0.0, 1.0)
    assert math.isinf(Goal(Kind.AT_MOST, 1.5).ratio(0.0, 1.0))


def test_the_module_overhead_does_not_count_for_the_ratio():
    cheap, dear = (row(2.0, 2.0, Goal(Kind.AT_MOST, 1.5), overhead=overhead) for overhead in (0.1, 100.0))
    assert cheap.cells()[5] == dear.cells()[5]
    assert dear.cells()[4] == "100.0 s"
    assert row(2.0, 2.0, Goal(Kind.AT_MOST, 1.5), within=True).cells()[4] == "1.00 s of it"


def test_the_table_is_markdown_whose_columns_stand_below_each_other():
    lines = render([row(15.0, 1.0, Goal(Kind.FASTER, 15)), row(200.0, 0.001, Goal(Kind.AT_MOST, 1.5))]).splitlines()
    assert len(lines) == 4
    assert len({len(line) for line in lines}) == 1
    assert "find \\| x" in lines[2]
    assert len(lines[2].replace("\\|", "").split("|")) == len(lines[1].split("|"))


def test_measures_take_turns_and_their_medians_count():
    calls = []
    values = {"peer": iter([1.0, 9.0, 2.0]), "ours": iter([4.0, 6.0, 5.0])}

    def measure(name):
        calls.append(name)
        return next(values[name])

    medians = alternate({"peer": lambda: measure("peer"), "ours": lambda: measure("ours")}, 3)
    assert medians == {"peer": 2.0, "ours": 5.0}
    assert calls == ["peer", "ours", "ours", "peer", "peer", "ours"]


def test_one_broken_part_hides_no_row_of_the_others(monkeypatch, capsys, tmp_path):
    good = row(15.0, 1.0, Goal(Kind.FASTER, 15))

    def broken(_tree, _cache):
        raise RuntimeError("it broke\nwith a long story")

    def lacking(_tree, _cache):
        raise UnavailableError("there is no peer")

    monkeypatch.setattr(
        compare, "PARTS", {"broken": broken, "lacking": lacking, "good": lambda _tree, _cache: Outcome([good])}
    )
    outcome, failed = compare.compare(["broken", "lacking", "good"], tmp_path)
    assert outcome.rows == [good]
    assert outcome.missing == ["broken: FAILED: it broke", "lacking: there is no peer."]
    assert failed
    assert "with a long story" in capsys.readouterr().err


def test_a_tree_is_counted_by_its_files_and_not_by_its_links(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "a.so").write_bytes(b"\x7fELF rest")
    (tmp_path / "lib" / "b.py").write_bytes(b"pass")
    (tmp_path / "link.so").symlink_to("lib/a.so")
    size = installed_tree.measure(tmp_path)
    assert size == installed_tree.Size(files=2, objects=1, bytes=13)
    assert not size.suffices


def test_changes_of_a_rollout_are_counted_from_its_recap():
    recap = "PLAY RECAP ***\nlocal-1    : ok=41   changed=2    unreachable=0\nlocal-2  : ok=3 changed=1 failed=0\n"
    assert noop_rollout.changes(recap) == 3


@pytest.mark.skipif(shutil.which("patch") is None, reason="needs GNU patch")
def test_the_sixty_patches_build_on_each_other(tmp_path):
    patch_loop.write_series(tmp_path / "tree", tmp_path / "series")
    series = sorted((tmp_path / "series").iterdir())
    assert len(series) == patch_loop.PATCHES
    later = series[patch_loop.FILES]
    refused = subprocess.run(
        ["patch", "-s", "-p1", "--dry-run", "-F0", "-i", str(later)], cwd=tmp_path / "tree", check=False,
        stdout=subprocess.DEVNULL,
    )
    assert refused.returncode == 1
    assert patch_loop.blob("x\n") == "587be6b4c3f93f93c489c0111bba5596147a26cb"
