# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What one rank of the acceptance does: ``rank_check.py QUESTION.json DEADLINE``, started by the site's launcher.

The deadline is in seconds since the epoch.

The answer goes to standard output in frames (see :func:`frames`), because that is the one channel that every launcher
carries from every node. Python 3.8 or later; needs nothing but the standard library and what it checks.

Exit status: 0 when all checks of this rank passed or could not run, 1 otherwise.
"""

from __future__ import annotations

import array
import base64
import contextlib
import ctypes
import datetime
import faulthandler
import functools
import importlib
import json
import os
import re
import signal
import socket
import sys
import time
import traceback
import uuid
import zlib

# Safe-path mode (PYTHONSAFEPATH) leaves the directory of a script out.
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import ranks

COUNTS = (1, 4099, 1048583)
"""Elements of the tensors: one, and two primes, so that no number of ranks divides them evenly."""

TOLERANCE = {"float16": 2.0**-8, "bfloat16": 2.0**-5, "float32": 1e-6, "float64": 1e-12}
"""Relative error that an average may have; sums are whole numbers and have none."""

WHOLE = {"float16": 2048, "bfloat16": 256}
"""Whole numbers up to here are exact in the short types (IEEE 754 binary16: 11 bits; bfloat16: 8 bits)."""

LIBRARY = re.compile(r"(libmpi[a-z0-9_]*|libtorch[a-z_]*|libnccl[a-z_-]*|librccl[a-z_-]*|libstdc\+\+)\.so")
"""Libraries of which all ranks must map the same file."""

NEEDS = {
    "horovod_allreduce": ("torch", "horovod.torch"),
    "horovod_broadcast": ("torch", "horovod.torch"),
    "torch_gloo_allreduce": ("torch",),
    "torch_nccl_allreduce": ("torch",),
    "torch_mpi_allreduce": ("torch",),
    "cuda_graph_replay": ("torch",),
    "mpi4py_allreduce": ("mpi4py.MPI",),
}
"""The Python modules that a check imports."""

FRAME_BYTES = 300


JOIN_SECONDS = 0.2
"""Between two attempts to reach rank 0, which may begin later than the others."""

GREETING_SECONDS = 10.0
"""For whoever has come to say which rank it is, which a rank does at once."""


class Unusable(Exception):
    """A check cannot run here; the text says why."""


class Refused(Exception):
    """Ranks that do not fit together cannot go on; the text says why."""


# --- where this rank is ----------------------------------------------------------------------------------------------


def placement(environment):
    """Turn a launcher's variables into rank, size, local rank and local size, by ranks.py beside this file.

    Args:
        environment: the variables of one rank.

    Returns:
        A dict with ``source`` (the launcher), ``rank``, ``size``, ``local_rank``, and ``local_size``, ``node`` and
        ``nodes``, which are None where the launcher does not tell.

    Raises:
        ValueError: the variables are incomplete or contradict each other; the text is a sentence.
    """
    return ranks.placement(environment)._asdict()


def ranges(numbers):
    """``[0, 1, 2, 5]`` as ``0-2,5``."""
    groups = []
    for number in sorted(numbers):
        if groups and number == groups[-1][1] + 1:
            groups[-1][1] = number
        else:
            groups.append([number, number])
    return ",".join("%d" % low if low == high else "%d-%d" % (low, high) for low, high in groups)


def expand(text):
    """``0-2,5`` as a set of numbers."""
    numbers = set()
    for part in text.strip().split(","):
        low, _dash, high = part.partition("-")
        if low:
            numbers.update(range(int(low), int(high or low) + 1))
    return numbers


def cpu_device(nodes="/sys/devices/system/node"):
    """The CPU cores and memory nodes that this rank may run on."""
    allowed = os.sched_getaffinity(0)
    near = []
    with contextlib.suppress(OSError):
        for name in os.listdir(nodes):
            if re.fullmatch(r"node\d+", name):
                with open(os.path.join(nodes, name, "cpulist")) as stream:
                    if allowed & expand(stream.read()):
                        near.append(int(name[4:]))
    return {"kind": "cpu", "cpus": ranges(allowed), "numa": ranges(near)}


def gpu_device(torch, local_rank):
    """Choose this rank's GPU and say which one it is; None where PyTorch sees none."""
    if not torch.cuda.is_available():
        return None
    visible = torch.cuda.device_count()
    index = local_rank % visible
    torch.cuda.set_device(index)
    properties = torch.cuda.get_device_properties(index)
    identity = str(getattr(properties, "uuid", "") or "")
    bus = ""
    if hasattr(properties, "pci_bus_id"):
        bus = "%04x:%02x:%02x" % (properties.pci_domain_id, properties.pci_bus_id, properties.pci_device_id)
    # Older PyTorch tells neither; the driver itself knows, and obeys CUDA_VISIBLE_DEVICES as PyTorch does.
    with contextlib.suppress(OSError, AttributeError):
        if not (identity and bus):
            driver = ctypes.CDLL("libcuda.so.1")
            handle, raw, text = ctypes.c_int(), (ctypes.c_ubyte * 16)(), ctypes.create_string_buffer(64)
            if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(handle), index) == 0:
                if not identity and driver.cuDeviceGetUuid(raw, handle) == 0:
                    identity = str(uuid.UUID(bytes=bytes(raw)))
                if not bus and driver.cuDeviceGetPCIBusId(text, 64, handle) == 0:
                    bus = text.value.decode("ascii").lower().partition(".")[0]
    return {
        "kind": "gpu", "index": card(index, os.environ), "visible": visible, "name": properties.name, "uuid": identity,
        "bus": bus,
    }


