# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What one rank of a pair sweep does: ``ranks.pyz QUESTION.json DEADLINE``, started on every node by a launcher.

Rank 0 says who measures with whom, round by round; the pairs of a round work at once. All ranks hang on rank 0 by one
connection each: a round costs it a few small messages to and from every rank, and one of the round's pairs to each. Of
560 nodes with four ranks each that is 2,240 connections and 6 MB, well below the time of a measurement.

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
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from ..standalone import rank_environment as ranks
from . import pair_rounds as pairs
from . import placement as rank_place
from . import sweep_levels
from . import sweep_repeat as sweep_again
from .output import Output
from .pair_links import (
    MpiLink,
    SocketLink,
    Team,
    TorchLink,
)
from .rank_errors import Refused
from .rendezvous import Meeting, Table, addresses, leave
from .start import start

NEEDS = {"gloo": ("torch",), "nccl": ("torch",), "mpi": ("mpi4py.MPI",), "tcp": ()}
"""The Python modules that a backend needs."""

MEETING = ("mpi4py.MPI", "horovod.torch")
"""What the ranks can meet by, the better one first."""

SLOW_SECONDS = 30.0
"""After so long a rank says with whom it still measures, so that one that hangs is known."""

PHASES = 8
"""How often is asked what is still to be measured again: a few times, unless a suspect's pairs fail."""

MARGIN = 1.5
"""Times what a round has taken at most: time that has to be left for another one."""


class Order(NamedTuple):
    """A round: ``round`` or ``again``, its number, and who measures with whom."""

    kind: str
    number: int
    pairs: list[list[int]]


