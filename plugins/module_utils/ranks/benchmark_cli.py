# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run the benchmark without Ansible: a launcher starts this on every rank, and rank 0 prints.

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

from ..standalone import rank_environment
from . import benchmark, placement, units
from .benchmark_output import CANNOT, VERIFIED, WRONG, BenchmarkReporter, print_error, print_lines
from .errors import RankError
from .plan import DEFAULTS, ITERATIONS, resolve_plan
from .rendezvous import Rendezvous, abort, end_group

RELEVANT_VARIABLES = (
    "NCCL_", "RCCL_", "FI_", "GLOO_", "MPICH_", "MPIR_CVAR_", "UCX_", "OMPI_MCA_btl", "OMPI_MCA_coll", "OMPI_MCA_mtl",
    "OMPI_MCA_osc", "OMPI_MCA_pml", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
)
"""Beginnings of the variables that change what is measured, and are not the launcher's own."""

LOAD = "load the module of a release first, or start its Python"


def make_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    command = argparse.ArgumentParser(
        prog="collectives", allow_abbrev=False,
        description="Measure collective operations between the ranks that a launcher started, and check their values.",
        epilog="Exit code: 0 all values were right, 1 some were wrong or nothing was measured, 2 it could not begin "
               "or could not write FILE.")
    default = DEFAULTS
    command.add_argument(
        "--backend", choices=units.BACKENDS, help="nccl where there is a GPU, gloo, or without PyTorch mpi")
    command.add_argument(
        "--operations", default=",".join(default["operations"]), metavar="A,B",
        help="all_reduce (default), " + ", ".join(name for name in units.FACTORS if name != "all_reduce"))
    command.add_argument("--smallest", default="32KiB", metavar="SIZE", help="first size (32KiB)")
    command.add_argument("--largest", default="16GiB", metavar="SIZE", help="last size, as memory allows (16GiB)")
    command.add_argument("--also", default="", metavar="SIZES", help="further sizes, separated by commas")
    command.add_argument("--warmups", type=int, default=default["warmups"], metavar="N", help="before trials (5)")
    command.add_argument("--trials", type=int, default=default["trials"], metavar="N", help="of each size (20)")
    command.add_argument(
        "--seconds", type=float, default=default["seconds"], metavar="S",
        help="most time for an operation, with fewer trials (0: as long as it takes)")
    command.add_argument("--blocking", action="store_true", help="wait for all ranks before each trial")
    command.add_argument("--stability", action="store_true", help="show the time of each trial")
    command.add_argument(
        "--latency", nargs="?", const="8", default="", metavar="SIZES",
        help="messages between rank 0 and the farthest rank (8 bytes, or SIZES separated by commas)")
    command.add_argument("--iterations", type=int, default=ITERATIONS, metavar="N", help="round trips (1000)")
    command.add_argument("--json", metavar="FILE", help="write the result there")
    command.add_argument("--patience", type=float, default=300.0, metavar="S", help="wait for other ranks (300)")
    return command


def parse_plan(options: argparse.Namespace) -> dict[str, Any]:
    """Parse the command line's options as a plan; ValueErrors are sentences about what cannot be used."""
    keys = ("smallest", "largest", "warmups", "trials", "seconds", "blocking", "stability")
    measure: dict[str, Any] = {
        "operations": [name.strip() for name in options.operations.split(",") if name.strip()],
        "also": options.also.split(",") if options.also else [],
        "latency": {"bytes": options.latency.split(","), "iterations": options.iterations} if options.latency else {},
        **{key: getattr(options, key) for key in keys}}
    try:
        return resolve_plan(measure)
    except ValueError as error:
        raise ValueError(str(error).replace("measure.", "--", 1)) from None


def connect(place: dict[str, Any], backend: str, patience: float) -> tuple[Rendezvous, Any]:
    """Connect to the other ranks; also return the module torch, or None where it is not needed.

    Raises:
        RankError: there is no way to find them.
        ImportError: what the backend needs is not there.
    """
    modules: dict[str, Any] = {}
    with contextlib.suppress(ImportError):
        modules["torch"] = importlib.import_module("torch")
    torch: Any = modules.get("torch")
    through_torch = torch is not None and torch.distributed.is_available()
    if backend == "mpi":
        if through_torch and torch.distributed.is_mpi_available():
            return Rendezvous(place, modules, patience), torch
        try:
            modules = {"mpi4py.MPI": importlib.import_module("mpi4py.MPI")}
        except ImportError as error:
            why = "mpi is measured through mpi4py unless PyTorch was built with MPI, and %s cannot import it: %s; %s"
            raise RankError(why % (sys.executable, error, LOAD)) from error
        rendezvous = Rendezvous(place, modules, patience)
        rendezvous.connect()
        return rendezvous, None
    if not through_torch:
        raise RankError("%s is measured through PyTorch, which %s cannot import; %s" % (backend, sys.executable, LOAD))
    if place["source"] != "torchrun" and not (os.environ.get("MASTER_ADDR") and os.environ.get("MASTER_PORT")):
        if _mpi_agrees(place):
            modules["mpi4py.MPI"] = sys.modules["mpi4py.MPI"]
        elif place["size"] > 1:
            hint = rank_environment.rendezvous(os.environ, rank_environment.placement(os.environ), _first_line)
            if hint.address and hint.port:
                os.environ.update(MASTER_ADDR=hint.address, MASTER_PORT=str(hint.port))
    rendezvous = Rendezvous(place, modules, patience)
    rendezvous.connect()
    return rendezvous, torch