def card(index, environment):
    """The number that the machine has for a GPU: where a rank is shown a part of them, each part is counted from 0.

    HIP counts what ROCR_VISIBLE_DEVICES leaves ("GPU isolation techniques" of ROCm's documentation).

    Args:
        index: the GPU's number in this process.
        environment: its variables.
    """
    for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        shown = [word.strip() for word in environment.get(name, "").split(",")]
        if name == "CUDA_VISIBLE_DEVICES" and environment.get("HIP_VISIBLE_DEVICES"):
            continue
        if all(word.isdigit() for word in shown) and index < len(shown):
            index = int(shown[index])
    return index


class Table:
    """Where all ranks meet, at rank 0's address and a port: each hears what all of them say.

    Args:
        rank: which one this is.
        size: how many there are.
        address: rank 0's.
        port: on which it listens.
        limit: how long one waits for the others, in seconds.
    """

    def __init__(self, rank, size, address, port, limit):
        self.rank, self.size = rank, size
        self.seats = {}
        if rank:
            self.seats[0] = self._sit_down(address, port, time.monotonic() + limit, limit)
            return
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        with socket.create_server(("", port), family=family, dualstack_ipv6=both) as server:
            server.settimeout(limit)
            while len(self.seats) < size - 1:
                connection, _address = server.accept()
                connection.settimeout(GREETING_SECONDS)
                seat = connection.makefile("rwb")
                # A line of anything else, such as of whoever tries all ports, is no rank of this job.
                with contextlib.suppress(ValueError, OSError):
                    guest = int(seat.readline(16))
                    if 0 < guest < size:
                        connection.settimeout(limit)
                        self.seats[guest] = seat

    def _sit_down(self, address, port, end, limit):
        while True:
            try:
                connection = socket.create_connection((address, port), timeout=limit)
                break
            except OSError as error:
                if time.monotonic() > end:
                    raise ConnectionError("rank 0 is not reached at %s port %d: %s" % (address, port, error)) from error
                time.sleep(JOIN_SECONDS)
        seat = connection.makefile("rwb")
        self._tell(seat, self.rank)
        return seat

    def gather(self, thing):
        """What every rank has given, in their order.

        Raises:
            ConnectionError: another rank has left.
        """
        if self.rank:
            self._tell(self.seats[0], thing)
            return self._hear(0)
        told = [thing, *(self._hear(guest) for guest in range(1, self.size))]
        for seat in self.seats.values():
            self._tell(seat, told)
        return told

    @staticmethod
    def _tell(seat, thing):
        seat.write(json.dumps(thing).encode("ascii") + b"\n")
        seat.flush()

    def _hear(self, other):
        line = self.seats[other].readline()
        if not line:
            raise ConnectionError("rank %d has left" % other)
        return json.loads(line.decode("ascii"))


