# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check the backends of a release on one rank: Horovod, torch.distributed, MPI, CUDA graphs."""

from __future__ import annotations

import os
from typing import Any, Mapping

from . import benchmark, collective_checks, expected_values, mpi_checks, nccl_log
from .errors import CheckUnavailable, RankError
from .output import RankOutput
from .rendezvous import Rendezvous, end_group

NEEDS = {
    "horovod": ("torch", "horovod.torch"),
    "torch_gloo": ("torch",),
    "torch_nccl": ("torch",),
    "torch_mpi": ("torch",),
    "cuda_graph_replay": ("torch",),
    "mpi4py": ("mpi4py.MPI",),
}
"""The Python modules that a check imports."""

OF_GPUS = {"torch_nccl", "cuda_graph_replay"}
"""Checks that need GPUs; where none of them is asked for, ranks are placed on processors."""

TYPES = {
    "horovod": ("float32", "float64", "float16", "int32", "int64"),
    "gloo": ("float32", "float64", "float16", "int32", "int64"),
    "nccl": ("float32", "float64", "float16", "bfloat16", "int32", "int64"),
    "mpi": ("float32", "float64", "int32", "int64"),
}
"""Types of tensors that a backend has to get right."""


class BackendChecks:
    """Check one backend with each method, named as in the question: it returns a note, and adds to ``problems``."""

    def __init__(self, question: Mapping[str, Any], report: dict[str, Any]) -> None:
        self.question, self.report = question, report
        self.names = [*question["checks"], *question["where_possible"]]
        self.modules: dict[str, Any] = {}
        self.problems: list[str] = []
        self.entry: dict[str, Any] = {}
        self.gpu = False
        self.without_gpu = "no rank has a GPU"
        self.rendezvous: Rendezvous | None = None
        self.nccl_log: nccl_log.NcclLog | None = None
        self.output = RankOutput(report)

    def connected(self) -> Rendezvous:
        """Return the rendezvous of the ranks."""
        if self.rendezvous is None:
            raise RankError("the ranks have not met")
        return self.rendezvous

    def tensor_checks(self, device: str) -> collective_checks.TensorChecks:
        """Return the checks of tensors on a device."""
        rank, size = self.report["rank"], self.report["size"]
        return collective_checks.TensorChecks(self.modules["torch"], rank, size, device, self.problems)

    def record_lacks(self, outcome: collective_checks.Outcome) -> str:
        """Record what a backend does not have, and return the check's note."""
        self.entry.setdefault("lacks", {}).update(outcome.lacks)
        return outcome.note

    def measure(self, backend: str, device: str, group: Any = None) -> None:
        """Measure in an existing group where the question asks for it; rank 0 keeps the figures."""
        plan = self.question.get("measure") or {}
        if not plan or backend not in (plan.get("backends") or [backend]):
            return
        self.output.stage("the measurement of " + backend)
        rank, measured = self.report["rank"], self.report["measured"]
        torch = None if group is not None else self.modules["torch"]
        found = benchmark.measure_in_group(torch, backend, device, rank, self.report["size"], plan, group=group)
        if rank == 0:
            for kind in ("measurements", "latency"):
                measured.setdefault(kind, []).extend(found[kind])
            if found.get("latency_left_out"):
                why = found["latency_left_out"].rstrip(".")
                measured.setdefault("left_out", []).append("The latency over %s was not measured: %s." % (backend, why))

    def horovod(self) -> str:
        """Check Horovod on CPUs and GPUs, also with many sums at once, which it fuses."""
        backend = collective_checks.Horovod(self.modules["horovod.torch"])
        notes = []
        for device in ["cpu", "cuda"] if self.gpu else ["cpu"]:
            values = self.tensor_checks(device)
            notes.append(self.record_lacks(values.check(backend, TYPES["horovod"])))
            backend.check_fused(values)
        return "; ".join(notes)

    def check_torch_group(self, backend: str, device: str) -> str:
        """Check and measure one backend of torch.distributed, in one group: MPI can make no other."""
        distributed = self.modules["torch"].distributed
        rank, size = self.report["rank"], self.report["size"]
        if backend == "mpi":
            distributed.init_process_group(backend)
        else:
            rendezvous = self.connected()
            store = distributed.PrefixStore("acceptance-" + backend, rendezvous.open_store())
            self.report["port"] = rendezvous.port
            distributed.init_process_group(
                backend, store=store, rank=rank, world_size=size, timeout=rendezvous.timeout())
        seen = [distributed.get_rank(), distributed.get_world_size()]
        if seen != [rank, size]:
            raise RankError("the %s backend sees rank %d of %d" % (backend, *seen))
        group = collective_checks.TorchGroup(self.modules["torch"], backend)
        note = self.record_lacks(self.tensor_checks(device).check(group, TYPES[backend]))
        self.measure(backend, device)
        # Only after success: it waits for ranks that are still in a collective, and nothing would be reported.
        end_group(distributed)
        return note

    def torch_gloo(self) -> str:
        """Check torch.distributed over gloo."""
        if not self.modules["torch"].distributed.is_gloo_available():
            raise CheckUnavailable("this PyTorch was built without gloo")
        return self.check_torch_group("gloo", "cpu")

    def torch_nccl(self) -> str:
        """Check torch.distributed over NCCL, and record what NCCL logs about its network."""
        if not self.gpu:
            raise CheckUnavailable(self.without_gpu)
        if not self.modules["torch"].distributed.is_nccl_available():
            raise CheckUnavailable("this PyTorch was built without NCCL")
        try:
            return self.check_torch_group("nccl", "cuda")
        finally:
            if self.nccl_log:
                self.report["transport"] = self.nccl_log.summary()
                if self.report["rank"] == 0:
                    os.write(2, self.nccl_log.notable_lines().encode("utf-8", "replace"))

    def torch_mpi(self) -> str:
        """Check torch.distributed over MPI."""
        if not self.modules["torch"].distributed.is_mpi_available():
            raise CheckUnavailable("this PyTorch was built without MPI")
        return self.check_torch_group("mpi", "cpu")

    def mpi4py(self) -> str:
        """Check MPI through mpi4py; measure it where PyTorch cannot."""
        if "mpi4py.MPI" not in self.modules:
            raise CheckUnavailable("there is no mpi4py")
        mpi = self.modules["mpi4py.MPI"]
        arrays = mpi_checks.MpiChecks(mpi, self.report["rank"], self.report["size"], self.problems)
        note = self.record_lacks(arrays.check())
        torch = self.modules.get("torch")
        if "torch_mpi" not in self.names or torch is None or not torch.distributed.is_mpi_available():
            self.measure("mpi", "cpu", mpi.COMM_WORLD)
        return note

    def cuda_graph_replay(self) -> None:
        """Capture a CUDA graph and replay it on other values."""
        if not self.gpu:
            raise CheckUnavailable(self.without_gpu)
        torch, count = self.modules["torch"], expected_values.COUNTS[1]
        given = torch.ones(count, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.add(given * 2, 1)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = given * 2 + 1
        rank, size = self.report["rank"], self.report["size"]
        mine = expected_values.contribution_tensor(torch, count, rank, size, torch.float32, "cuda")
        given.copy_(mine)
        graph.replay()
        torch.cuda.synchronize()
        self.tensor_checks("cuda").compare("replayed graph", result, mine.to(torch.float64) * 2 + 1)
