# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The benchmark without Ansible: each rank that a launcher starts runs this, and rank 0 tells.

Lines are printed as soon as a size is measured, so that whoever interrupts it has all that was measured before.
Python 3.8 or later; needs nothing but the standard library and what it measures.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import platform
import socket
import sys
import time
import traceback
from typing import Any, Mapping, Sequence

from ..standalone import rank_environment as ranks
from . import benchmark as rank_bandwidth
from . import placement as rank_place
from . import plan as bandwidth_plan
from . import rendezvous as rank_meeting
from . import units as bandwidth
from .benchmark_output import (
    CANNOT,
    VERIFIED,
    WRONG,
    Telling,
    complain,
    say,
)
from .rank_errors import Refused

TELLING = (
    "NCCL_", "RCCL_", "FI_", "GLOO_", "MPICH_", "MPIR_CVAR_", "UCX_", "OMPI_MCA_btl", "OMPI_MCA_coll", "OMPI_MCA_mtl",
    "OMPI_MCA_osc", "OMPI_MCA_pml", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
)
"""Beginnings of the variables that change what is measured, and are not the launcher's own."""

LOAD = "load the module of a release first, or start its Python"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    command = argparse.ArgumentParser(
        prog="collectives", allow_abbrev=False,
        description="Measure collective operations between the ranks that a launcher started, and check their values.",
        epilog="Exit code: 0 all values were right, 1 some were wrong or nothing was measured, 2 it could not begin "
               "or could not write FILE.",
    )
    default = bandwidth_plan.DEFAULTS
    command.add_argument(
        "--backend", choices=bandwidth.BACKENDS, help="nccl where there is a GPU, gloo, or without PyTorch mpi",
    )
    command.add_argument(
        "--operations", default=",".join(default["operations"]), metavar="A,B",
        help="all_reduce (default), " + ", ".join(name for name in bandwidth.FACTORS if name != "all_reduce"),
    )
    command.add_argument("--smallest", default="32KiB", metavar="SIZE", help="first size (32KiB)")
    command.add_argument("--largest", default="16GiB", metavar="SIZE", help="last size, as memory allows (16GiB)")
    command.add_argument("--also", default="", metavar="SIZES", help="further sizes, separated by commas")
    command.add_argument("--warmups", type=int, default=default["warmups"], metavar="N", help="before trials (5)")
    command.add_argument("--trials", type=int, default=default["trials"], metavar="N", help="of each size (20)")
    command.add_argument(
        "--seconds", type=float, default=default["seconds"], metavar="S",
        help="most time for an operation, with fewer trials (0: as long as it takes)",
    )
    command.add_argument("--blocking", action="store_true", help="wait for all ranks before each trial")
    command.add_argument("--stability", action="store_true", help="show the time of each trial")
    command.add_argument(
        "--latency", nargs="?", const="8", default="", metavar="SIZES",
        help="messages between rank 0 and the farthest rank (8 bytes, or SIZES separated by commas)",
    )
    command.add_argument(
        "--iterations", type=int, default=bandwidth_plan.ITERATIONS, metavar="N", help="round trips (1000)",
    )
    command.add_argument("--json", metavar="FILE", help="write the result there")
    command.add_argument("--patience", type=float, default=300.0, metavar="S", help="wait for other ranks (300)")
    return command


def plan(given: argparse.Namespace) -> dict[str, Any]:
    """The plan that the command line asks for.

    Raises:
        ValueError: a sentence about what cannot be used.
    """
    measure: dict[str, Any] = {
        "operations": [name.strip() for name in given.operations.split(",") if name.strip()],
        "also": given.also.split(",") if given.also else [],
        "latency": {"bytes": given.latency.split(","), "iterations": given.iterations} if given.latency else {},
    }
    for key in ("smallest", "largest", "warmups", "trials", "seconds", "blocking", "stability"):
        measure[key] = getattr(given, key)
    try:
        return bandwidth_plan.plan(measure)
    except ValueError as error:
        raise ValueError(str(error).replace("measure.", "--", 1)) from None


def meet(place: dict[str, Any], backend: str, patience: float) -> tuple[rank_meeting.Meeting, Any]:
    """Find the other ranks; and the module torch, or None where it is not needed.

    Raises:
        Refused: there is no way to find them.
        ImportError: what the backend needs is not there.
    """
    modules: dict[str, Any] = {}
    with contextlib.suppress(ImportError):
        modules["torch"] = importlib.import_module("torch")
    torch: Any = modules.get("torch")
    through_torch = torch is not None and torch.distributed.is_available()
    if backend == "mpi":
        if through_torch and torch.distributed.is_mpi_available():
            return rank_meeting.Meeting(place, modules, patience), torch
        try:
            modules = {"mpi4py.MPI": importlib.import_module("mpi4py.MPI")}
        except ImportError as error:
            why = "mpi is measured through mpi4py unless PyTorch was built with MPI, and %s cannot import it: %s; %s"
            raise Refused(why % (sys.executable, error, LOAD)) from error
        meeting = rank_meeting.Meeting(place, modules, patience)
        meeting.connect()
        return meeting, None
    if not through_torch:
        raise Refused("%s is measured through PyTorch, which %s cannot import; %s" % (backend, sys.executable, LOAD))
    if place["source"] != "torchrun" and not (os.environ.get("MASTER_ADDR") and os.environ.get("MASTER_PORT")):
        if _mpi_counts(place):
            modules["mpi4py.MPI"] = sys.modules["mpi4py.MPI"]
        elif place["size"] > 1:
            os.environ.update(_hint())
    meeting = rank_meeting.Meeting(place, modules, patience)
    meeting.connect()
    return meeting, torch