# --- what this rank runs ---------------------------------------------------------------------------------------------


def libraries(maps="/proc/self/maps"):
    """The library files that this process has mapped: stem of the name -> list of [path, size in bytes]."""
    paths = set()
    with open(maps, errors="surrogateescape") as stream:
        for line in stream:
            fields = line.rstrip("\n").split(None, 5)
            if len(fields) == 6 and LIBRARY.match(os.path.basename(fields[5])):
                paths.add(fields[5])
    found = {}
    for path in sorted(paths):
        stem = LIBRARY.match(os.path.basename(path)).group(1)
        try:
            size = os.stat(path).st_size
        except OSError:
            size = -1
        found.setdefault(stem, []).append([path, size])
    return found


def mpi_version(mapped):
    """What the mapped MPI library calls itself, its first line; empty where there is none or it does not tell."""
    for path, _size in mapped.get("libmpi", []):
        with contextlib.suppress(OSError, AttributeError):
            text, length = ctypes.create_string_buffer(8192), ctypes.c_int()
            if ctypes.CDLL(path).MPI_Get_library_version(text, ctypes.byref(length)) == 0:
                return " ".join(text.value.decode("utf-8", "replace").split("\n")[0].split())
    return ""


# --- values ----------------------------------------------------------------------------------------------------------


def contribution(position, rank, size):
    """What ``rank`` puts at ``position``: a small number that depends on the position, more at every ``size``-th.

    Position and result are whole numbers, or tensors of them.
    """
    return position % 5 + 1 + 3 * (rank + 1) * (position % size == rank)


def contributions(position, size):
    """The sum of what all ranks put at ``position``: one missing, doubled or shifted contribution shows in it."""
    return (position % 5 + 1) * size + 3 * (position % size + 1)


def pattern(torch, count, rank, size, dtype, device):
    """A rank's tensor."""
    return contribution(torch.arange(count, device=device), rank, size).to(dtype)


def total(torch, count, size, device):
    """The sum of all ranks' tensors, in float64."""
    return contributions(torch.arange(count, device=device), size).to(torch.float64)


def difference(got, expected, tolerance=0.0):
    """Where ``got`` is first wrong, as the end of a sentence; None where it is right."""
    got = got.double()
    wrong = ~((got - expected).abs() <= expected.abs() * tolerance)
    indices = wrong.nonzero()
    if len(indices) == 0:
        return None
    first = int(indices[0])
    return "index %d: got %s, expected %s (%d of %d values are wrong)" % (
        first, got[first].item(), expected[first].item(), len(indices), got.numel()
    )


def exact(name, size):
    """Whether sums over ``size`` ranks stay whole in this type: the largest is 8 times the number of ranks."""
    return 8 * size <= WHOLE.get(name, 1 << 24)


