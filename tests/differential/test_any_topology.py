# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Masks of machines of any shape, against what must hold of every mask; and against what Linux says of this machine.

TORCHSTACK_EXAMPLES is how many machines are tried; without it they are always the same ones.
"""

from __future__ import annotations

import os
import pathlib
import random
import subprocess
from typing import NamedTuple

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.standalone import topology
from hypothesis import given, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("TORCHSTACK_EXAMPLES", "300"))
CPUS = pathlib.Path("/sys/devices/system/cpu")


class Node(NamedTuple):
    """A machine, as its builder knows it."""

    lscpu: str
    gpus: str
    cpus: dict[int, tuple[int, int, int]]
    """The NUMA node, the cache and the core of each CPU."""
    near: list[int]
    """The NUMA node of each GPU."""
    reserved: list[int]
    threads: int


@st.composite
def machines(draw):
    nodes, caches, cores, threads = (draw(st.integers(1, most)) for most in (4, 4, 6, 2))
    count = nodes * caches * cores
    # Threads are numbered one after the other, or side by side; both are found.
    beside = draw(st.booleans())
    cpus = {}
    for core in range(count):
        for thread in range(threads):
            cpu = core * threads + thread if beside else core + thread * count
            cpus[cpu] = (core // (caches * cores), core // cores, core)
    near = draw(st.lists(st.integers(0, nodes - 1), min_size=1, max_size=8))
    reserved = draw(st.lists(st.sampled_from(sorted(cpus)), max_size=4))
    order = sorted(cpus)
    random.Random(draw(st.integers(0, 99))).shuffle(order)
    rows = ["%d,%d,0,%d,,%d,%d,%d,%d" % (cpu, cpus[cpu][2], cpus[cpu][0], *(cpus[cpu][2],) * 3, cpus[cpu][1])
            for cpu in order]
    affinities = ["GPU[%d]\t\t: (Topology) Numa Affinity: %d" % place for place in enumerate(near)]
    lscpu = "\n".join(["# CPU,Core,Socket,Node,,L1d,L1i,L2,L3", *rows])
    return Node(lscpu, "\n".join(affinities), cpus, near, reserved, threads)


def bits(mask):
    return {cpu for cpu in range(int(mask, 16).bit_length()) if int(mask, 16) >> cpu & 1}


@settings(max_examples=EXAMPLES, deadline=None, derandomize=EXAMPLES == 300)
@given(machines(), st.sampled_from(topology.THREADS))
def test_s37_masks_are_apart_near_their_gpus_equal_and_free_of_reserved_cores(node, threads):
    free = {core for _node, _cache, core in node.cpus.values()} - {node.cpus[cpu][2] for cpu in node.reserved}
    free_in = {place: {core for where, _cache, core in node.cpus.values() if where == place and core in free}
               for place in set(node.near)}
    cores, gpus = topology.cores(node.lscpu), topology.gpus(node.gpus)
    how = {"reserved": ",".join(map(str, node.reserved)), "threads": threads}
    if any(len(free_in[place]) < node.near.count(place) for place in free_in):
        with pytest.raises(topology.TopologyError, match="cores for them"):
            topology.binding(cores, gpus, **how)
        return
    bound = topology.binding(cores, gpus, **how)
    masks = [bits(mask) for mask in bound.masks]
    assert sum(map(len, masks)) == len(set().union(*masks))
    for gpu, mask in enumerate(masks):
        used = {node.cpus[cpu][2] for cpu in mask}
        assert used and used <= free
        assert {node.cpus[cpu][0] for cpu in mask} == {node.near[gpu]}
        assert len(mask) == len(used) * (1 if threads == "one" else node.threads)
        assert bound.first_cpus[gpu] == min(mask)
        assert len(mask) >= bound.cpus_per_task
    assert [bound.first_cpus[gpu] for gpu in bound.gpus_by_cpu] == sorted(bound.first_cpus)
    if not node.reserved:
        check_caches(node, masks)


def check_caches(node, masks):
    """Caches that can be dealt out are whole, and nowhere has a GPU more cores than another one of its NUMA node."""
    for place in set(node.near):
        mine = [mask for gpu, mask in enumerate(masks) if node.near[gpu] == place]
        assert len({len(mask) for mask in mine}) == 1
        caches = {cache for where, cache, _core in node.cpus.values() if where == place}
        if len(caches) % len(mine) == 0:
            shared = [{node.cpus[cpu][1] for cpu in mask} for mask in mine]
            assert sum(map(len, shared)) == len(caches) == len(set().union(*shared))


def test_s44_this_machine_is_what_its_kernel_says():
    """lscpu's table, its list for people, and Linux's own files agree on the cores."""
    said = {option: subprocess.run(["lscpu", *option], stdout=subprocess.PIPE, text=True, check=True).stdout
            for option in (("-p",), ("-e",), ("-p=CPU,CORE,SOCKET,NODE,CACHE",))}
    machine = topology.cores(said["-p",])
    assert [topology.cores(text) for text in said.values()] == [machine] * 3
    online = (CPUS / "online").read_text().strip()
    assert {cpu for core in machine for cpu in core.cpus} == topology.numbers(online)
    for core in machine:
        siblings = CPUS / ("cpu%d" % core.cpus[0]) / "topology" / "thread_siblings_list"
        if siblings.exists():
            assert set(core.cpus) == topology.numbers(siblings.read_text().strip()) & topology.numbers(online)