def _mpi_counts(place: Mapping[str, Any]) -> bool:
    """Whether mpi4py is there and knows of the launcher's ranks; srun without PMI makes each rank believe it is one."""
    try:
        world = importlib.import_module("mpi4py.MPI").COMM_WORLD
    except (ImportError, RuntimeError):
        return False
    return [world.Get_rank(), world.Get_size()] == [place["rank"], place["size"]]


def _hint() -> dict[str, str]:
    """MASTER_ADDR and MASTER_PORT, as far as the job tells them."""
    found = ranks.rendezvous(os.environ, ranks.placement(os.environ), _first_line)
    return {"MASTER_ADDR": found.address, "MASTER_PORT": str(found.port)} if found.address and found.port else {}


def _first_line(path: str) -> str:
    with contextlib.suppress(OSError), open(path, encoding="utf-8") as stream:
        return stream.readline()
    return ""


def environment(torch: Any, place: Mapping[str, Any], device: Mapping[str, Any]) -> dict[str, str]:
    """What the figures depend on, as far as this rank knows."""
    found = {
        "launcher": place["source"], "ranks": str(place["size"]), "host": socket.gethostname(),
        "python": platform.python_version(), "kernel": platform.release(),
    }
    if torch is not None:
        found["torch"] = str(torch.__version__)
        found["cuda"] = str(getattr(torch.version, "cuda", None) or getattr(torch.version, "hip", None) or "none")
        if device.get("name"):
            found["gpu"] = str(device["name"])
            with contextlib.suppress(Exception):
                found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    if "mpi4py.MPI" in sys.modules:
        version = sys.modules["mpi4py.MPI"].Get_library_version()
        found["mpi"] = " ".join(version.partition("\0")[0].strip().partition("\n")[0].split())
    # Which NCCL an image came with, says the variable; NCCL itself does not read it.
    own = {key: value for key, value in sorted(os.environ.items()) if key.startswith(TELLING) and key != "NCCL_VERSION"}
    found.update(own)
    return found


def measure(given: argparse.Namespace, asked: dict[str, Any], place: dict[str, Any], telling: Telling | None) -> Any:
    """Meet, measure, and part.

    Returns:
        The result of :func:`.rank_bandwidth.measure_in_group`; None where all ranks know that they cannot begin, and
        rank 0 has said why.

    Raises:
        Refused: this rank cannot begin.
    """
    backend = given.backend or _usual()
    meeting, torch = meet(place, backend, given.patience)
    device: dict[str, Any] = {}
    if backend == "nccl":
        device = rank_place.gpu_device(torch, place["local_rank"]) or {}
        if not device:
            raise Refused("rank %d on %s has no GPU that PyTorch can use" % (place["rank"], place["host"]))
        shared = rank_place.shared_gpus(meeting.exchange(dict(place, device=device)))
        if shared:
            if telling:
                complain("ranks %s use the same GPU %s" % (" and ".join(map(str, shared[0][1])), shared[0][0]))
            # The first rank that leaves may end the others before rank 0 has spoken.
            meeting.exchange(None)
            return None
    if telling:
        telling.head = dict(telling.head, environment=environment(torch, place, device))
        say(["%s: %s" % pair for pair in telling.head["environment"].items()])
    own = place["rank"], place["size"]
    tell = telling.row if telling else None
    if torch is None:
        world = sys.modules["mpi4py.MPI"].COMM_WORLD
        return rank_bandwidth.measure_in_group(None, backend, "cpu", *own, asked, world, tell)
    distributed = torch.distributed
    if backend == "mpi":
        distributed.init_process_group(backend)
    else:
        store = distributed.PrefixStore("collectives", meeting.open_store())
        distributed.init_process_group(
            backend, store=store, rank=own[0], world_size=own[1], timeout=meeting.patience()
        )
    on = "cuda" if backend == "nccl" else "cpu"
    return rank_bandwidth.measure_in_group(torch, backend, on, *own, asked, None, tell)


def _usual() -> str:
    with contextlib.suppress(ImportError):
        return "nccl" if importlib.import_module("torch").cuda.is_available() else "gloo"
    return "mpi"


def main(arguments: Sequence[str]) -> int:
    """Run one rank and return its exit code."""
    given = parser().parse_args(arguments)
    try:
        asked = plan(given)
        place = dict(rank_place.placement(os.environ), host=socket.gethostname())
    except ValueError as error:
        complain(str(error))
        return CANNOT
    telling = None
    if place["rank"] == 0:
        try:
            # What is there stays until something was measured.
            with open(given.json or os.devnull, "a", encoding="utf-8"):
                pass
        except OSError as error:
            complain("cannot write %s: %s" % (given.json, error.strerror))
            return CANNOT
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        telling = Telling(given.json, {"schema": 1, "started": started, "plan": asked})
        telling.listen()
    try:
        result = measure(given, asked, place, telling)
    except (Refused, ImportError, OSError) as error:
        complain(str(error))
        rank_meeting.leave(CANNOT)
    except Exception as error:
        sys.stderr.write("rank %d on %s:\n%s" % (place["rank"], place["host"], traceback.format_exc()))
        sys.stderr.flush()
        if telling:
            telling.end("ended early: %s" % (str(error).strip().partition("\n")[0] or type(error).__name__))
        rank_meeting.leave(WRONG)
    if result is None:
        return CANNOT
    code = telling.end("", result) if telling else VERIFIED if Telling.good(result) else WRONG
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_initialized():
        # After everything is said, because it waits for the other ranks.
        distributed.destroy_process_group()
    return code