class Rank:
    """This rank: who it is, what it has imported, and what it found out."""

    def __init__(self, question, deadline):
        self.question = question
        self.key = uuid.uuid4().hex[:12]
        self.modules = {}
        self.exchange = None
        self.store = None
        self.rounds = 0
        self.problems = []
        self.gpu = False
        self.without_gpu = "no rank has a GPU"
        self.report = {
            "host": socket.gethostname(), "pid": os.getpid(), "uid": os.getuid(), "executable": sys.executable,
            "python": ".".join(map(str, sys.version_info[:3])), "prefix": os.path.realpath(question["prefix"]),
            "home": os.path.realpath(os.path.expanduser("~")),
            "versions": {}, "files": {}, "libraries": {}, "sizes": {}, "checks": [], "stage": "",
        }
        self.limit = max(2.0, deadline - time.time())

    # --- telling ---

    def say(self, kind, data):
        """Print frames; each in one write, so that they stay whole where the launcher does its part."""
        for frame in frames(kind, self.key, data):
            os.write(1, frame)

    def stage(self, name):
        """Say what comes next: of a rank that hangs, this is what remains."""
        self.report["stage"] = name
        keys = ("host", "pid", "rank", "stage")
        self.say("stage", {key: self.report[key] for key in keys if key in self.report})

    def tell(self):
        """Print the report."""
        self.report["libraries"] = libraries()
        self.report["versions"]["mpi"] = mpi_version(self.report["libraries"])
        self.say("report", self.report)

    def check(self, name, work):
        """Do one check and keep its result.

        A check adds what is wrong to its ``problems`` and goes on, because the other ranks go on as well and would
        wait for this one.

        Raises:
            Exception: what ``work`` raised; the other ranks may wait for this one, so there is no going on.
        """
        self.stage(name)
        self.problems = []
        entry = {"name": name, "status": "passed", "problems": self.problems, "note": ""}
        self.report["checks"].append(entry)
        started = time.monotonic()
        try:
            entry["note"] = work() or ""
        except Unusable as reason:
            entry.update(status="skipped", note=str(reason))
        except Refused as reason:
            self.problems.append(str(reason))
            raise
        except Exception as error:
            self.problems.append("%s: %s" % (type(error).__name__, str(error).strip()[:600]))
            raise
        finally:
            if self.problems:
                entry["status"] = "failed"
            entry["seconds"] = round(time.monotonic() - started, 3)

    # --- coming up ---

    def place(self):
        """Find out which rank this is."""
        self.report.update(placement(os.environ))

    def load(self):
        """Import what the checks need; what only a check that may be left out needs, may be missing."""
        required = set(self.question["imports"])
        for name in self.question["checks"]:
            required.update(NEEDS.get(name, ()))
        wanted = list(self.question["imports"])
        for name in [*self.question["checks"], *self.question["where_possible"]]:
            wanted += NEEDS.get(name, ())
        for name in dict.fromkeys(wanted):
            try:
                module = importlib.import_module(name)
            except ImportError as error:
                if name in required:
                    raise ImportError("%s cannot be imported: %s" % (name, error)) from error
                continue
            self.modules[name] = module
            top = name.partition(".")[0]
            self.report["files"][name] = os.path.realpath(getattr(module, "__file__", None) or "")
            self.report["versions"][top] = str(getattr(sys.modules[top], "__version__", ""))
        torch = self.modules.get("torch")
        if torch is not None and torch.version.cuda:
            self.report["versions"]["cuda"] = torch.version.cuda
            with contextlib.suppress(Exception):
                self.report["versions"]["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))

    def connect(self):
        """Start the parallel libraries and find a way to hand small things around."""
        torch = self.modules.get("torch")
        self.report["device"] = cpu_device()
        if torch is not None:
            self.report["device"].update(gpu_device(torch, self.report["local_rank"]) or {})
        if "mpi4py.MPI" in self.modules:
            world = self.modules["mpi4py.MPI"].COMM_WORLD
            self.report["sizes"]["mpi4py"] = [world.Get_rank(), world.Get_size()]
            self.exchange = world.allgather
        if "horovod.torch" in self.modules:
            horovod = self.modules["horovod.torch"]
            horovod.init()
            self.report["sizes"]["horovod"] = [horovod.rank(), horovod.size()]
            # Without a name Horovod names it after the type of the thing, which differs between the ranks.
            by_name = functools.partial(horovod.allgather_object, name="acceptance")
            self.exchange = self.exchange or by_name
        own = [self.report["rank"], self.report["size"]]
        for library, seen in self.report["sizes"].items():
            if seen != own:
                raise Refused("%s sees rank %d of %d where the launcher started rank %d of %d" % (library, *seen, *own))
        if self.exchange is None and torch is not None and self.report["source"] == "torchrun":
            self.store = torch.distributed.TCPStore(
                os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=self.patience()
            )
            self.exchange = self.gather_through_store
        if self.exchange is None and os.environ.get("MASTER_ADDR") and os.environ.get("MASTER_PORT"):
            place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
            self.exchange = Table(*own, *place, self.limit).gather
        if self.exchange is None:
            raise Refused(
                "nothing here can hand a port from rank 0 to the others: none of the checks uses Horovod or mpi4py, "
                "the launcher is not torchrun, and nobody has set MASTER_ADDR and MASTER_PORT"
            )

    def patience(self):
        """How long to wait for the others, as a duration."""
        return datetime.timedelta(seconds=self.limit)

    def gather_through_store(self, thing):
        """What every rank has given, by way of torchrun's own store."""
        self.rounds += 1
        keys = ["acceptance/%d/%d" % (self.rounds, rank) for rank in range(self.report["size"])]
        self.store.set(keys[self.report["rank"]], json.dumps(thing))
        return [json.loads(self.store.get(key).decode("utf-8")) for key in keys]

    def meet(self):
        """Tell each other where one is; GPUs are used only where every rank has one of its own."""
        everyone = self.exchange({key: self.report[key] for key in ("host", "rank", "device")})
        with_gpu = [other for other in everyone if other["device"]["kind"] == "gpu"]
        if with_gpu and len(with_gpu) < len(everyone):
            self.without_gpu = "not every rank has a GPU"
            lacking = next(other for other in everyone if other["device"]["kind"] != "gpu")
            self.problems.append("rank %d on %s has no GPU, others have" % (lacking["rank"], lacking["host"]))
        owners = {}
        for other in with_gpu:
            device = other["device"]
            place = device["bus"] or "index %d" % device["index"]
            owners.setdefault(device["uuid"] or "%s %s" % (other["host"], place), []).append(other["rank"])
        shared = [(identity, users) for identity, users in sorted(owners.items()) if len(users) > 1]
        if shared:
            self.without_gpu = "ranks share a GPU"
        for identity, users in shared:
            self.problems.append("ranks %s use the same GPU %s" % (" and ".join(map(str, users)), identity))
        self.gpu = bool(with_gpu) and not self.problems

    # --- the checks ---

    def devices(self):
        """The devices on which tensors are checked."""
        return ["cpu", "cuda"] if self.gpu else ["cpu"]

    def judge(self, what, got, expected, tolerance=0.0):
        """Add a sentence to the check's problems if values are wrong."""
        wrong = difference(got, expected, tolerance)
        if wrong:
            self.problems.append("%s: %s" % (what, wrong))

    def reduce_values(self, types, devices, reduce):
        """Sums, and averages where ``reduce`` has them, over all types, sizes and devices.

        Args:
            types: names of PyTorch types.
            devices: ``cpu``, ``cuda``.
            reduce: function of a tensor and ``sum`` or ``average`` that returns the reduced tensor, or None where it
                has no such operation.
        """
        torch, rank, size = self.modules["torch"], self.report["rank"], self.report["size"]
        types = [name for name in types if exact(name, size)]
        done = 0
        for device in devices:
            for name in types:
                for count in COUNTS:
                    mine = pattern(torch, count, rank, size, getattr(torch, name), device)
                    expected = total(torch, count, size, device)
                    what = "of %d %s on %s" % (count, name, device)
                    self.judge("sum " + what, reduce(mine.clone(), "sum"), expected)
                    done += 1
                    average = reduce(mine.clone(), "average") if name in TOLERANCE else None
                    if average is not None:
                        self.judge("average " + what, average, expected / size, TOLERANCE[name])
                        done += 1
        return "%d reductions of %s on %s" % (done, ", ".join(types), " and ".join(devices))

    def broadcast_values(self, broadcast, devices):
        """A broadcast from the last rank; all others start with what it never has."""
        torch, rank, size = self.modules["torch"], self.report["rank"], self.report["size"]
        for device in devices:
            for count in COUNTS:
                expected = pattern(torch, count, size - 1, size, torch.float32, device)
                given = expected.clone() if rank == size - 1 else torch.full_like(expected, -1.0)
                what = "broadcast of %d float32 on %s from rank %d" % (count, device, size - 1)
                self.judge(what, broadcast(given, size - 1), expected.to(torch.float64))

    def horovod_allreduce(self):
        """Horovod's all-reduce: one by one, and many at once, which it fuses."""
        torch, horovod = self.modules["torch"], self.modules["horovod.torch"]
        operations = {"sum": horovod.Sum, "average": horovod.Average}
        types = ("float32", "float64", "float16", "int32", "int64")
        note = self.reduce_values(types, self.devices(), lambda x, kind: horovod.allreduce(x, op=operations[kind]))
        rank, size = self.report["rank"], self.report["size"]
        for device in self.devices():
            counts = range(100, 116)
            handles = [
                horovod.allreduce_async(
                    pattern(torch, count, rank, size, torch.float32, device), name="fused.%s.%d" % (device, count),
                    op=horovod.Sum,
                )
                for count in counts
            ]
            for count, handle in zip(counts, handles):
                what = "sum of %d float32 on %s among %d at once" % (count, device, len(counts))
                self.judge(what, horovod.synchronize(handle), total(torch, count, size, device))
        return note

    def horovod_broadcast(self):
        """Horovod's broadcast."""
        self.broadcast_values(self.modules["horovod.torch"].broadcast, self.devices())

    def open_store(self):
        """A rendezvous store of this job alone: rank 0 takes a free port and hands it out."""
        torch = self.modules["torch"]
        if self.store is not None:
            return self.store
        offer, host = None, self.report["host"]
        if self.report["rank"] == 0:
            self.store = torch.distributed.TCPStore(
                "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=self.patience()
            )
            offer = {"port": self.store.port, "host": host, "addresses": addresses(host)}
        offer = self.exchange(offer)[0]
        if self.store is None:
            near = ["127.0.0.1"] if offer["host"] == host else []
            self.store = torch.distributed.TCPStore(
                reachable([*near, *offer["addresses"]], offer["port"]), offer["port"], is_master=False,
                wait_for_workers=False, timeout=self.patience(),
            )
        self.report["port"] = offer["port"]
        return self.store

    def torch_group(self, backend, types, device):
        """All-reduce and broadcast of torch.distributed over one backend."""
        distributed = self.modules["torch"].distributed
        rank, size = self.report["rank"], self.report["size"]
        if backend == "mpi":
            distributed.init_process_group(backend)
        else:
            store = distributed.PrefixStore("acceptance-" + backend, self.open_store())
            distributed.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=self.patience())
        try:
            seen = [distributed.get_rank(), distributed.get_world_size()]
            if seen != [rank, size]:
                raise Refused("the %s backend sees rank %d of %d" % (backend, *seen))

            def reduce(tensor, kind):
                if kind == "average" and backend != "nccl":
                    return None
                operation = distributed.ReduceOp.SUM if kind == "sum" else distributed.ReduceOp.AVG
                distributed.all_reduce(tensor, op=operation)
                return tensor

            def broadcast(tensor, root):
                distributed.broadcast(tensor, src=root)
                return tensor

            note = self.reduce_values(types, [device], reduce)
            self.broadcast_values(broadcast, [device])
            return note
        finally:
            distributed.destroy_process_group()

    def torch_gloo_allreduce(self):
        """torch.distributed over gloo."""
        if not self.modules["torch"].distributed.is_gloo_available():
            raise Unusable("this PyTorch was built without gloo")
        return self.torch_group("gloo", ("float32", "float64", "float16", "int32", "int64"), "cpu")

    def torch_nccl_allreduce(self):
        """torch.distributed over NCCL."""
        if not self.gpu:
            raise Unusable(self.without_gpu)
        if not self.modules["torch"].distributed.is_nccl_available():
            raise Unusable("this PyTorch was built without NCCL")
        return self.torch_group("nccl", ("float32", "float64", "float16", "bfloat16", "int32", "int64"), "cuda")

    def torch_mpi_allreduce(self):
        """torch.distributed over MPI."""
        if not self.modules["torch"].distributed.is_mpi_available():
            raise Unusable("this PyTorch was built without MPI")
        return self.torch_group("mpi", ("float32", "float64", "int32", "int64"), "cpu")

    def mpi4py_allreduce(self):
        """MPI's all-reduce through mpi4py."""
        if "mpi4py.MPI" not in self.modules:
            raise Unusable("there is no mpi4py")
        mpi, rank, size = self.modules["mpi4py.MPI"], self.report["rank"], self.report["size"]
        for code, name in (("d", "float64"), ("f", "float32"), ("i", "int32"), ("q", "int64")):
            for count in COUNTS[:2]:
                mine = array.array(code, [contribution(i, rank, size) for i in range(count)])
                result = array.array(code, bytes(len(mine) * mine.itemsize))
                mpi.COMM_WORLD.Allreduce(mine, result, op=mpi.SUM)
                expected = [contributions(i, size) for i in range(count)]
                wrong = [i for i in range(count) if result[i] != expected[i]]
                if wrong:
                    self.problems.append("sum of %d %s: index %d: got %s, expected %s (%d of %d values are wrong)" % (
                        count, name, wrong[0], result[wrong[0]], expected[wrong[0]], len(wrong), count
                    ))

    def cuda_graph_replay(self):
        """Capture a CUDA graph and replay it on other values."""
        if not self.gpu:
            raise Unusable(self.without_gpu)
        torch = self.modules["torch"]
        given = torch.ones(COUNTS[1], device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.add(given * 2, 1)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = given * 2 + 1
        mine = pattern(torch, COUNTS[1], self.report["rank"], self.report["size"], torch.float32, "cuda")
        given.copy_(mine)
        graph.replay()
        torch.cuda.synchronize()
        self.judge("replayed graph", result, mine.to(torch.float64) * 2 + 1)

    # --- all of it ---

    def work(self):
        """Everything, in order."""
        self.check("placement", self.place)
        self.check("imports", self.load)
        self.check("start", self.connect)
        self.check("devices", self.meet)
        for name in [*self.question["checks"], *self.question["where_possible"]]:
            if name in NEEDS:
                self.check(name, getattr(self, name))
        self.stage("end")

    def run(self):
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
        self.tell()
        if self.report["stage"] != "end":
            # Others may wait for this rank in a collective; leaving without MPI_Finalize makes the launcher end them.
            os._exit(1)
        self.exchange(None)
        # A frame that was broken on the way counts by its second copy.
        self.say("report", self.report)
        return 1 if any(entry["status"] == "failed" for entry in self.report["checks"]) else 0


def addresses(host):
    """Names and addresses under which others may reach this host, the likeliest first."""
    found = [host]
    for name in (host, socket.getfqdn()):
        with contextlib.suppress(OSError):
            found += [entry[4][0] for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    return list(dict.fromkeys(found))


def reachable(candidates, port):
    """The first address at which somebody listens.

    Raises:
        ConnectionError: none of them.
    """
    reasons = []
    for address in candidates:
        try:
            socket.create_connection((address, port), timeout=5).close()
            return address
        except OSError as error:
            reasons.append("%s (%s)" % (address, error))
    raise ConnectionError("rank 0 cannot be reached at port %d: %s" % (port, ", ".join(reasons)))


def frames(kind, key, data):
    """Cut a message into lines that a reader can find and check in the mixed output of all ranks.

    ``@torchstack:<kind>:<key>:<n>/<total>:<crc32>:<base64 of a piece of the deflated JSON>@``

    Args:
        kind: ``stage`` or ``report``.
        key: hexadecimal digits that only this process uses.
        data: plain data.
    """
    text = base64.b64encode(zlib.compress(json.dumps(data).encode("utf-8"))).decode("ascii")
    pieces = [text[start:start + FRAME_BYTES] for start in range(0, len(text), FRAME_BYTES)]
    for number, piece in enumerate(pieces):
        frame = "@torchstack:%s:%s:%d/%d:%08x:%s@\n" % (
            kind, key, number, len(pieces), zlib.crc32(piece.encode("ascii")), piece
        )
        yield frame.encode("ascii")


def main(arguments):
    """Read the question, arm the dumps for a hang, and work."""
    with open(arguments[0], encoding="utf-8") as stream:
        question = json.load(stream)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True, chain=False)
    rank = Rank(question, float(arguments[1]))
    faulthandler.dump_traceback_later(rank.limit)
    # The kernel's own alarm also ends a rank on another node that holds the interpreter lock for ever.
    signal.alarm(int(rank.limit) + question["patience"])
    status = rank.run()
    faulthandler.cancel_dump_traceback_later()
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
