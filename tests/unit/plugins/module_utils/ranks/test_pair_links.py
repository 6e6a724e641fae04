# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Plain sockets between the ranks of two nodes; other links need PyTorch or MPI."""

from __future__ import annotations

import concurrent.futures
import socket

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import (
    pair_links,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks.pair_links import SocketLink, Team

PLAN = {"largest": 100_003, "warmups": 1, "trials": 2}


@pytest.fixture()
def links():
    """Four ranks, of which the first two are of one node, and what they have offered."""
    made = [SocketLink(rank, PLAN, 20.0) for rank in range(4)]
    offers = [dict(link.offer(True), addresses=["127.0.0.1"]) for link in made]
    yield made, offers
    for link in made:
        link.close()
        link.server.close()


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
            link.close()


def test_s28_wrong_values_are_an_error_and_no_bandwidth(links, monkeypatch):
    made, offers = links
    right = pair_links.SocketLink._exchange

    def broken(link, position):
        return right(link, position[:-1] + b"\0" if link.rank == 1 else position)

    monkeypatch.setattr(pair_links.SocketLink, "_exchange", broken)
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
    one, other = (pair_links._test_bytes(rank, 200_000) for rank in (1, 2))
    assert len(one) == 200_000 and one != other
    assert one[1:] != one[:-1] and one[256:] != one[:-256] and one[65521:131042] == one[:65521]
