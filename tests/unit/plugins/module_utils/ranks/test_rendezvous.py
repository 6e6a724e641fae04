# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How ranks meet that have nothing but an address, or nothing but another way to hand a port around."""

from __future__ import annotations

import functools
import os
import sys
import threading
import types
import weakref

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import rendezvous
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks.errors import RankError


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
    meeting = rendezvous.Rendezvous(PLACE, {"mpi4py.MPI": Mpi(0, 1)}, 5.0)
    with pytest.raises(RankError, match="mpi4py sees rank 0 of 1 where the launcher started rank 1 of 2"):
        meeting.connect()
    assert meeting.sizes == {"mpi4py": [0, 1]}
    meeting = rendezvous.Rendezvous(PLACE, {"mpi4py.MPI": Mpi(1, 2)}, 5.0)
    meeting.connect()
    assert meeting.exchange("a") == ["a", "a"]


def test_mpi_that_no_check_asks_for_is_taken_where_there_is_no_other_way(monkeypatch):
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.setitem(sys.modules, "mpi4py", types.ModuleType("mpi4py"))
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", Mpi(1, 2))
    meeting = rendezvous.Rendezvous(PLACE, {}, 5.0)
    meeting.connect()
    assert meeting.exchange("a") == ["a", "a"]


def test_ranks_that_have_no_way_to_each_other_are_refused(monkeypatch):
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    meeting = rendezvous.Rendezvous(PLACE, {}, 5.0)
    for attempt in (meeting.connect, lambda: meeting.exchange(1)):
        with pytest.raises(RankError):
            attempt()
    alone = rendezvous.Rendezvous(dict(PLACE, rank=0, size=1), {}, 5.0)
    alone.connect()
    assert alone.exchange({"a": 1}) == [{"a": 1}]


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
        meeting = rendezvous.Rendezvous(dict(PLACE, rank=rank, size=5, source="torchrun"), {}, 60.0)
        meeting.store, meeting._exchange = store, meeting._exchange_by_store
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
    functools.partial(rendezvous.abort, 3)()
    assert done == said


def test_a_rank_that_aborts_waits_until_its_launcher_has_read_what_it_wrote():
    reading, writing = os.pipe()
    os.write(writing, b"MemoryError")
    told = []
    threading.Timer(0.3, lambda: told.append(os.read(reading, 100))).start()
    rendezvous.wait_until_read(writing, 60)
    assert told == [b"MemoryError"]
    os.write(writing, b"MemoryError")
    rendezvous.wait_until_read(writing, 0.1)
    assert os.read(reading, 100) == b"MemoryError"
    os.close(reading)
    os.close(writing)


def test_a_rank_that_aborts_does_not_wait_for_a_file_or_a_closed_descriptor(tmp_path):
    descriptor = os.open(tmp_path / "log", os.O_CREAT | os.O_WRONLY)
    os.write(descriptor, b"MemoryError")
    rendezvous.wait_until_read(descriptor, float("inf"))
    os.close(descriptor)
    rendezvous.wait_until_read(descriptor, float("inf"))


def test_a_group_is_freed_while_an_object_of_its_backend_is_there():
    class Object:
        def __init__(self, name):
            weakref.finalize(self, freed.append, name)

    class Group(Object):
        _device_types = ("cpu",)

        def _get_backend(self, device):
            return Object("backend of " + device)

    def destroy():
        distributed.group.WORLD = None
        freed.append("destroyed")

    freed = []
    group = types.SimpleNamespace(WORLD=Group("group"))
    distributed = types.SimpleNamespace(group=group, destroy_process_group=destroy)
    rendezvous.end_group(distributed)
    assert freed == ["destroyed", "group", "backend of cpu"]
    # That of PyTorch 1 has no backends.
    group.WORLD = object()
    rendezvous.end_group(distributed)
    assert group.WORLD is None
