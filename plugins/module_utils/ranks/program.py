# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run one rank of the acceptance: ``ranks.pyz QUESTION.json DEADLINE``, started by a launcher.

The deadline is in seconds since the epoch. The answer goes to standard output (see :mod:`.output`). Needs nothing
but the standard library and what it checks.

Exit status: 0 when all checks of this rank passed or could not run, 1 otherwise.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
import traceback
from typing import Any, Callable, Mapping

from . import libraries, nccl_log, placement
from .backend_checks import NEEDS, OF_GPUS, BackendChecks
from .errors import CheckUnavailable, RankError
from .rendezvous import Rendezvous, abort
from .start import run_program


class Rank(BackendChecks):
    """Run the checks of this rank and report their results."""

    def __init__(self, question: Mapping[str, Any], deadline: float) -> None:
        super().__init__(question, {
            "host": socket.gethostname(), "pid": os.getpid(), "uid": os.getuid(), "executable": sys.executable,
            "python": ".".join(map(str, sys.version_info[:3])), "prefix": os.path.realpath(question["prefix"]),
            "home": os.path.realpath(os.path.expanduser("~")),
            "versions": {}, "files": {}, "libraries": {}, "sizes": {}, "checks": [], "stage": "",
            "import_seconds": {}, "measured": {},
        })
        self.limit = max(2.0, deadline - time.time())

    def check(self, name: str, work: Callable[[], str | None]) -> None:
        """Run one check and keep its result.

        A check adds what is wrong to its ``problems`` and goes on, because the other ranks go on as well and would wait
        for this one. What it raises is raised again: there is no going on then.
        """
        self.output.stage(name)
        self.problems = []
        self.entry = {"name": name, "status": "passed", "problems": self.problems, "note": ""}
        self.report["checks"].append(self.entry)
        started = time.monotonic()
        try:
            self.entry["note"] = work() or ""
        except CheckUnavailable as reason:
            self.entry.update(status="skipped", note=str(reason))
        except RankError as reason:
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

    def import_modules(self) -> None:
        """Import what the checks need; modules of optional checks may be missing."""
        imports = list(self.question["imports"])
        required = {*imports, *(module for name in self.question["checks"] for module in NEEDS.get(name, ()))}
        wanted = imports + [module for name in self.names for module in NEEDS.get(name, ())]
        if "torch_nccl" in self.names:
            self.nccl_log = nccl_log.NcclLog(os.environ)
        found = libraries.import_modules(wanted, sorted(required))
        self.modules.update(found.modules)
        self.report["files"].update(found.files)
        self.report["versions"].update(found.versions)
        self.report["import_seconds"] = found.seconds

    def connect(self) -> None:
        """Select a device, and connect to the other ranks."""
        self.report["device"] = placement.describe_cpus()
        torch = self.modules.get("torch")
        if torch and OF_GPUS & set(self.names):
            self.report["device"].update(placement.select_gpu(torch, self.report["local_rank"]) or {})
        elif torch and torch.cuda.is_available():
            # A release for CPUs may have PyTorch's CUDA build, on a machine with one GPU for all ranks.
            self.report["device"]["gpus_unused"] = torch.cuda.device_count()
        self.rendezvous = Rendezvous(self.report, self.modules, self.limit)
        try:
            self.rendezvous.connect()
        finally:
            self.report["sizes"] = self.rendezvous.sizes

    def check_devices(self) -> None:
        """Exchange devices; GPUs are used only where every rank has one of its own.

        A rank reports what is wrong with itself only, for of thousands each would say the same.
        """
        everyone = self.connected().exchange({key: self.report[key] for key in ("host", "rank", "device")})
        with_gpu = sum(other["device"]["kind"] == "gpu" for other in everyone)
        if 0 < with_gpu < len(everyone):
            self.without_gpu = "not every rank has a GPU"
            if self.report["device"]["kind"] != "gpu":
                self.problems.append("it has no GPU, others have")
        shared = placement.find_shared_gpus(everyone)
        if shared:
            self.without_gpu = "ranks share a GPU"
        for identity, users in shared:
            if self.report["rank"] in users:
                self.problems.append("ranks %s use the same GPU %s" % (" and ".join(map(str, users)), identity))
        self.gpu = with_gpu == len(everyone) and not shared

    # --- all of it ---

    def work(self) -> None:
        """Run all checks in order."""
        self.check("placement", lambda: self.report.update(placement.read_placement(os.environ)))
        self.check("imports", self.import_modules)
        self.check("start", self.connect)
        self.check("devices", self.check_devices)
        for name in self.names:
            if name in NEEDS:
                self.check(name, getattr(self, name))
        self.output.stage("end")

    def run(self) -> int:
        """Run all checks, report, and leave."""
        try:
            with contextlib.suppress(RankError):
                self.work()
        except Exception:
            traceback.print_exc()
        if self.nccl_log:
            self.nccl_log.remove()
        self.report["libraries"] = libraries.mapped_libraries()
        if self.question.get("providers"):
            names = [rule["name"] for rule in self.question["providers"]]
            self.report["declared"] = libraries.declared_libraries(names)
            self.report["library_path"] = os.environ.get("LD_LIBRARY_PATH", "")
        self.report["versions"]["mpi"] = libraries.mpi_version(self.report["libraries"])
        self.output.report()
        if self.report["stage"] != "end":
            abort(1)
        self.connected().exchange(None)
        # A frame that was broken on the way counts by its second copy.
        self.output.report()
        return 1 if any(entry["status"] == "failed" for entry in self.report["checks"]) else 0


def main(arguments: list[str]) -> int:
    """Run the program of the ranks; see :func:`.start.run_program`."""
    return run_program(arguments, Rank)