class Sweep:
    """This rank.

    Args:
        question: what is asked (see the options of the module pair_sweep).
        deadline: seconds since the epoch.
    """

    def __init__(self, question: Mapping[str, Any], deadline: float) -> None:
        self.question, self.deadline = question, deadline
        self.asked: Mapping[str, Any] = question["sweep"]
        self.limit = max(2.0, deadline - time.time())
        self.report: dict[str, Any] = {"host": socket.gethostname(), "pid": os.getpid(), "stage": "", "checks": []}
        self.output = Output(self.report)
        self.way = ""
        self.hosts: list[str] = []
        self.members: list[list[int]] = []
        self.offers: list[dict[str, Any]] = []

    # --- coming up ---

    def modules(self) -> dict[str, Any]:
        """The Python modules that the backend needs, and one by which the ranks meet where nobody says a place.

        Raises:
            Refused: the backend's are missing.
        """
        found: dict[str, Any] = {}
        for name in NEEDS.get(self.asked["backend"], ()):
            try:
                found[name] = importlib.import_module(name)
            except ImportError as error:
                raise Refused("%s needs %s: %s" % (self.asked["backend"], name, error)) from error
        said = self.report["source"] == "torchrun" or (os.environ.get("MASTER_ADDR") and os.environ.get("MASTER_PORT"))
        for name in MEETING:
            # Plain sockets are there to need no library, whose start may fail where launcher and MPI do not fit.
            if not said and not set(MEETING).intersection(found) and self.asked["backend"] != "tcp":
                with contextlib.suppress(ImportError):
                    found[name] = importlib.import_module(name)
        return found

    def meet(self, modules: Mapping[str, Any]) -> Table:
        """All ranks at one table."""
        if self.report["source"] != "torchrun" and not set(MEETING).intersection(modules):
            hint = ranks.rendezvous(os.environ, ranks.placement(os.environ), _first_line)
            if hint.address and hint.port:
                self.way = hint.address
                return Table(self.report["rank"], self.report["size"], hint.address, hint.port, self.limit)
        meeting = Meeting(self.report, modules, self.limit)
        meeting.connect()
        return meeting.table()

    def link(self, modules: Mapping[str, Any]) -> Any:
        """What measures with another node.

        Raises:
            Refused: there is no GPU for NCCL.
        """
        backend = self.asked["backend"]
        plan = {
            "operations": [self.asked["operation"]], "smallest": self.asked["bytes"], "largest": self.asked["bytes"],
            "warmups": self.asked["warmups"], "trials": self.asked["trials"],
        }
        if backend == "tcp":
            return SocketLink(self.report["rank"], plan, self.limit)
        if backend == "mpi":
            return MpiLink(modules["mpi4py.MPI"], plan)
        if backend == "nccl" and not rank_place.gpu_device(modules["torch"], self.report["local_rank"]):
            raise Refused("PyTorch sees no GPU here")
        return TorchLink(modules["torch"], backend, plan, self.limit)

    def know(self, table: Table, link: Any) -> None:
        """Find out who is where: nodes in the order of their names, each with its ranks.

        Raises:
            Refused: nodes have different numbers of ranks.
        """
        leader = self.report["local_rank"] == 0
        own = [*addresses(self.report["host"]), *_towards(self.way)] if leader else []
        told = table.collect([self.report["host"], self.report["local_rank"], own, link.offer(leader)])
        known: dict[str, Any] = {}
        if told is not None:
            ways = {host: own for host, _local, own, _offer in told if own}
            hosts = sorted({host for host, _local, _own, _offer in told}, key=_natural)
            members: list[list[int]] = [[] for _host in hosts]
            for rank in sorted(range(len(told)), key=lambda rank: (told[rank][1], rank)):
                members[hosts.index(told[rank][0])].append(rank)
            known = {
                "hosts": hosts, "members": members, "ways": [ways.get(host, [host]) for host in hosts],
                "offers": [offer for _host, _local, _own, offer in told],
            }
        known = table.share(known)
        self.hosts, self.members = known["hosts"], known["members"]
        self.offers = known["offers"]
        for node, own_ranks in enumerate(self.members):
            for rank in own_ranks:
                self.offers[rank]["addresses"] = known["ways"][node]
        counts = sorted({len(own_ranks) for own_ranks in self.members})
        if len(counts) > 1:
            raise Refused("nodes have from %d to %d ranks" % (counts[0], counts[-1]))
        if len(self.hosts) < 2:
            raise Refused("all ranks are on %s: one node makes no pair" % self.hosts[0])

    # --- rounds ---

    def rounds(self, table: Table, link: Any) -> None:
        """Do what rank 0 says until it has nothing more to say."""
        leader = Leader(self) if self.report["rank"] == 0 else None
        orders = leader.orders() if leader else iter(())
        while True:
            given = table.share(next(orders, None))
            if given is None:
                break
            order = Order(*given)
            told = self.take_part(table, link, order)
            if leader and told is not None:
                leader.keep(order, told)
        if leader and leader.last:
            self.output.say(*leader.last)

    def take_part(self, table: Table, link: Any, order: Order) -> list[Any] | None:
        """This rank's part of a round; at rank 0 each rank's [GB/s or None, what went wrong]."""
        team = self.team(order)
        value, trouble = None, ""
        if team:
            trouble = self.tried(lambda: link.join(team))
        # A round begins when all are ready, and without the pairs of which one is not.
        found = table.collect(trouble)
        failed = table.share(found and [rank for rank, text in enumerate(found) if text])
        ready = team is not None and not set(failed).intersection(team.members)
        if team and ready:
            with self.watched(order, team):
                measured: list[float] = []
                trouble = self.tried(lambda: measured.append(link.measure()))
                value = measured[0] if measured else None
        if team:
            left = self.tried(link.leave)
            trouble = trouble or left
        return table.collect([value, trouble])

    def team(self, order: Order) -> Team | None:
        """The ranks that this one measures with; None where it has a free round."""
        for low, high in order.pairs:
            members = self.members[low] + self.members[high]
            if self.report["rank"] in members:
                mine = members.index(self.report["rank"])
                name = "%s-%d-%d-%d" % (order.kind, order.number, low, high)
                return Team(name, members, mine, [self.offers[rank] for rank in members])
        return None

    @contextlib.contextmanager
    def watched(self, order: Order, team: Team) -> Iterator[None]:
        """Say with whom this rank measures, should that take long."""
        others = {self.hosts[node] for pair in order.pairs for node in pair if self.members[node][0] in team.members}
        text = "%s %d with %s" % (order.kind, order.number, ", ".join(others.difference([self.report["host"]])))
        told = threading.Event()

        def tell() -> None:
            told.set()
            self.output.stage(text)

        timer = threading.Timer(SLOW_SECONDS, tell)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            if told.is_set():
                self.output.stage("sweep")

    @staticmethod
    def tried(work: Any) -> str:
        """What went wrong, as a sentence; empty if nothing did. The others of the round go on in any case."""
        try:
            work()
            return ""
        except Exception as error:
            return "%s: %s" % (type(error).__name__, " ".join(str(error).split())[:300])

    # --- all of it ---

    def work(self) -> None:
        """Everything, in order."""
        self.output.stage("start")
        self.report.update(rank_place.placement(os.environ))
        modules = self.modules()
        table = self.meet(modules)
        link = self.link(modules)
        self.know(table, link)
        self.report["stage"] = "sweep"
        self.rounds(table, link)
        table.barrier()
        self.report["stage"] = "end"

    def run(self) -> int:
        """Work, and leave.

        Returns:
            The exit status.
        """
        try:
            self.work()
        except Exception as error:
            if not isinstance(error, Refused):
                traceback.print_exc()
            self.report["error"] = str(error) if isinstance(error, Refused) else "%s: %s" % (
                type(error).__name__, " ".join(str(error).split())[:300])
            for _copy in range(2):
                self.output.report()
            leave(1)
        return 0