def _mpi_agrees(place: Mapping[str, Any]) -> bool:
    """Tell whether mpi4py is there and counts the launcher's ranks; srun without PMI starts single ranks."""
    try:
        world = importlib.import_module("mpi4py.MPI").COMM_WORLD
    except (ImportError, RuntimeError):
        return False
    return [world.Get_rank(), world.Get_size()] == [place["rank"], place["size"]]


def _first_line(path: str) -> str:
    with contextlib.suppress(OSError), open(path, encoding="utf-8") as stream:
        return stream.readline()
    return ""


def describe_environment(torch: Any, place: Mapping[str, Any], device: Mapping[str, Any]) -> dict[str, str]:
    """Collect the versions and variables that the figures depend on."""
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
    # NCCL_VERSION says which NCCL an image came with; NCCL itself does not read it.
    found.update({
        name: value for name, value in sorted(os.environ.items())
        if name.startswith(RELEVANT_VARIABLES) and name != "NCCL_VERSION"
    })
    return found


def run_benchmark(
    options: argparse.Namespace, plan: dict[str, Any], place: dict[str, Any], reporter: BenchmarkReporter | None
) -> Any:
    """Connect the ranks, measure, and return the result of :func:`.benchmark.measure_in_group`.

    None where all ranks know that they cannot begin, and rank 0 has said why.

    Raises:
        RankError: this rank cannot begin.
    """
    backend = options.backend or _default_backend()
    rendezvous, torch = connect(place, backend, options.patience)
    device: dict[str, Any] = {}
    if backend == "nccl":
        device = placement.select_gpu(torch, place["local_rank"]) or {}
        if not device:
            raise RankError("rank %d on %s has no GPU that PyTorch can use" % (place["rank"], place["host"]))
        shared = placement.find_shared_gpus(rendezvous.exchange(dict(place, device=device)))
        if shared:
            if reporter:
                print_error("ranks %s use the same GPU %s" % (" and ".join(map(str, shared[0][1])), shared[0][0]))
            # The first rank that leaves may end the others before rank 0 has printed the error.
            rendezvous.exchange(None)
            return None
    if reporter:
        reporter.header = dict(reporter.header, environment=describe_environment(torch, place, device))
        print_lines(["%s: %s" % pair for pair in reporter.header["environment"].items()])
    rank, size, world, on_row = place["rank"], place["size"], None, reporter.row if reporter else None
    if torch is None:
        world = sys.modules["mpi4py.MPI"].COMM_WORLD
    elif backend == "mpi":
        torch.distributed.init_process_group(backend)
    else:
        store = torch.distributed.PrefixStore("collectives", rendezvous.open_store())
        torch.distributed.init_process_group(
            backend, store=store, rank=rank, world_size=size, timeout=rendezvous.timeout())
    on = "cuda" if backend == "nccl" else "cpu"
    return benchmark.measure_in_group(torch, backend, on, rank, size, plan, world, on_row)


def _default_backend() -> str:
    with contextlib.suppress(ImportError):
        return "nccl" if importlib.import_module("torch").cuda.is_available() else "gloo"
    return "mpi"


def main(arguments: Sequence[str]) -> int:
    """Run one rank and return its exit code."""
    options = make_parser().parse_args(arguments)
    try:
        plan = parse_plan(options)
        place = dict(placement.read_placement(os.environ), host=socket.gethostname())
    except ValueError as error:
        print_error(str(error))
        return CANNOT
    reporter = None
    if place["rank"] == 0:
        try:
            # An existing file is kept until something was measured.
            with open(options.json or os.devnull, "a", encoding="utf-8"):
                pass
        except OSError as error:
            print_error("cannot write %s: %s" % (options.json, error.strerror))
            return CANNOT
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        reporter = BenchmarkReporter(options.json, {"schema": 1, "started": started, "plan": plan})
        reporter.watch_signals()
    try:
        result = run_benchmark(options, plan, place, reporter)
    except (RankError, ImportError, OSError) as error:
        print_error(str(error))
        abort(CANNOT)
    except Exception as error:
        sys.stderr.write("rank %d on %s:\n%s" % (place["rank"], place["host"], traceback.format_exc()))
        sys.stderr.flush()
        if reporter:
            reporter.end("ended early: %s" % (str(error).strip().partition("\n")[0] or type(error).__name__))
        abort(WRONG)
    if result is None:
        return CANNOT
    code = reporter.end("", result) if reporter else VERIFIED if BenchmarkReporter.is_verified(result) else WRONG
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_initialized():
        # After the output, because it waits for the other ranks.
        end_group(distributed)
    return code
