# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import concurrent.futures
import socket
import time

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import pair_links as rank_sweep_links
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import pair_sweep as rank_sweep
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks.pair_links import SocketLink, Team

PLAN = {"largest": 100_003, "warmups": 1, "trials": 2}


@pytest.fixture()
def links():
    """Four ranks, of which the first two are of one node, and what they have offered."""
    made = [SocketLink(rank, PLAN, 20.0) for rank in range(4)]
    offers = [dict(link.offer(True), addresses=["127.0.0.1"]) for link in made]
    yield made, offers
    for link in made:
        link.leave()
        link.door.close()


def together(links, offers):
    """All ranks join and measure at once; what came of it, an exception where one was raised."""
    def work(rank):
        links[rank].join(Team("round-1-0-1", [0, 1, 2, 3], rank, offers))
        return links[rank].measure()

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        begun = [pool.submit(work, rank) for rank in range(4)]
        return [ended.exception() or ended.result() for ended in begun]


def test_each_rank_measures_with_its_counterpart_and_again_with_the_next_one(links):
    made, offers = links
    for _round in range(2):
        assert all(value > 0 for value in together(made, offers))
        for link in made:
            link.leave()


def test_s28_wrong_values_are_an_error_and_no_bandwidth(links, monkeypatch):
    made, offers = links
    right = rank_sweep_links.SocketLink._exchange

    def broken(link, mine):
        return right(link, mine[:-1] + b"\0" if link.rank == 1 else mine)

    monkeypatch.setattr(rank_sweep_links.SocketLink, "_exchange", broken)
    values = together(made, offers)
    assert "wrong values: rank 3" in str(values[3])
    assert [isinstance(value, float) for value in values] == [True, True, True, False]


def test_whoever_only_tries_the_port_is_no_rank(links):
    made, offers = links
    for offer in offers:
        with socket.create_connection(("127.0.0.1", offer["port"])) as stranger:
            stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
    assert all(value > 0 for value in together(made, offers))


def test_patterns_tell_ranks_apart_and_a_shift_shows():
    one, other = (rank_sweep_links._pattern(rank, 200_000) for rank in (1, 2))
    assert len(one) == 200_000 and one != other
    assert one[1:] != one[:-1] and one[256:] != one[:-256] and one[65521:131042] == one[:65521]


def test_nodes_are_in_the_order_of_their_numbers():
    names = ["n10", "n2", "n1", "gpu3-2", "gpu3-10", "login"]
    assert sorted(names, key=rank_sweep._natural) == ["gpu3-2", "gpu3-10", "login", "n1", "n2", "n10"]


def test_a_host_whose_name_leads_nowhere_is_reached_by_its_address():
    assert rank_sweep._towards("127.0.0.1") == ["127.0.0.1"]
    assert rank_sweep._towards("") == rank_sweep._towards("no.such.host.invalid") == []


def eventually(condition, what, seconds=60.0):
    """Poll until the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened: " + what
        time.sleep(0.01)


class Said:
    """In place of a rank's output: keeps what was said."""

    def __init__(self):
        self.stages, self.messages = [], []

    def stage(self, name):
        self.stages.append(name)

    def say(self, kind, data):
        self.messages.append((kind, data))


def swept(hosts, known=None):
    """Rank 0 of one rank on each host, without the others."""
    rule = {"suspect": 0.87, "slow": 0.85}
    sweep = rank_sweep.Sweep({"sweep": {"backend": "gloo", "rule": rule, "known": known or {}}}, time.time() + 600)
    sweep.output, sweep.hosts = Said(), hosts
    sweep.members = [[rank] for rank in range(len(hosts))]
    return sweep


def test_a_rank_that_measures_long_says_so_and_takes_it_back(monkeypatch):
    monkeypatch.setattr(rank_sweep, "SLOW_SECONDS", 0.0)
    sweep = swept(["n1", "n2"])
    sweep.report["host"] = "n1"
    order = rank_sweep.Order("round", 1, [[0, 1]])
    with sweep.watched(order, Team("x", [0, 1], 0, [])):
        eventually(lambda: sweep.output.stages, "it is said")
    assert sweep.output.stages == ["round 1 with n2", "sweep"]


def measured(leader, value):
    """Let all pairs of all orders reach what ``value`` says; returns the orders."""
    orders = []
    for order in leader.orders():
        orders.append(order)
        told = [[None, ""] for _host in leader.hosts]
        for pair in order.pairs:
            for rank in pair:
                told[rank] = value(tuple(pair))
        leader.keep(order, told)
    return orders


def test_s28_pairs_at_which_a_job_ended_come_last_and_at_last_alone():
    hosts = ["n%d" % number for number in range(1, 9)]
    late = [[2, 3, 1], [4, 5, 1], [6, 7, 2], [1, 7, 2]]
    known = {"hosts": hosts, "measured": [[0, 1, 9.0]], "repeated": [], "unanswered": late}
    orders = measured(rank_sweep.Leader(swept(hosts, known)), lambda pair: [9.0, ""])
    assert [order.pairs for order in orders[-3:]] == [[[2, 3], [4, 5]], [[6, 7]], [[1, 7]]]
    pairs = [tuple(pair) for order in orders for pair in order.pairs]
    assert len(pairs) == len(set(pairs)) == 27 and (0, 1) not in pairs


def test_s28_a_pair_that_always_fails_does_not_keep_suspects_from_a_second_look():
    leader = rank_sweep.Leader(swept(["n%d" % number for number in range(1, 10)]))
    orders = measured(leader, lambda pair: [None, "refused"] if pair == (0, 1) else [4.0 if 5 in pair else 9.0, ""])
    assert {order.kind for order in orders} == {"round", "again"}
    assert all(5 in row[:2] for row in leader.repeated if row[2] == 4.0)
    assert len([row for row in leader.repeated if 5 in row[:2]]) >= 5