class Leader:
    """What rank 0 knows beside the others: what has been measured, and what comes next."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep, self.hosts = sweep, sweep.hosts
        self.rule = sweep_levels.Rule(**sweep.asked["rule"])
        self.rounds = pairs.schedule(len(self.hosts))
        known = sweep.asked.get("known") or {}
        before = known.get("hosts", [])
        self.measured, self.repeated, self.late = (
            pairs.carried(known.get(key, []), before, self.hosts) for key in ("measured", "repeated", "unanswered")
        )
        self.number, self.begun, self.longest = 0, time.time(), 0.0
        self.last: tuple[str, Any] | None = None
        for _copy in range(2):
            sweep.output.say("sweep", {"hosts": self.hosts, "per_node": len(sweep.members[0])})

    def orders(self) -> Iterator[Order]:
        """Round by round, as long as there is something to measure and time for it.

        The round in which an earlier job ended comes last, so that a pair that hangs keeps no other from being
        measured; if it has ended a job again, its pairs come one by one, so that it is known.
        """
        late = [(one, other) for one, other, _times in self.late]
        apart = [[(one, other)] for one, other, times in self.late if times > 1]
        once = pairs.packed((one, other) for one, other, times in self.late if times == 1)
        done = [(one, other) for one, other, _value in self.measured]
        left = pairs.missing(self.rounds, [*done, *late])
        for together in [*left, None, *once, *apart, None]:
            for order in [self.order("round", together)] if together else self.suspects():
                if not self.time_left():
                    return
                self.begun = time.time()
                self.sweep.output.say("begun", order._asdict())
                yield order

    def suspects(self) -> Iterator[Order]:
        """What is slow so far, measured again until it is known."""
        seen = sweep_levels.look(len(self.hosts), self.measured, self.rule)
        for _phase in range(PHASES):
            before = len(self.repeated)
            for together in sweep_again.again(seen, self.repeated):
                yield self.order("again", together)
            if len(self.repeated) == before:
                return

    def order(self, kind: str, together: Sequence[Sequence[int]]) -> Order:
        """The next round."""
        self.number += 1
        return Order(kind, self.number, [list(pair) for pair in together])

    def time_left(self) -> bool:
        """Whether another round is likely to end in time; the first one is tried in any case."""
        return time.time() + MARGIN * self.longest < self.sweep.deadline

    def keep(self, order: Order, told: Sequence[Any]) -> None:
        """Keep and print what a round has given."""
        seconds = time.time() - self.begun
        rows, troubles = [], []
        for low, high in order.pairs:
            members = [*self.sweep.members[low], *self.sweep.members[high]]
            # Who has waited in vain knows least.
            wrong = sorted(
                ((rank, told[rank][1]) for rank in members if told[rank][1]), key=lambda one: "timed out" in one[1]
            )
            values = [told[rank][0] for rank in members]
            if wrong:
                troubles.append([low, high, "rank %d: %s" % wrong[0]])
            elif None not in values:
                # Each rank's own connection, or what all ranks of the pair have in common.
                together = values[:len(values) // 2] if self.sweep.asked["backend"] == "tcp" else values[:1]
                rows.append([low, high, float("%.4g" % sum(together))])
        if not troubles:
            self.longest = max(self.longest, seconds)
        (self.measured if order.kind == "round" else self.repeated).extend(rows)
        self.tell(order.kind, {
            "number": order.number, "pairs": rows, "troubles": troubles, "seconds": round(seconds, 2),
        })
        self.show(order, rows, seconds)

    def tell(self, kind: str, data: Any) -> None:
        """Print a message, and the one before once more: one that was broken on the way counts by its second copy."""
        if self.last:
            self.sweep.output.say(*self.last)
        self.last = (kind, data)
        self.sweep.output.say(kind, data)

    def show(self, order: Order, rows: Sequence[Sequence[Any]], seconds: float) -> None:
        """A line for whoever watches."""
        total = len(self.rounds)
        left = pairs.missing(self.rounds, [(one, other) for one, other, _value in self.measured])
        text = "[%d/%d]%s %d pair%s in %.1f s" % (
            total - len(left), total, " again:" if order.kind == "again" else "", len(order.pairs),
            "" if len(order.pairs) == 1 else "s", seconds)
        if rows:
            low, high, least = min(rows, key=lambda row: row[2])
            usual = sweep_levels.middle(row[2] for row in rows)
            text += ", %.3g GB/s, least %s and %s %.3g" % (usual, self.hosts[low], self.hosts[high], least)
        os.write(1, (text + "\n").encode("ascii", "replace"))


def _towards(address: str) -> list[str]:
    """This host's own address on the way to another one, where its name may lead nowhere."""
    if not address:
        return []
    with contextlib.suppress(OSError):
        family, _type, _protocol, _name, place = socket.getaddrinfo(address, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # Nothing is sent: the kernel only chooses the way.
            probe.connect(place)
            return [str(probe.getsockname()[0])]
    return []


def _first_line(path: str) -> str:
    with open(path, encoding="utf-8") as stream:
        return stream.readline()


def _natural(name: str) -> list[Any]:
    """For sorting: n2 before n10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def main(arguments: list[str]) -> int:
    """What the program of the ranks calls; see :func:`.rank_start.start`."""
    return start(arguments, Sweep)
