# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run one rank of a pair sweep: ``ranks.pyz QUESTION.json DEADLINE``, started by a launcher.

Rank 0 says who measures with whom, round by round; the pairs of a round work at once. All ranks hang on rank 0 by one
connection each: of 560 nodes with four ranks each that is 2,240 connections and 6 MB a round, well below the time of a
measurement.

Every finished round is printed as a message of its own: a job that ends early leaves what it has measured.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import socket
import threading
import time
import traceback
from typing import Any, Iterator, Mapping

from ..standalone import rank_environment
from . import placement
from .errors import RankError
from .output import RankOutput
from .pair_links import MpiLink, SocketLink, Team, TorchLink
from .rendezvous import Rendezvous, abort
from .socket_group import SocketGroup, addresses, addresses_towards
from .start import run_program
from .sweep_leader import Leader, Order

REQUIRED_MODULES = {"gloo": ("torch",), "nccl": ("torch",), "mpi": ("mpi4py.MPI",), "tcp": ()}
"""The Python modules that a backend needs."""

RENDEZVOUS_MODULES = ("mpi4py.MPI", "horovod.torch")
"""Modules by which the ranks can connect, the preferred one first."""

SLOW_SECONDS = 30.0
"""Seconds after which a rank prints with whom it still measures, so that one that hangs is known."""


