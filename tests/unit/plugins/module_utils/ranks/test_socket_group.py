# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Ranks that are connected by sockets alone."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import socket_group
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks.errors import RankError


def test_ranks_without_a_parallel_library_meet_at_the_address_that_the_run_script_has_set():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    heard = {}

    def attend(rank):
        table = socket_group.SocketGroup(rank, 3, "127.0.0.1", port, 60.0)
        heard[rank] = [table.all_gather({"rank": rank, "text": "\u00fc"}), table.all_gather(None)]

    guests = [threading.Thread(target=attend, args=(rank,)) for rank in (2, 1)]
    for guest in guests:
        guest.start()
    stranger = threading.Thread(target=knock, args=(port,))
    stranger.start()
    attend(0)
    for thread in (*guests, stranger):
        thread.join()
    told = [{"rank": rank, "text": "\u00fc"} for rank in range(3)]
    assert heard == {rank: [told, [None] * 3] for rank in range(3)}


def knock(port):
    """Connect as whoever tries all ports does, as soon as somebody listens; or too late, when the ranks have met."""
    for _attempt in range(50):
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
                return
        except OSError:
            time.sleep(0.01)


def together(size, attend):
    """Run one function for each rank at once; what each has returned, or why it ended."""
    heard = {}

    def run(rank):
        try:
            heard[rank] = attend(rank)
        except (OSError, RankError) as error:
            heard[rank] = str(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [heard[rank] for rank in range(size)]


class Board:
    """A way to hand things around that ranks have met by already."""

    def __init__(self, size):
        self.things = [None] * size
        self.barrier = threading.Barrier(size, timeout=60)

    def exchange(self, rank, thing):
        self.things[rank] = json.dumps(thing)
        self.barrier.wait()
        told = [json.loads(text) for text in self.things]
        self.barrier.wait()
        return told


def test_a_table_that_ranks_come_to_by_mpi_needs_it_no_more():
    board = Board(4)

    def attend(rank):
        table = socket_group.SocketGroup.from_exchange(lambda thing: board.exchange(rank, thing), rank, 4, 60.0)
        said = table.gather(rank * 10)
        table.barrier()
        return said, table.broadcast("go" if rank == 0 else None)

    assert together(4, attend) == [
        ([0, 10, 20, 30], "go"), (None, "go"), (None, "go"), (None, "go"),
    ]


def test_a_stranger_at_the_port_gets_no_rank_s_seat():
    with socket_group.listen(0, 2) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), timeout=60) as stranger:
            stranger.sendall(b'1\n{"rank": 1, "ok": "FORGED"}\n')
            with socket.create_connection(("127.0.0.1", port), timeout=60) as guesser:
                guesser.sendall(b'1 %s\n{"rank": 1, "ok": "FORGED"}\n' % (b"0" * 32))

                def attend(rank):
                    group = socket_group.SocketGroup(
                        rank, 2, "127.0.0.1", port, 60.0, None if rank else server, "a" * 32)
                    return group.all_gather({"rank": rank, "ok": "genuine"})

                told = [{"rank": rank, "ok": "genuine"} for rank in range(2)]
                assert together(2, attend) == [told, told]
                for one in (stranger, guesser):
                    with contextlib.suppress(ConnectionResetError):  # as nobody has read what it said
                        assert one.recv(1) == b""


def test_what_makes_a_rank_is_handed_around_and_new_each_time():
    offers = []

    def exchange(thing):
        offers.append(thing)
        return [thing]

    for _time in range(2):
        socket_group.SocketGroup.from_exchange(exchange, 0, 1, 1.0)
    assert len({offer["secret"] for offer in offers}) == 2 and all(len(offer["secret"]) == 32 for offer in offers)


def test_one_who_knows_the_secret_of_the_environment_only_is_a_rank(monkeypatch):
    monkeypatch.setenv("TORCHSTACK_SEATS", "s3at")
    with socket_group.listen(0, 2) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), timeout=60) as stranger:
            stranger.sendall(b"1\n")
            found = together(2, lambda rank: socket_group.SocketGroup(
                rank, 2, "127.0.0.1", port, 60.0, None if rank else server).all_gather(rank))
    assert found == [[0, 1], [0, 1]]


def test_strangers_who_say_nothing_or_never_come_to_an_end_keep_no_rank_waiting():
    with socket_group.listen(0, 200) as server:
        port = server.getsockname()[1]
        # One after the other, each would be waited for for ten seconds.
        idle = [socket.create_connection(("127.0.0.1", port), timeout=60) for _stranger in range(60)]
        for stranger in idle[::2]:
            stranger.sendall(b"1")

        def attend(rank):
            return socket_group.SocketGroup(
                rank, 3, "127.0.0.1", port, 60.0, None if rank else server, "a" * 32).all_gather(rank)

        assert together(3, attend) == [[0, 1, 2]] * 3
        for stranger in idle:
            stranger.close()


def test_what_a_rank_says_after_its_greeting_is_not_lost():
    with socket_group.listen(0, 2) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), timeout=60) as guest:
            guest.sendall(b"1 s3cret\n" + b"[1, 2, 3]\n" * 2)
            group = socket_group.SocketGroup(0, 2, "", port, 60.0, server, "s3cret")
            assert [group.gather(None), group.gather(None)] == [[None, [1, 2, 3]]] * 2


def test_two_who_come_as_one_rank_are_told_of():
    with socket_group.listen(0, 3) as server:
        port = server.getsockname()[1]
        guests = [socket.create_connection(("127.0.0.1", port), timeout=60) for _guest in range(2)]
        for guest in guests:
            guest.sendall(b"1\n")
        with pytest.raises(ConnectionError, match="two have come to rank 0 as rank 1"):
            socket_group.SocketGroup(0, 3, "", port, 60.0, server)
        for guest in guests:
            guest.close()


def test_a_rank_that_has_left_is_named_and_not_waited_for():
    board = Board(3)

    def attend(rank):
        table = socket_group.SocketGroup.from_exchange(lambda thing: board.exchange(rank, thing), rank, 3, 60.0)
        if rank == 2:
            table.connections[0].close()
            return None
        return table.all_gather(rank)

    left = together(3, attend)
    assert left[:2] == ["rank 2 has left", "rank 0 has left"]


def test_an_address_that_nobody_listens_at_is_said_with_the_reason():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert socket_group.first_reachable(["127.0.0.1"], port) == "127.0.0.1"
    with pytest.raises(ConnectionError, match=r"at port %d: 127\.0\.0\.1 \(" % port):
        socket_group.first_reachable(["127.0.0.1"], port)
    assert socket_group.addresses("localhost")[0] == "localhost"


def test_ranks_that_never_come_are_named():
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(ConnectionError) as caught:
        socket_group.SocketGroup(0, 16, "", 0, 0.05, server)
    assert str(caught.value) == (
        "15 of 16 ranks have not come to rank 0 within 0 s: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 ..."
    )


def test_a_host_whose_name_leads_nowhere_is_reached_by_its_address():
    assert socket_group.addresses_towards("127.0.0.1") == ["127.0.0.1"]
    assert socket_group.addresses_towards("") == socket_group.addresses_towards("no.such.host.invalid") == []
