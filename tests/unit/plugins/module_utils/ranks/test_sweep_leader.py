# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Which pairs rank 0 of a sweep lets measure, round by round."""

from __future__ import annotations

import time

from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import sweep_leader


class Output:
    """In place of a rank's output."""

    def send(self, kind, data):
        pass


def leader(hosts, known=None):
    """Rank 0 of one rank on each host, without the others."""
    asked = {"backend": "gloo", "rule": {"suspect": 0.87, "slow": 0.85}, "known": known or {}}
    members = [[rank] for rank in range(len(hosts))]
    return sweep_leader.Leader(asked, hosts, members, Output(), time.time() + 600)


def measured(one, value):
    """Let all pairs of all orders reach what ``value`` says; returns the orders."""
    orders = []
    for order in one.orders():
        orders.append(order)
        gathered = [[None, ""] for _host in one.hosts]
        for pair in order.pairs:
            for rank in pair:
                gathered[rank] = value(tuple(pair))
        one.record(order, gathered)
    return orders


def test_s28_pairs_at_which_a_job_ended_come_last_and_at_last_alone():
    hosts = ["n%d" % number for number in range(1, 9)]
    late = [[2, 3, 1], [4, 5, 1], [6, 7, 2], [1, 7, 2]]
    known = {"hosts": hosts, "measured": [[0, 1, 9.0]], "repeated": [], "unanswered": late}
    orders = measured(leader(hosts, known), lambda pair: [9.0, ""])
    assert [order.pairs for order in orders[-3:]] == [[[2, 3], [4, 5]], [[6, 7]], [[1, 7]]]
    pairs = [tuple(pair) for order in orders for pair in order.pairs]
    assert len(pairs) == len(set(pairs)) == 27 and (0, 1) not in pairs


def test_s28_a_pair_that_always_fails_does_not_keep_suspects_from_a_second_look():
    first = leader(["n%d" % number for number in range(1, 10)])
    orders = measured(first, lambda pair: [None, "refused"] if pair == (0, 1) else [4.0 if 5 in pair else 9.0, ""])
    assert {order.kind for order in orders} == {"round", "again"}
    assert all(5 in row[:2] for row in first.repeated if row[2] == 4.0)
    assert len([row for row in first.repeated if 5 in row[:2]]) >= 5
