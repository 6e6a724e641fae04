# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance.login import find_account
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance.records import Files
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance.sweep_records import (
    conclude,
    known,
    reason_to_run,
    rule,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks.output import frames
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks.pair_rounds import schedule

HOSTS = ["n1", "n2", "n3", "n4"]
ENDED = "@torchstack-job exit\t0\n"


@pytest.fixture()
def files(tmp_path):
    found = Files.below(str(tmp_path), "r1", "sweep")
    os.makedirs(found.state)
    return found


def question(**more):
    sweep = {
        "backend": "gloo", "operation": "all_reduce", "bytes": 1 << 20, "warmups": 1, "trials": 3,
        "rule": rule({})._asdict(), "known": {},
    }
    given = {"module": "", "launcher": ["srun"], "nodes": 4, "ranks": 4, "subject": "sha256:1", "sweep": sweep}
    return dict(given, **more)


def said(*messages):
    """What rank 0 prints: every message twice."""
    lines = []
    for number, (kind, data) in enumerate(messages * 2):
        lines += [frame.decode("ascii") for frame in frames(kind, "ab%06x" % number, data)]
    return "@torchstack-job started\tx\n" + "".join(lines)


def rounds(count, value=10.0, troubles=()):
    begun = ("sweep", {"hosts": HOSTS, "per_node": 1, "resumed": False})
    return (begun, *(
        ("round", {"number": number + 1, "pairs": [[*pair, value] for pair in together], "troubles": list(troubles),
                   "seconds": 1.0})
        for number, together in enumerate(schedule(4)[:count])
    ))


def concluded(files, output, asked=None):
    return conclude(files, asked or question(), find_account(""), output, "2026-11-22T00:00:00Z", 3.0)


def test_all_rounds_make_a_record_that_answers_the_next_question(files):
    record = concluded(files, said(*rounds(3)) + ENDED)
    assert record["passed"] and record["complete"] and record["rounds"] == record["rounds_done"] == 3
    assert record["measured"] == [[one, other, 10.0] for one in range(4) for other in range(one + 1, 4)]
    assert record["hosts"] == HOSTS and record["slow_nodes"] == record["slow_links"] == record["undecided"] == []
    last = files.last()
    assert last == json.loads(json.dumps(record))
    assert reason_to_run(last, question(), False) == "" and known(last, question()) == {}
    assert reason_to_run(last, question(), True) == "it was asked for again"
    assert reason_to_run(last, question(subject="sha256:2"), False).endswith("another state of this release")
    assert reason_to_run(last, question(nodes=5), False) == "the site now asks for something else: nodes"


def test_s28_a_sweep_that_ended_early_is_an_error_and_leaves_its_rounds(files):
    with pytest.raises(StackError) as failed:
        concluded(files, said(*rounds(1)))
    assert failed.value.failed_step == "incomplete" and "1 of 3 rounds are done" in str(failed.value)
    last = files.last()
    assert reason_to_run(last, question(), True) == "the last sweep ended after 1 of 3 rounds"
    left = known(last, question())
    assert left["hosts"] == HOSTS and len(left["measured"]) == 2
    assert known(last, question(nodes=5)) == {} and known(last, question(subject="sha256:2")) == {}
    asked = question()
    asked["sweep"]["known"] = left
    begun, *others = rounds(3)
    record = concluded(files, said(begun, *others[1:]) + ENDED, asked)
    assert record["passed"] and record["resumed"] and len(record["measured"]) == 6
    assert "known" not in record["question"]["sweep"]


def test_s28_what_is_known_of_other_nodes_does_not_count(files):
    asked = question()
    asked["sweep"]["known"] = {"hosts": ["m1", "m2"], "per_node": 1, "measured": [[0, 1, 99.0]], "repeated": []}
    record = concluded(files, said(*rounds(3)) + ENDED, asked)
    assert not record["resumed"] and all(row[2] == 10.0 for row in record["measured"])
    with pytest.raises(StackError):
        concluded(files, "@torchstack-job started\tx\n", asked)
    assert files.last()["hosts"] == ["m1", "m2"], "a job that did not even begin loses nothing"


def test_a_pair_that_failed_is_named_and_measured_by_the_next_run(files):
    messages = rounds(3)
    messages[1][1].update(pairs=messages[1][1]["pairs"][:1], troubles=[[1, 2, "rank 1: RuntimeError: wrong values"]])
    with pytest.raises(StackError) as failed:
        concluded(files, said(*messages) + ENDED)
    assert failed.value.failed_step == "pairs" and "n2 and n3: rank 1: RuntimeError: wrong values" in str(failed.value)
    assert not files.last()["complete"] and files.last()["rounds_done"] == 2


def test_a_node_of_which_every_pair_failed_is_named_once(files):
    begun, *others = rounds(3)
    for _kind, message in others:
        failed_pairs = [row[:2] for row in message["pairs"] if 1 in row[:2]]
        message["troubles"] = [[*pair, "rank 1: ConnectionError: refused"] for pair in failed_pairs]
        message["pairs"] = [row for row in message["pairs"] if 1 not in row[:2]]
    with pytest.raises(StackError) as failed:
        concluded(files, said(begun, *others) + ENDED)
    (failure,) = files.last()["failures"]
    assert failure["message"].startswith("n2: all its 3 pairs failed; n") and "refused" in failure["message"]
    assert failed.value.failed_step == "pairs"


def test_s28_a_round_that_gave_no_answer_is_remembered_until_it_has_one(files):
    begun, first, second, third = rounds(3)
    order = ("begun", {"kind": "round", "number": 2, "pairs": [row[:2] for row in second[1]["pairs"]]})
    with pytest.raises(StackError) as failed:
        concluded(files, said(begun, first, order) + "@torchstack-job timeout\t60\n")
    assert "no answer from the pair n1 and n" in str(failed.value)
    last = files.last()
    assert last["unanswered"] == sorted([*row[:2], 1] for row in second[1]["pairs"])
    asked = question()
    asked["sweep"]["known"] = known(last, question())
    with pytest.raises(StackError):
        concluded(files, said(begun, third, order), asked)
    assert [row[2] for row in files.last()["unanswered"]] == [2, 2]
    assert concluded(files, said(begun, third, second) + ENDED, asked)["unanswered"] == []


def test_a_hang_says_with_whom(files):
    stage = {"host": "n3", "pid": 5, "rank": 2, "stage": "round 2 with n4"}
    output = said(*rounds(1)) + "".join(frame.decode("ascii") for frame in frames("stage", "cd", stage))
    with pytest.raises(StackError) as failed:
        concluded(files, output + "@torchstack-job timeout\t60\n")
    assert failed.value.failed_step == "timeout"
    assert "1 of 3 rounds are done; rank 2 on n3 is in round 2 with n4" in str(failed.value)


def test_a_rank_that_could_not_begin_is_named_before_those_that_lost_it(files):
    reports = [
        {"host": "n1", "pid": 1, "rank": 0, "error": "ConnectionError: rank 1 has left"},
        {"host": "n2", "pid": 2, "rank": 1, "error": "PyTorch sees no GPU here"},
    ]
    lines = [frame.decode("ascii") for number, report in enumerate(reports) for frame in
             frames("report", "e%d" % number, report)]
    with pytest.raises(StackError) as failed:
        concluded(files, "".join(lines))
    assert failed.value.failed_step == "ranks" and "rank 1 on n2: PyTorch sees no GPU here" in str(failed.value)


def test_another_number_of_nodes_than_was_asked_for_is_refused(files):
    with pytest.raises(StackError) as failed:
        concluded(files, said(*rounds(3)) + ENDED, question(nodes=8))
    assert failed.value.failed_step == "nodes" and "8 nodes were asked for, and the ranks ran on 4" in str(failed.value)


@pytest.mark.parametrize("thresholds", [
    {"slow": 1.5}, {"slow": 0.9, "suspect": 0.8}, {"repeats": 2}, {"nearly_all": 0}, {"slowest": 1}, {"slow": "x"},
])
def test_thresholds_that_make_no_sense_are_refused(thresholds):
    with pytest.raises(StackError) as refused:
        rule(thresholds)
    assert refused.value.failed_step == "thresholds"