class Sweep:
    """Run this rank of the sweep."""

    def __init__(self, question: Mapping[str, Any], deadline: float) -> None:
        self.question, self.deadline = question, deadline
        self.asked: Mapping[str, Any] = question["sweep"]
        self.limit = max(2.0, deadline - time.time())
        self.report: dict[str, Any] = {"host": socket.gethostname(), "pid": os.getpid(), "stage": "", "checks": []}
        self.output = RankOutput(self.report)
        self.hint_address = ""
        self.hosts: list[str] = []
        self.members: list[list[int]] = []
        self.offers: list[dict[str, Any]] = []

    # --- coming up ---

    def modules(self) -> dict[str, Any]:
        """Import the modules of the backend, and one for the rendezvous where no address is given."""
        found: dict[str, Any] = {}
        for name in REQUIRED_MODULES.get(self.asked["backend"], ()):
            try:
                found[name] = importlib.import_module(name)
            except ImportError as error:
                raise RankError("%s needs %s: %s" % (self.asked["backend"], name, error)) from error
        said = self.report["source"] == "torchrun" or (os.environ.get("MASTER_ADDR") and os.environ.get("MASTER_PORT"))
        for name in RENDEZVOUS_MODULES:
            # Sockets need no library, whose start may fail where launcher and MPI do not fit.
            if not said and not set(RENDEZVOUS_MODULES).intersection(found) and self.asked["backend"] != "tcp":
                with contextlib.suppress(ImportError):
                    found[name] = importlib.import_module(name)
        return found

    def connect(self, modules: Mapping[str, Any]) -> SocketGroup:
        """Connect all ranks in one group."""
        if self.report["source"] != "torchrun" and not set(RENDEZVOUS_MODULES).intersection(modules):
            hint = rank_environment.rendezvous(os.environ, rank_environment.placement(os.environ), _first_line)
            if hint.address and hint.port:
                self.hint_address = hint.address
                return SocketGroup(self.report["rank"], self.report["size"], hint.address, hint.port, self.limit)
        rendezvous = Rendezvous(self.report, modules, self.limit)
        rendezvous.connect()
        return rendezvous.socket_group()

    def link(self, modules: Mapping[str, Any]) -> Any:
        """Create what measures with another node."""
        backend = self.asked["backend"]
        plan = {
            "operations": [self.asked["operation"]], "smallest": self.asked["bytes"], "largest": self.asked["bytes"],
            "warmups": self.asked["warmups"], "trials": self.asked["trials"],
        }
        if backend == "tcp":
            return SocketLink(self.report["rank"], plan, self.limit)
        if backend == "mpi":
            return MpiLink(modules["mpi4py.MPI"], plan)
        if backend == "nccl" and not placement.select_gpu(modules["torch"], self.report["local_rank"]):
            raise RankError("PyTorch sees no GPU here")
        return TorchLink(modules["torch"], backend, plan, self.limit)

    def exchange_hosts(self, group: SocketGroup, link: Any) -> None:
        """Exchange hosts, ranks and offers; nodes are in the order of their names."""
        leader, known = self.report["local_rank"] == 0, {}
        own = [*addresses(self.report["host"]), *addresses_towards(self.hint_address)] if leader else []
        gathered = group.gather([self.report["host"], self.report["local_rank"], own, link.offer(leader)])
        if gathered is not None:
            ways = {host: own for host, _local, own, _offer in gathered if own}
            hosts = sorted({host for host, _local, _own, _offer in gathered}, key=natural_key)
            members: list[list[int]] = [[] for _host in hosts]
            for rank in sorted(range(len(gathered)), key=lambda rank: (gathered[rank][1], rank)):
                members[hosts.index(gathered[rank][0])].append(rank)
            known = {
                "hosts": hosts, "members": members, "ways": [ways.get(host, [host]) for host in hosts],
                "offers": [offer for _host, _local, _own, offer in gathered],
            }
        known = group.broadcast(known)
        self.hosts, self.members, self.offers = known["hosts"], known["members"], known["offers"]
        for node, own_ranks in enumerate(self.members):
            for rank in own_ranks:
                self.offers[rank]["addresses"] = known["ways"][node]
        counts = sorted({len(own_ranks) for own_ranks in self.members})
        if len(counts) > 1:
            raise RankError("nodes have from %d to %d ranks" % (counts[0], counts[-1]))
        if len(self.hosts) < 2:
            raise RankError("all ranks are on %s: one node makes no pair" % self.hosts[0])

    # --- rounds ---

    def rounds(self, group: SocketGroup, link: Any) -> None:
        """Run the rounds that rank 0 orders until there is none."""
        leader = None
        if self.report["rank"] == 0:
            leader = Leader(self.asked, self.hosts, self.members, self.output, self.deadline)
        orders = leader.orders() if leader else iter(())
        while True:
            given = group.broadcast(next(orders, None))
            if given is None:
                break
            order = Order(*given)
            gathered = self.run_round(group, link, order)
            if leader and gathered is not None:
                leader.record(order, gathered)
        if leader and leader.last:
            self.output.send(*leader.last)

    def run_round(self, group: SocketGroup, link: Any, order: Order) -> list[Any] | None:
        """Run this rank's part of a round; at rank 0 return each rank's [GB/s or None, what went wrong]."""
        team = self.make_team(order)
        value, trouble = None, ""
        if team:
            trouble = self.error_of(lambda: link.join(team))
        # A round begins when all are ready; pairs with a rank that is not are left out.
        found = group.gather(trouble)
        failed = group.broadcast(found and [rank for rank, text in enumerate(found) if text])
        ready = team is not None and not set(failed).intersection(team.members)
        if team and ready:
            with self.report_when_slow(order, team):
                measured: list[float] = []
                trouble = self.error_of(lambda: measured.append(link.measure()))
                value = measured[0] if measured else None
        left = self.error_of(link.close) if team else ""
        return group.gather([value, trouble or left])

    def make_team(self, order: Order) -> Team | None:
        """Find the ranks that this one measures with; None where it has a free round."""
        for low, high in order.pairs:
            members = self.members[low] + self.members[high]
            if self.report["rank"] in members:
                position = members.index(self.report["rank"])
                name = "%s-%d-%d-%d" % (order.kind, order.number, low, high)
                return Team(name, members, position, [self.offers[rank] for rank in members])
        return None

    @contextlib.contextmanager
    def report_when_slow(self, order: Order, team: Team) -> Iterator[None]:
        """Print with whom this rank measures if that takes long."""
        others = {self.hosts[node] for pair in order.pairs for node in pair if self.members[node][0] in team.members}
        text = "%s %d with %s" % (order.kind, order.number, ", ".join(others.difference([self.report["host"]])))
        reported = threading.Event()

        def report() -> None:
            reported.set()
            self.output.stage(text)

        timer = threading.Timer(SLOW_SECONDS, report)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            if reported.is_set():
                self.output.stage("sweep")

    @staticmethod
    def error_of(work: Any) -> str:
        """Call a function and describe its error, empty without one: the others of the round go on."""
        try:
            work()
            return ""
        except Exception as error:
            return describe_error(error)

    # --- all of it ---

    def work(self) -> None:
        """Do all parts of the sweep in order."""
        self.output.stage("start")
        self.report.update(placement.read_placement(os.environ))
        modules = self.modules()
        group = self.connect(modules)
        link = self.link(modules)
        self.exchange_hosts(group, link)
        self.report["stage"] = "sweep"
        self.rounds(group, link)
        group.barrier()
        self.report["stage"] = "end"

    def run(self) -> int:
        """Run the sweep, and print an error as a report."""
        try:
            self.work()
        except Exception as error:
            if not isinstance(error, RankError):
                traceback.print_exc()
            self.report["error"] = str(error) if isinstance(error, RankError) else describe_error(error)
            for _copy in range(2):
                self.output.report()
            abort(1)
        return 0


def describe_error(error: Exception) -> str:
    """Describe an error in one line."""
    return "%s: %s" % (type(error).__name__, " ".join(str(error).split())[:300])


def _first_line(path: str) -> str:
    with open(path, encoding="utf-8") as stream:
        return stream.readline()


def natural_key(name: str) -> list[Any]:
    """Make a key for sorting n2 before n10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def main(arguments: list[str]) -> int:
    """Run the program of the ranks; see :func:`.start.run_program`."""
    return run_program(arguments, Sweep)
