# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The benchmark as ranks run it, over a carrier of threads whose clock, memory and mistakes a test decides on."""

from __future__ import annotations

import itertools
import threading
import types

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import bandwidth_values
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import benchmark as rank_bandwidth
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import plan as bandwidth_plan
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import transport_torch as rank_bandwidth_torch
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import units as bandwidth


class World:
    """Threads that hand things to each other."""

    def __init__(self, size, **settings):
        self.size, self.settings = size, settings
        self.slots = [None] * size
        self.barrier = threading.Barrier(size, timeout=20)
        self.steps = []

    def gather(self, rank, thing):
        self.slots[rank] = thing
        self.barrier.wait()
        told = list(self.slots)
        self.barrier.wait()
        return told

    def run(self, measure):
        """Every rank's result, or its exception."""
        results = [None] * self.size
        asked = bandwidth_plan.plan(measure)

        def work(rank):
            try:
                results[rank] = rank_bandwidth.Bench(Carrier(self, rank), asked, None).run()
            except Exception as error:
                results[rank] = error
                self.barrier.abort()

        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results

    def result(self, measure):
        """The result, which is the same on all ranks."""
        results = self.run(measure)
        assert all(result == results[0] for result in results), results
        assert isinstance(results[0], dict), results[0]
        return results[0]


class Carrier:
    backend, provider, device = "gloo", "threads", "cpu"

    def __init__(self, world, rank):
        self.world, self.rank, self.size = world, rank, world.size
        self.most = world.settings.get("most", 1 << 62)

    def gather(self, thing):
        return self.world.gather(self.rank, thing)

    def room(self):
        rooms = self.world.settings.get("rooms", {})
        return "cpu", rooms.get(self.rank, 1 << 40)

    def finish(self):
        pass

    def work(self, operation, plan, other=None):
        return Work(self, operation, plan)

    def timed(self, step, trials, blocking, alone=False):
        for _number in range(trials):
            step()
        seconds = self.world.settings.get("seconds", 1e-3)
        return trials * seconds, [seconds] * trials


class Work:
    """The operations by their definitions, on lists; what all ranks get is worked out by each."""

    def __init__(self, carrier, operation, plan):
        self.carrier, self.operation, self.plan = carrier, operation, plan
        self.source, self.target = [0.0] * plan.source, [0.0] * (plan.target or plan.source)

    def _contribution(self, part, seed):
        once = bandwidth_values.period(part.who, self.carrier.size)
        return [once[(part.offset + seed + place) % len(once)] for place in range(part.length)]

    def fill(self, seed):
        self.source = self._contribution(bandwidth_values.Part(0, self.plan.source, self.carrier.rank, 0), seed)
        self.target = [-1.0] * len(self.target)

    def step(self):
        settings, rank, ranks = self.carrier.world.settings, self.carrier.rank, self.carrier.size
        self.carrier.world.steps.append((self.operation, self.plan.source))
        if rank in settings.get("without", {}).get(self.operation, ()):
            raise RuntimeError("threads do not do that")
        if self.operation == "message":
            # A message has two ranks, and only they are here.
            self.target = self._contribution(self.plan.result[0], 1)
            return
        given = self.carrier.gather(self.source)
        total = [sum(column) for column in zip(*given)] if "reduce" in self.operation else self.source
        part = len(total) // ranks
        mine = slice(rank * part, (rank + 1) * part)
        joined = itertools.chain.from_iterable
        self.target = {
            "all_reduce": lambda: total, "broadcast": lambda: given[0], "reduce_scatter": lambda: total[mine],
            "all_gather": lambda: joined(given), "all_to_all": lambda: joined(one[mine] for one in given),
            "send_recv": lambda: given[rank - 1],
        }[self.operation]()
        self.target = list(self.target)
        if (rank, self.plan.source) == settings.get("liar"):
            self.target = [*self.target[:-1], self.target[-1] + 1]

    def wrong(self, seed):
        expected = [0.0] * len(self.target)
        for part in self.plan.result:
            expected[part.start:part.start + part.length] = self._contribution(part, seed)
        bad = [place for place in range(len(expected)) if self.target[place] != expected[place]]
        return "index %d: got %g, expected %g" % (bad[0], self.target[bad[0]], expected[bad[0]]) if bad else ""

    def release(self):
        pass


