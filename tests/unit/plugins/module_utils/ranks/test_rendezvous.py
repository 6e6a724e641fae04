# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How ranks meet that have nothing but an address, or nothing but another way to hand a port around."""

from __future__ import annotations

import functools
import json
import os
import socket
import sys
import threading
import time
import types

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import rendezvous as rank_meeting
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks.rank_errors import Refused


def test_ranks_without_a_parallel_library_meet_at_the_address_that_the_run_script_has_set():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    heard = {}

    def attend(rank):
        table = rank_meeting.Table(rank, 3, "127.0.0.1", port, 60.0)
        heard[rank] = [table.gather({"rank": rank, "text": "\u00fc"}), table.gather(None)]

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
        except (OSError, Refused) as error:
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
        table = rank_meeting.Table.by(lambda thing: board.exchange(rank, thing), rank, 4, 60.0)
        said = table.collect(rank * 10)
        table.barrier()
        things = [number * 2 for number in said] if said is not None else None
        return said, table.answer(things), table.share("go" if rank == 0 else None)

    assert together(4, attend) == [
        ([0, 10, 20, 30], 0, "go"), (None, 20, "go"), (None, 40, "go"), (None, 60, "go"),
    ]


def test_a_rank_that_has_left_is_named_and_not_waited_for():
    board = Board(3)

    def attend(rank):
        table = rank_meeting.Table.by(lambda thing: board.exchange(rank, thing), rank, 3, 60.0)
        if rank == 2:
            table.seats[0].close()
            return None
        return table.gather(rank)

    left = together(3, attend)
    assert left[:2] == ["rank 2 has left", "rank 0 has left"]


PLACE = {"rank": 1, "size": 2, "source": "pmi", "host": "n1"}


class World:
    """As much of mpi4py's communicator as a meeting needs."""

    def __init__(self, rank, size):
        self.seen = rank, size

    def Get_rank(self):
        return self.seen[0]

    def Get_size(self):
        return self.seen[1]

    def allgather(self, thing):
        return [thing] * self.seen[1]


class Mpi:
    def __init__(self, rank, size):
        self.COMM_WORLD = World(rank, size)


def test_s07_a_library_that_counts_other_ranks_than_the_launcher_is_refused():
    meeting = rank_meeting.Meeting(PLACE, {"mpi4py.MPI": Mpi(0, 1)}, 5.0)
    with pytest.raises(Refused, match="mpi4py sees rank 0 of 1 where the launcher started rank 1 of 2"):
        meeting.connect()
    assert meeting.sizes == {"mpi4py": [0, 1]}
    meeting = rank_meeting.Meeting(PLACE, {"mpi4py.MPI": Mpi(1, 2)}, 5.0)
    meeting.connect()
    assert meeting.exchange("a") == ["a", "a"]


def test_mpi_that_no_check_asks_for_is_taken_where_there_is_no_other_way(monkeypatch):
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.setitem(sys.modules, "mpi4py", types.ModuleType("mpi4py"))
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", Mpi(1, 2))
    meeting = rank_meeting.Meeting(PLACE, {}, 5.0)
    meeting.connect()
    assert meeting.exchange("a") == ["a", "a"]


def test_ranks_that_have_no_way_to_each_other_are_refused(monkeypatch):
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    meeting = rank_meeting.Meeting(PLACE, {}, 5.0)
    for attempt in (meeting.connect, lambda: meeting.exchange(1)):
        with pytest.raises(Refused):
            attempt()
    alone = rank_meeting.Meeting(dict(PLACE, rank=0, size=1), {}, 5.0)
    alone.connect()
    assert alone.exchange({"a": 1}) == [{"a": 1}]


def test_an_address_that_nobody_listens_at_is_said_with_the_reason():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert rank_meeting.reachable(["127.0.0.1"], port) == "127.0.0.1"
    with pytest.raises(ConnectionError, match=r"at port %d: 127\.0\.0\.1 \(" % port):
        rank_meeting.reachable(["127.0.0.1"], port)
    assert rank_meeting.addresses("localhost")[0] == "localhost"


def test_ranks_that_never_come_are_named():
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(ConnectionError) as caught:
        rank_meeting.Table(0, 16, "", 0, 0.05, server)
    assert str(caught.value) == (
        "15 of 16 ranks have not come to rank 0 within 0 s: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 ..."
    )


class Store:
    """As much of PyTorch's store as a meeting needs; counts what is asked of it."""

    def __init__(self):
        self.values, self.asked, self.changed = {}, 0, threading.Condition()

    def set(self, key, value):
        with self.changed:
            self.values[key] = value.encode("utf-8")
            self.changed.notify_all()

    def get(self, key):
        with self.changed:
            self.asked += 1
            self.changed.wait_for(lambda: key in self.values, timeout=60)
            return self.values[key]


def test_ranks_that_torchrun_has_started_meet_by_its_store_and_only_rank_0_asks_for_each():
    store = Store()

    def attend(rank):
        meeting = rank_meeting.Meeting(dict(PLACE, rank=rank, size=5, source="torchrun"), {}, 60.0)
        meeting.store, meeting._exchange = store, meeting._through_store
        return meeting.exchange(rank), meeting.exchange(rank * 2)

    assert together(5, attend) == [([0, 1, 2, 3, 4], [0, 2, 4, 6, 8])] * 5
    assert store.asked == 2 * (5 + 5)


@pytest.mark.parametrize(("up", "said"), [(True, ["abort 3", "exit 3"]), (False, ["exit 3"])])
def test_a_rank_that_leaves_ends_those_that_wait_for_it_in_mpi_whatever_the_launcher_does(monkeypatch, up, said):
    done = []
    world = types.SimpleNamespace(Abort=lambda code: done.append("abort %d" % code))
    mpi = types.SimpleNamespace(Is_initialized=lambda: up, Is_finalized=lambda: False, COMM_WORLD=world)
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", mpi)
    monkeypatch.setattr(os, "_exit", lambda code: done.append("exit %d" % code))
    functools.partial(rank_meeting.leave, 3)()
    assert done == said
