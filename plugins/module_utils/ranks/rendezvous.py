# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Connect the ranks of a job before any backend is checked, and exchange small data between them."""

from __future__ import annotations

import array
import contextlib
import datetime
import fcntl
import functools
import importlib
import json
import os
import stat
import sys
import termios
import time
from typing import Any, Callable, Mapping, NoReturn, Sequence

from .errors import RankError
from .socket_group import SocketGroup, address_of, make_offer


class Rendezvous:
    """Exchange data between the ranks by whatever the launcher and the release offer, for ``limit`` seconds at most."""

    def __init__(self, place: Mapping[str, Any], modules: Mapping[str, Any], limit: float) -> None:
        self.rank, self.size = place["rank"], place["size"]
        self.source, self.host = place["source"], place["host"]
        self.modules, self.limit = modules, limit
        self.sizes: dict[str, list[int]] = {}
        self.port: int | None = None
        self.store: Any = None
        self.rounds = 0
        self._exchange: Callable[[Any], Sequence[Any]] | None = None

    def timeout(self) -> datetime.timedelta:
        """Return how long to wait for the others."""
        return datetime.timedelta(seconds=self.limit)

    def connect(self) -> None:
        """Start the parallel libraries and find a way to exchange data."""
        address, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
        mpi = self.modules.get("mpi4py.MPI")
        if mpi is None and self.size > 1 and not (address and port) and "horovod.torch" not in self.modules:
            # No check asks for MPI, but it connects the ranks.
            with contextlib.suppress(ImportError):
                mpi = importlib.import_module("mpi4py.MPI")
        if mpi is not None:
            self.sizes["mpi4py"] = [mpi.COMM_WORLD.Get_rank(), mpi.COMM_WORLD.Get_size()]
            self._exchange = mpi.COMM_WORLD.allgather
        if "horovod.torch" in self.modules:
            horovod = self.modules["horovod.torch"]
            horovod.init()
            self.sizes["horovod"] = [horovod.rank(), horovod.size()]
            # Without a name Horovod uses the type of the object, which differs between the ranks.
            by_name = functools.partial(horovod.allgather_object, name="acceptance")
            self._exchange = self._exchange or by_name
        for library, seen in self.sizes.items():
            if seen != [self.rank, self.size]:
                raise RankError("%s sees rank %d of %d where the launcher started rank %d of %d" % (
                    library, *seen, self.rank, self.size))
        torch = self.modules.get("torch")
        if self._exchange is None and torch is not None and self.source == "torchrun":
            self.store = torch.distributed.TCPStore(address, int(port), is_master=False, timeout=self.timeout())
            self._exchange = self._exchange_by_store
        if self._exchange is None and address and port:
            self._exchange = SocketGroup(self.rank, self.size, address, int(port), self.limit).all_gather
        if self._exchange is None and self.size == 1:
            self._exchange = lambda thing: [thing]
        if self._exchange is None:
            raise RankError(
                "nothing here can hand a port from rank 0 to the others: there is no mpi4py, none of the checks uses "
                "Horovod, the launcher is not torchrun, and nobody has set MASTER_ADDR and MASTER_PORT")

    def exchange(self, thing: Any) -> list[Any]:
        """Gather what every rank gives, in their order."""
        if self._exchange is None:
            raise RankError("the ranks have not met")
        return list(self._exchange(thing))

    def socket_group(self) -> SocketGroup:
        """Connect the ranks by sockets, which need no library any more."""
        return SocketGroup.from_exchange(self.exchange, self.rank, self.size, self.limit)

    def _exchange_by_store(self, thing: Any) -> list[Any]:
        """Gather by torchrun's own store, in which rank 0 puts the parts together."""
        self.rounds += 1
        keys = ["acceptance/%d/%d" % (self.rounds, rank) for rank in range(self.size)]
        whole = "acceptance/%d" % self.rounds
        self.store.set(keys[self.rank], json.dumps(thing))
        if self.rank == 0:
            told = [json.loads(self.store.get(key).decode("utf-8")) for key in keys]
            self.store.set(whole, json.dumps(told))
        return json.loads(self.store.get(whole).decode("utf-8"))

    def open_store(self) -> Any:
        """Open a store of this job alone: rank 0 takes a free port and announces it."""
        if self.store is not None:
            return self.store
        distributed, offer = self.modules["torch"].distributed, None
        if self.rank == 0:
            self.store = distributed.TCPStore(
                "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=self.timeout())
            offer = make_offer(self.store.port, self.host)
        offer = self.exchange(offer)[0]
        self.port = offer["port"]
        if self.store is None:
            self.store = distributed.TCPStore(
                address_of(offer, self.host), self.port, is_master=False, wait_for_workers=False,
                timeout=self.timeout())
        return self.store


PATIENCE_TO_BE_READ = 10.0
"""Seconds that a launcher may take to read what a rank wrote before it was to end."""


def end_group(distributed: Any) -> None:
    """Destroy the process group of torch.distributed, so that its threads can end.

    Gloo's backend joins its threads when it is freed, of which one may still wait for the interpreter's lock to free a
    tensor of the last collective. PyTorch before 2.8 frees the group with that lock, and with it the backend: the rank
    then hangs (PyTorch's pull request 154976). A backend's own Python object lets the lock go, and is the last here.

    Args:
        distributed: the module, with a group that no rank is in a collective of.
    """
    group = distributed.group.WORLD
    # A group of PyTorch 1 is its backend.
    backends = [group._get_backend(device) for device in getattr(group, "_device_types", ())]
    distributed.destroy_process_group()
    del group, backends


def wait_until_read(descriptor: int, limit: float) -> None:
    """Wait until nothing that was written to a pipe is left in it, for ``limit`` seconds at most.

    MPICH's process manager takes an abort before the output that came with it, which is then lost. On anything but a
    pipe it returns at once.
    """
    ended = time.monotonic() + limit
    unread = array.array("i", [0])
    # A socket and a terminal count what came from the other end.
    with contextlib.suppress(OSError):
        while stat.S_ISFIFO(os.fstat(descriptor).st_mode) and time.monotonic() < ended:
            fcntl.ioctl(descriptor, termios.FIONREAD, unread)
            if not unread[0]:
                return
            time.sleep(0.01)


def abort(code: int) -> NoReturn:
    """End this rank at once, and with it those that wait for it in MPI.

    Many launchers end them all when one leaves without MPI_Finalize; srun does so only where the site has set
    KillOnBadExit (slurm.conf(5)).
    """
    for descriptor in (1, 2):
        wait_until_read(descriptor, PATIENCE_TO_BE_READ)
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.COMM_WORLD.Abort(code)
    os._exit(code)