SMALL = {"smallest": "1 KiB", "largest": "4 KiB", "warmups": 1, "trials": 3}
ALL = sorted(bandwidth.FACTORS)


@pytest.mark.parametrize("ranks", [2, 3])
def test_s30_every_operation_is_measured_at_every_size_and_its_values_are_right(ranks):
    result = World(ranks).result(dict(SMALL, operations=ALL))
    assert [group["operation"] for group in result["measurements"]] == ALL
    for group in result["measurements"]:
        assert (group["ranks"], group["nodes"], group["left_out"]) == (ranks, 1, "")
        assert [(line["bytes"], line["trials"], line["verified"]) for line in group["rows"]] == [
            (1024, 3, True), (2048, 3, True), (4096, 3, True)
        ]
        count = bandwidth.elements(group["operation"], 4096, ranks)
        factor = bandwidth.FACTORS[group["operation"]](ranks)
        assert group["rows"][-1]["busbw"] == pytest.approx(count * 4 / 1e-3 / 1e9 * factor, rel=1e-4)


@pytest.mark.parametrize("operation", ALL)
def test_s30_one_wrong_number_on_one_rank_at_one_size_is_named(operation):
    count = bandwidth.elements(operation, 2048, 3)
    liar = bandwidth_values.layout(operation, 2, 3, count).source
    rows = World(3, liar=(2, liar)).result(dict(SMALL, operations=[operation]))["measurements"][0]["rows"]
    assert [line["verified"] for line in rows] == [True, False, True]
    assert rows[1]["wrong"].startswith("rank 2 on ") and "expected" in rows[1]["wrong"]


def test_s30_sizes_that_one_rank_has_no_memory_for_are_left_out_everywhere_and_that_is_said():
    # Three ranks of one host share what there is, and half of it is kept for the libraries.
    result = World(3, rooms={1: 3 * 2 * 2048}).result(SMALL)
    group = result["measurements"][0]
    assert [line["bytes"] for line in group["rows"]] == [1024, 2048]
    assert group["left_out"].startswith("4 KiB left out: rank 1 on ")
    assert group["left_out"].endswith("has 1.91e-06 GiB of memory for its buffers.")


def test_s30_sizes_that_give_a_rank_no_part_or_are_more_than_mpi_counts_are_left_out():
    result = World(3, most=512).result(dict(SMALL, smallest=32, operations=["all_gather"]))
    group = result["measurements"][0]
    assert [line["bytes"] for line in group["rows"]] == [64, 128, 256, 512, 1024, 2048]
    assert group["left_out"] == (
        "32 bytes left out: too small to give each of 3 ranks a part. 4 KiB left out: MPI counts at most 512 elements."
    )


def test_s30_a_budget_makes_fewer_trials_and_leaves_out_large_sizes_and_that_is_said(monkeypatch):
    clocks = threading.local()

    def clock():
        # Each look at the clock is a second later than the last.
        clocks.now = getattr(clocks, "now", 0.0) + 1.0
        return clocks.now

    monkeypatch.setattr(rank_bandwidth.time, "perf_counter", clock)
    monkeypatch.setattr(rank_bandwidth.time, "monotonic", clock)
    result = World(2).result(dict(SMALL, warmups=5, trials=20, seconds=20, latency={"bytes": [8], "iterations": 9000}))
    group = result["measurements"][0]
    assert 1 <= len(group["rows"]) < 3
    assert all(line["trials"] < 20 for line in group["rows"])
    assert "left out: they would take longer than the 20 seconds for this operation" in group["left_out"]
    assert "with fewer than 20 trials, to keep within 20 seconds" in group["left_out"]
    assert result["latency"][0]["iterations"] < 9000


def test_s30_an_operation_that_the_backend_lacks_is_said_and_the_others_are_measured():
    world = World(2, without={"reduce_scatter": (0, 1)})
    groups = world.result(dict(SMALL, operations=["reduce_scatter", "all_reduce"]))["measurements"]
    assert groups[0]["rows"] == [] and len(groups[1]["rows"]) == 3
    assert groups[0]["left_out"] == "gloo (threads) has no reduce_scatter here: RuntimeError: threads do not do that."


