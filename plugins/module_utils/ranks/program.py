# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What one rank of the acceptance does: ``ranks.pyz QUESTION.json DEADLINE``, started by the site's launcher.

The deadline is in seconds since the epoch. The answer goes to standard output (see :mod:`.rank_output`). Needs nothing
but the standard library and what it checks.

Exit status: 0 when all checks of this rank passed or could not run, 1 otherwise.
"""

from __future__ import annotations

import os
import socket
import sys
import time
import traceback
from typing import Any, Callable, Mapping

from . import benchmark as rank_bandwidth
from . import collective_checks as rank_collectives
from . import expected_values as rank_values
from . import libraries as rank_libraries
from . import mpi_checks as rank_arrays
from . import nccl_log as rank_nccl_log
from . import placement as rank_place
from .output import Output
from .rank_errors import Refused, Unusable
from .rendezvous import Meeting, leave
from .start import start

NEEDS = {
    "horovod": ("torch", "horovod.torch"),
    "torch_gloo": ("torch",),
    "torch_nccl": ("torch",),
    "torch_mpi": ("torch",),
    "cuda_graph_replay": ("torch",),
    "mpi4py": ("mpi4py.MPI",),
}

OF_GPUS = {"torch_nccl", "cuda_graph_replay"}
"""Checks that need GPUs; where none of them is asked for, ranks are placed on processors."""
"""The Python modules that a check imports."""

TYPES = {
    "horovod": ("float32", "float64", "float16", "int32", "int64"),
    "gloo": ("float32", "float64", "float16", "int32", "int64"),
    "nccl": ("float32", "float64", "float16", "bfloat16", "int32", "int64"),
    "mpi": ("float32", "float64", "int32", "int64"),
}
"""Types of tensors that a backend has to get right."""


class Rank:
    """This rank: who it is, what it has imported, and what it found out.

    Args:
        question: what is asked (see the options of the module acceptance_run).
        deadline: seconds since the epoch.
    """

    def __init__(self, question: Mapping[str, Any], deadline: float) -> None:
        self.question = question
        self.names = [*question["checks"], *question["where_possible"]]
        self.modules: dict[str, Any] = {}
        self.problems: list[str] = []
        self.entry: dict[str, Any] = {}
        self.gpu = False
        self.without_gpu = "no rank has a GPU"
        self.meeting: Meeting | None = None
        self.nccl_log: rank_nccl_log.Log | None = None
        self.report: dict[str, Any] = {
            "host": socket.gethostname(), "pid": os.getpid(), "uid": os.getuid(), "executable": sys.executable,
            "python": ".".join(map(str, sys.version_info[:3])), "prefix": os.path.realpath(question["prefix"]),
            "home": os.path.realpath(os.path.expanduser("~")),
            "versions": {}, "files": {}, "libraries": {}, "sizes": {}, "checks": [], "stage": "",
            "import_seconds": {}, "measured": {},
        }
        self.output = Output(self.report)
        self.limit = max(2.0, deadline - time.time())

    def tell(self) -> None:
        """Print the report."""
        self.report["libraries"] = rank_libraries.mapped()
        self.report["versions"]["mpi"] = rank_libraries.mpi_version(self.report["libraries"])
        self.output.report()

    def check(self, name: str, work: Callable[[], str | None]) -> None:
        """Do one check and keep its result.

        A check adds what is wrong to its ``problems`` and goes on, because the other ranks go on as well and would
        wait for this one.

        Raises:
            Exception: what ``work`` raised; the other ranks may wait for this one, so there is no going on.
        """
        self.output.stage(name)
        self.problems = []
        self.entry = {"name": name, "status": "passed", "problems": self.problems, "note": ""}
        self.report["checks"].append(self.entry)
        started = time.monotonic()
        try:
            self.entry["note"] = work() or ""
        except Unusable as reason:
            self.entry.update(status="skipped", note=str(reason))
        except Refused as reason:
            self.problems.append(str(reason))
            raise
        except Exception as error:
            self.problems.append("%s: %s" % (type(error).__name__, str(error).strip()[:600]))
            raise
        finally:
            if self.problems:
                self.entry["status"] = "failed"
            self.entry["seconds"] = round(time.monotonic() - started, 3)

    # --- coming up ---

    def place(self) -> None:
        """Find out which rank this is."""
        self.report.update(rank_place.placement(os.environ))

    def load(self) -> None:
        """Import what the checks need; what only a check that may be left out needs, may be missing."""
        required = set(self.question["imports"])
        for name in self.question["checks"]:
            required.update(NEEDS.get(name, ()))
        wanted = list(self.question["imports"])
        for name in self.names:
            wanted += NEEDS.get(name, ())
        if "torch_nccl" in self.names:
            self.nccl_log = rank_nccl_log.Log(os.environ)
        found = rank_libraries.imported(wanted, sorted(required))
        self.modules.update(found.modules)
        self.report["files"].update(found.files)
        self.report["versions"].update(found.versions)
        self.report["import_seconds"] = found.seconds

    def connect(self) -> None:
        """Choose a device, and meet the others."""
        self.report["device"] = rank_place.cpu_device()
        torch = self.modules.get("torch")
        if torch and OF_GPUS & set(self.names):
            self.report["device"].update(rank_place.gpu_device(torch, self.report["local_rank"]) or {})
        elif torch and torch.cuda.is_available():
            # A release for CPUs may have PyTorch's CUDA build, on a machine with one GPU for all ranks.
            self.report["device"]["gpus_unused"] = torch.cuda.device_count()
        self.meeting = Meeting(self.report, self.modules, self.limit)
        try:
            self.meeting.connect()
        finally:
            self.report["sizes"] = self.meeting.sizes

    def met(self) -> Meeting:
        """How the ranks reach each other."""
        if self.meeting is None:
            raise Refused("the ranks have not met")
        return self.meeting

    def meet(self) -> None:
        """Tell each other where one is; GPUs are used only where every rank has one of its own.

        A rank reports what is wrong with itself only, for of thousands each would say the same.
        """
        everyone = self.met().exchange({key: self.report[key] for key in ("host", "rank", "device")})
        with_gpu = sum(other["device"]["kind"] == "gpu" for other in everyone)
        if 0 < with_gpu < len(everyone):
            self.without_gpu = "not every rank has a GPU"
            if self.report["device"]["kind"] != "gpu":
                self.problems.append("it has no GPU, others have")
        shared = rank_place.shared_gpus(everyone)
        if shared:
            self.without_gpu = "ranks share a GPU"
        for identity, users in shared:
            if self.report["rank"] in users:
                self.problems.append("ranks %s use the same GPU %s" % (" and ".join(map(str, users)), identity))
        self.gpu = with_gpu == len(everyone) and not shared

    # --- the checks ---

    def values(self, device: str) -> rank_collectives.Values:
        """What judges tensors on a device."""
        report = self.report
        return rank_collectives.Values(self.modules["torch"], report["rank"], report["size"], device, self.problems)

    def keep(self, outcome: rank_collectives.Outcome) -> str:
        """Keep what a backend does not have; the check's note."""
        self.entry.setdefault("lacks", {}).update(outcome.lacks)
        return outcome.note

    def measure(self, backend: str, device: str, group: Any = None) -> None:
        """Measure in the group that is there, where the question asks for it; rank 0 keeps the figures."""
        plan = self.question.get("measure") or {}
        if not plan or backend not in (plan.get("backends") or [backend]):
            return
        self.output.stage("the measurement of " + backend)
        report = self.report
        torch = None if group is not None else self.modules["torch"]
        found = rank_bandwidth.measure_in_group(
            torch, backend, device, report["rank"], report["size"], plan, group=group
        )
        if report["rank"] == 0:
            for kind in ("measurements", "latency"):
                report["measured"].setdefault(kind, []).extend(found[kind])
            if found.get("latency_left_out"):
                report["measured"].setdefault("left_out", []).append(
                    "The latency over %s was not measured: %s." % (backend, found["latency_left_out"].rstrip("."))
                )

    def horovod(self) -> str:
        """Horovod, on cores and on GPUs; many sums at once, too, which it fuses."""
        backend = rank_collectives.Horovod(self.modules["horovod.torch"])
        notes = []
        for device in ["cpu", "cuda"] if self.gpu else ["cpu"]:
            values = self.values(device)
            notes.append(self.keep(values.check(backend, TYPES["horovod"])))
            backend.fused(values)
        return "; ".join(notes)

    def torch_group(self, backend: str, device: str) -> str:
        """One backend of torch.distributed: its values, then its speed, in one group, as MPI can make no other."""
        distributed = self.modules["torch"].distributed
        rank, size = self.report["rank"], self.report["size"]
        if backend == "mpi":
            distributed.init_process_group(backend)
        else:
            meeting = self.met()
            store = distributed.PrefixStore("acceptance-" + backend, meeting.open_store())
            self.report["port"] = meeting.port
            patience = meeting.patience()
            distributed.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=patience)
        seen = [distributed.get_rank(), distributed.get_world_size()]
        if seen != [rank, size]:
            raise Refused("the %s backend sees rank %d of %d" % (backend, *seen))
        group = rank_collectives.TorchGroup(self.modules["torch"], backend)
        note = self.keep(self.values(device).check(group, TYPES[backend]))
        self.measure(backend, device)
        # Only where all went well: with others still in a collective it may wait for them, and nothing would be told.
        distributed.destroy_process_group()
        return note

    def torch_gloo(self) -> str:
        """torch.distributed over gloo."""
        if not self.modules["torch"].distributed.is_gloo_available():
            raise Unusable("this PyTorch was built without gloo")
        return self.torch_group("gloo", "cpu")

    def torch_nccl(self) -> str:
        """torch.distributed over NCCL, and what NCCL says of its way."""
        if not self.gpu:
            raise Unusable(self.without_gpu)
        if not self.modules["torch"].distributed.is_nccl_available():
            raise Unusable("this PyTorch was built without NCCL")
        try:
            return self.torch_group("nccl", "cuda")
        finally:
            if self.nccl_log:
                self.report["transport"] = self.nccl_log.heard()
                if self.report["rank"] == 0:
                    os.write(2, self.nccl_log.notable().encode("utf-8", "replace"))

    def torch_mpi(self) -> str:
        """torch.distributed over MPI."""
        if not self.modules["torch"].distributed.is_mpi_available():
            raise Unusable("this PyTorch was built without MPI")
        return self.torch_group("mpi", "cpu")

    def mpi4py(self) -> str:
        """MPI itself, through mpi4py; measured where PyTorch cannot do that."""
        if "mpi4py.MPI" not in self.modules:
            raise Unusable("there is no mpi4py")
        mpi = self.modules["mpi4py.MPI"]
        arrays = rank_arrays.Arrays(mpi, self.report["rank"], self.report["size"], self.problems)
        note = self.keep(arrays.check())
        torch = self.modules.get("torch")
        if "torch_mpi" not in self.names or torch is None or not torch.distributed.is_mpi_available():
            self.measure("mpi", "cpu", mpi.COMM_WORLD)
        return note

    def cuda_graph_replay(self) -> None:
        """Capture a CUDA graph and replay it on other values."""
        if not self.gpu:
            raise Unusable(self.without_gpu)
        torch, count = self.modules["torch"], rank_values.COUNTS[1]
        given = torch.ones(count, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.add(given * 2, 1)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = given * 2 + 1
        mine = rank_values.pattern(torch, count, self.report["rank"], self.report["size"], torch.float32, "cuda")
        given.copy_(mine)
        graph.replay()
        torch.cuda.synchronize()
        self.values("cuda").judge("replayed graph", result, mine.to(torch.float64) * 2 + 1)

    # --- all of it ---

    def work(self) -> None:
        """Everything, in order."""
        self.check("placement", self.place)
        self.check("imports", self.load)
        self.check("start", self.connect)
        self.check("devices", self.meet)
        for name in self.names:
            if name in NEEDS:
                self.check(name, getattr(self, name))
        self.output.stage("end")

    def run(self) -> int:
        """Work, report, and leave.

        Returns:
            The exit status.
        """
        try:
            self.work()
        except Refused:
            pass
        except Exception:
            traceback.print_exc()
        if self.nccl_log:
            self.nccl_log.remove()
        self.tell()
        if self.report["stage"] != "end":
            leave(1)
        self.met().exchange(None)
        # A frame that was broken on the way counts by its second copy.
        self.output.report()
        return 1 if any(entry["status"] == "failed" for entry in self.report["checks"]) else 0


def main(arguments: list[str]) -> int:
    """What the program of the ranks calls; see :func:`.rank_start.start`."""
    return start(arguments, Rank)
