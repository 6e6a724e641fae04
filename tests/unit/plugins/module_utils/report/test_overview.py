# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What an overview says of several releases; tests/report has its page in a browser."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.report import overview, overview_page

NOW = "2026-11-24T16:00:00Z"
PASSED = {"tone": "good", "word": "Accepted", "problems": []}
FAILED = {"tone": "bad", "word": "Not accepted", "problems": [
    {"of": "acceptance", "message": "rank 3 uses Socket", "remedy": "Look at the log."}]}


def known(name, since, looks=None, retired=None, verdict=PASSED, acceptances=(), sweep=None, **row):
    stands = {"release": name, "site": "local", "state": "visible", "default": False, "since": since, "size": 1024,
              "verdict": verdict["word"], **row}
    facts = {"release": {"title": "", "retired": retired, "thawed": None}, "verdict": verdict, "missing": [],
             "acceptances": list(acceptances), "sweep": sweep}
    return overview.Known(stands, facts, looks or {})


def made(*releases, broken=None, now=NOW):
    return overview.compile_overview("/soft", releases, broken or {}, now)


def said(found):
    return [(one["tone"], one["of"], one["message"], one["remedy"]) for one in found["attention"]]


def run(started, busbw, spread=0.1, **more):
    measured = {"backend": "nccl", "provider": "torch", "operation": "all_reduce", "ranks": 8, "nodes": 2,
                "bytes": 1 << 30, "busbw": busbw, "spread": spread, "noisy": spread >= 1, **more}
    return {"started": started, "passed": True, "bandwidth": [measured]}


def test_a_healthy_root_needs_nobody():
    found = made(known("a", "2026-11-20T08:00:00Z", default=True))
    assert said(found) == [] and found["releases"][0]["retirement"] is None


def test_what_somebody_has_to_look_at_stands_in_front_the_worst_first():
    finding = {"kind": "size", "path": "b/x"}
    looks = {"quick": {"outcome": {"matches": False, "findings_total": 2, "findings": [finding]}}}
    found = made(
        known("old", "2026-05-02T08:00:00Z", retired={"state": "deprecated", "until": "2026-11-24"}),
        known("new", "2026-11-20T08:00:00Z", looks=looks, default=True, verdict=FAILED), broken={"x": "No YAML."})
    assert said(found) == [
        ("bad", "x", "No YAML.", ""),
        ("bad", "new", "Not accepted: rank 3 uses Socket", "Look at the log."),
        ("bad", "new", "It differs from what was recorded (quick, 2 found, first: size b/x).", "torchstack drift new"),
        ("warning", "old", "Its users were told that it goes after 2026-11-24.", "torchstack retire old --to removed")]


@pytest.mark.parametrize(("until", "due"), [("2026-11-23", True), ("2026-11-24", True), ("2026-11-25", False)])
def test_a_release_is_due_from_the_day_that_its_users_were_told(until, due):
    found = made(known("old", "2026-05-02T08:00:00Z", retired={"state": "hidden", "until": until}))
    assert found["releases"][0]["retirement"]["due"] is due


def test_an_interrupted_removal_is_due_and_a_complete_one_is_history():
    going, gone = ({"state": state, "since": "2026-11-01T00:00:00Z"} for state in ("removing", "removed"))
    found = made(known("a", "2", retired=going, state="removed"), known("b", "1", retired=gone, state="removed"))
    assert [row["retirement"]["due"] for row in found["releases"]] == [True, False]
    assert [one["of"] for one in found["attention"] if "removal" in one["message"]] == ["a"]


def test_a_release_beside_a_newer_default_is_named_without_alarm():
    found = made(known("old", "2026-05-02T08:00:00Z"), known("new", "2026-11-20T08:00:00Z", default=True))
    assert [(row["release"], row["retirement"] and row["retirement"]["remedy"]) for row in found["releases"]] == [
        ("new", None), ("old", "torchstack retire old --to deprecated")]
    assert said(found) == []


def test_releases_without_a_default_are_a_warning():
    assert [one[:2] for one in said(made(known("a", "1")))] == [("warning", "the root")]


def test_only_what_was_measured_alike_is_one_series_and_a_noisy_figure_changes_nothing():
    runs = [run("2026-11-01T00:00:00Z", 80.0), run("2026-11-02T00:00:00Z", 10.0, 2.5),
            run("2026-11-03T00:00:00Z", 88.0), run("2026-11-04T00:00:00Z", 40.0, nodes=4)]
    series = made(known("a", "1", acceptances=runs))["bandwidth"]
    assert [(one["nodes"], [(point["busbw"], point["noisy"]) for point in one["points"]]) for one in series] == [
        (2, [(80.0, False), (10.0, True), (88.0, False)]), (4, [(40.0, False)])]
    assert [point["change"] for point in series[0]["points"]] == [None, None, pytest.approx(0.1)]


def sweep(started, pairs, hosts=("n1", "n2", "n3")):
    return {"started": started, "hosts": list(hosts), "pairs": pairs, "backend": "nccl", "operation": "all_reduce",
            "bytes": 1 << 28, "passed": True, "slow_nodes": [], "slow_links": []}


def test_pairs_stand_beside_each_other_by_their_names_whatever_order_a_sweep_had():
    found = made(
        known("a", "1", sweep=sweep("2026-11-01T00:00:00Z", [[20.0], [21.0, 22.0]])),
        known("b", "2", sweep=sweep("2026-11-02T00:00:00Z", [[10.0], [None, 20.0]], ("n2", "n1", "n4"))))["pairs"]
    assert [(one["release"], one["pairs"], one["slowest"]["hosts"]) for one in found["sweeps"]] == [
        ("a", 3, ["n1", "n2"]), ("b", 2, ["n1", "n2"])]
    assert [(row["hosts"], row["speeds"], round(row["share"], 2)) for row in found["rows"]] == [
        (["n1", "n2"], [20.0, 10.0], 0.67), (["n1", "n3"], [21.0, None], 1.0),
        (["n2", "n3"], [22.0, None], 1.05), (["n1", "n4"], [None, 20.0], 1.33)]


def test_the_tiles_count_what_is_there():
    found = made(
        known("a", "2", default=True, looks={"full": {"outcome": {"matches": True}}}), known("b", "1", verdict=FAILED),
        known("c", "0", state="removed", retired={"state": "removed"}), broken={"x": "No YAML."})
    assert [(tile.name, tile.value) for tile in overview_page.make_tiles(found)] == [
        ("Releases", "2"), ("Default", "a"), ("Accepted", "1 of 2"), ("Drift", "None"), ("Retirement", "None due"),
        ("Not readable", "1 release")]