def test_s30_one_rank_alone_has_no_messages_and_no_ring():
    result = World(1).result(dict(SMALL, operations=["all_reduce", "send_recv"], latency={"bytes": [8]}))
    assert [line["busbw"] for line in result["measurements"][0]["rows"]] == [0.0, 0.0, 0.0]
    assert result["measurements"][1]["left_out"] == "One rank alone has nobody to send to."
    assert result["latency"] == [] and result["latency_left_out"]


def test_s44_messages_go_between_rank_0_and_the_last_rank_of_another_node(monkeypatch):
    hosts = {0: "nid001", 1: "nid001", 2: "nid002", 3: "nid001"}
    gather = World.gather

    def placed(world, rank, thing):
        return gather(world, rank, hosts[rank] if isinstance(thing, str) and thing else thing)

    monkeypatch.setattr(World, "gather", placed)
    result = World(4).result(dict(SMALL, operations=[], latency={"bytes": [8, "128 KiB"], "iterations": 50}))
    assert [(line["bytes"], line["ranks"], line["hosts"]) for line in result["latency"]] == [
        (8, [0, 2], ["nid001", "nid002"]), (128 << 10, [0, 2], ["nid001", "nid002"])
    ]
    assert [line["iterations"] for line in result["latency"]] == [50, 10]
    assert all(line["verified"] and line["microseconds"]["median"] == 500.0 for line in result["latency"])


def test_s30_the_trials_of_each_size_are_kept_when_asked_for():
    rows = World(2).result(dict(SMALL, stability=True))["measurements"][0]["rows"]
    assert rows[0]["iterations"] == [1000.0, 1000.0, 1000.0]
    assert "iterations" not in World(2).result(SMALL)["measurements"][0]["rows"][0]


# --- over PyTorch ----------------------------------------------------------------------------------------------------


class Event:
    """Of CUDA, with the number of operations that were launched before it as its time."""

    def __init__(self, done):
        self.done, self.at = done, None

    def record(self):
        self.at = len(self.done)

    def elapsed_time(self, later):
        return float(later.at - self.at)


def some_torch(done, **functions):
    """As much of PyTorch as makes buffers, launches operations, and takes their time."""
    tensor = types.SimpleNamespace(chunk=lambda size: [])
    cuda = types.SimpleNamespace(Event=lambda enable_timing: Event(done), synchronize=lambda: done.append("waited"))
    distributed = types.SimpleNamespace(all_reduce=lambda buffer, group: done.append("all_reduce"), **functions)
    return types.SimpleNamespace(
        empty=lambda *_size, **_how: tensor, zeros=lambda *_size, **_how: tensor, float32="float32", cuda=cuda,
        distributed=distributed,
    )


def test_s30_on_a_gpu_the_clock_starts_when_the_ranks_are_at_work():
    done = []
    carrier = rank_bandwidth_torch.TorchCarrier(some_torch(done), "nccl", "cuda", 0, 2, None)
    batch, times = carrier.timed(lambda: done.append("trial"), 5, False)
    assert done == ["waited", "all_reduce", "waited", *["trial"] * (rank_bandwidth_torch.RUN_IN + 5), "waited"]
    assert batch == pytest.approx(5e-3) and times == pytest.approx([1e-3] * 5)


def test_s30_memory_that_does_not_suffice_later_is_no_reason_to_do_something_else_than_the_others():
    done = []

    def single(target, source, group):
        done.append("single")
        if len(done) > 1:
            raise RuntimeError("out of memory")

    torch = some_torch(done, all_gather_single=single, all_gather=lambda *_all, **_group: done.append("other"))
    carrier = rank_bandwidth_torch.TorchCarrier(torch, "gloo", "cpu", 0, 2, None)
    plan = bandwidth_values.layout("all_gather", 0, 2, 8)
    carrier.work("all_gather", plan).step()
    with pytest.raises(RuntimeError, match="out of memory"):
        carrier.work("all_gather", plan).step()
    assert done == ["single", "single"]


def test_s30_what_this_pytorch_does_not_have_is_done_in_its_older_way_each_time():
    done = []
    torch = some_torch(done, all_gather=lambda *_all, **_group: done.append("other"))
    carrier = rank_bandwidth_torch.TorchCarrier(torch, "gloo", "cpu", 0, 2, None)
    plan = bandwidth_values.layout("all_gather", 0, 2, 8)
    for _number in range(2):
        carrier.work("all_gather", plan).step()
    assert done == ["other", "other"]
