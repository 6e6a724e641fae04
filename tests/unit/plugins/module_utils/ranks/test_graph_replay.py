# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The replay of a CUDA graph, on a stand-in of PyTorch that records what is captured and computes on lists.

Covers backend_checks. On a real GPU, an acceptance runs the same check.
"""

from __future__ import annotations

import contextlib
import time
import types

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import expected_values
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import program as rank_program

QUESTION = {"prefix": "/r", "imports": [], "checks": [], "where_possible": [], "patience": 5}


class Tensor:
    """A one-dimensional tensor; what is computed while a graph is captured is written down there."""

    def __init__(self, gpu, compute):
        self.gpu, self.compute, self.values = gpu, compute, compute()
        if gpu.captured is not None:
            gpu.captured.append(self)

    def _with(self, other, function):
        def compute():
            others = other.values if isinstance(other, Tensor) else [other] * len(self.values)
            return [function(a, b) for a, b in zip(self.values, others)]

        return Tensor(self.gpu, compute)

    def __add__(self, other):
        return self._with(other, lambda a, b: a + b)

    def __sub__(self, other):
        return self._with(other, lambda a, b: a - b)

    def __mul__(self, other):
        return self._with(other, lambda a, b: a * b)

    def __mod__(self, other):
        return self._with(other, lambda a, b: a % b)

    def __eq__(self, other):
        return self._with(other, lambda a, b: a == b)

    __hash__ = None

    def __le__(self, other):
        return self._with(other, lambda a, b: a <= b)

    def __invert__(self):
        return self._with(0, lambda a, _b: not a)

    def __getitem__(self, place):
        return Tensor(self.gpu, lambda: [self.values[place]])

    def __len__(self):
        return len(self.values)

    def __int__(self):
        return int(self.values[0])

    __radd__, __rmul__ = __add__, __mul__

    def abs(self):
        return self._with(0, lambda a, _b: abs(a))

    def to(self, _kind):
        return self._with(0, lambda a, _b: float(a))

    def double(self):
        return self.to("float64")

    def numel(self):
        return len(self.values)

    def item(self):
        return self.values[0]

    def nonzero(self):
        return Tensor(self.gpu, lambda: [place for place, value in enumerate(self.values) if value])

    def copy_(self, other):
        self.values[:] = other.values


class Gpu:
    """PyTorch with a GPU; ``replays`` is what a replay does with what was captured."""

    float32 = float64 = "float"

    def __init__(self, replays):
        self.captured, self.said, gpu = None, [], self

        class Stream:
            def wait_stream(self, _other):
                gpu.said.append("wait")

        class CUDAGraph:
            def replay(self):
                gpu.said.append("replay")
                replays(self.operations)

        @contextlib.contextmanager
        def capture(graph):
            gpu.captured = graph.operations = []
            yield
            gpu.captured = None

        self.cuda = types.SimpleNamespace(
            Stream=Stream, CUDAGraph=CUDAGraph, graph=capture, current_stream=Stream,
            stream=lambda _stream: contextlib.nullcontext(), synchronize=lambda: gpu.said.append("synchronize"))

    def ones(self, count, device):
        assert device == "cuda"
        return Tensor(self, lambda: [1.0] * count)

    def arange(self, count, device):
        assert device == "cuda"
        return Tensor(self, lambda: list(range(count)))

    def add(self, one, other):
        return one + other


def compute_again(operations):
    """What CUDA does: the captured operations once more, in order, on what is in their inputs by now."""
    for tensor in operations:
        tensor.values[:] = tensor.compute()


def one_value_wrong(operations):
    compute_again(operations)
    operations[-1].values[-1] += 1


def replay(monkeypatch, how):
    monkeypatch.setattr(expected_values, "COUNTS", (1, 7, 11))
    gpu = Gpu(how)
    one = rank_program.Rank(QUESTION, time.time() + 60)
    one.report.update({"rank": 1, "size": 2, "host": "n1"})
    one.gpu, one.modules["torch"] = True, gpu
    one.check("cuda_graph_replay", one.cuda_graph_replay)
    assert gpu.said[-2:] == ["replay", "synchronize"]
    return one.entry


def test_s40_a_graph_that_is_replayed_on_other_values_passes(monkeypatch):
    assert replay(monkeypatch, compute_again)["status"] == "passed"


@pytest.mark.parametrize("how", [lambda _operations: None, one_value_wrong], ids=["stale values", "one wrong value"])
def test_s40_a_replay_that_gives_stale_or_wrong_values_fails(monkeypatch, how):
    entry = replay(monkeypatch, how)
    assert entry["status"] == "failed"
    assert "replayed graph" in entry["problems"][0] and "values are wrong" in entry["problems"][0]
