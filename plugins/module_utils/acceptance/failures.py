# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Define the failures of an acceptance, and their remedies."""

from __future__ import annotations

import re
from typing import NamedTuple

REMEDIES = {
    "module": "Load it by hand in a fresh login of that user to see why; correct the module or acceptance_module_*.",
    "launcher": "Correct acceptance_launcher, or have the modulefile put it on PATH.",
    "python": "Correct acceptance_python, or have the modulefile put it on PATH.",
    "timeout": "The log has the stacks of the ranks; if the job only waited in a queue, raise acceptance_timeout, and "
               "if it was still measuring, lower seconds or largest of acceptance_measure.",
    "ranks": "Look into the log, and at acceptance_launcher: it has to start exactly acceptance_ranks processes.",
    "nodes": "Have acceptance_launcher spread the ranks with {nodes} and {per_node}, in a job of that many nodes.",
    "placement": "Use the launcher that belongs to the MPI of this release (acceptance_launcher).",
    "start": "Use the launcher that belongs to the MPI of this release (acceptance_launcher).",
    "devices": "Bind the ranks, so that each has a GPU of its own (acceptance_launcher).",
    "imports": "Look for user packages or another module on PYTHONPATH, and run the verification of this release.",
    "libraries": "Compare the nodes' module environments and images, and run the verification of this release.",
    "job": "Look into the log.",
    "transport": "Look in the log for why NCCL has not loaded its plugin, and at NCCL_NET, NCCL_NET_PLUGIN and "
                 "FI_PROVIDER as the module sets them; the record has what every rank was given.",
    "import_time": "Look at the file system of the release under load, or copy the release to the nodes before jobs; "
                   "raise acceptance_import_ceiling if this is what the site can do.",
    "bandwidth": "Look at the health of the nodes and find slow ones by the pair sweep; correct the floor in "
                 "acceptance_measure if it is wrong.",
}
"""Remedies by the check that failed; for others see :data:`VALUES`."""

ELSEWHERE = "Run the acceptance where it can run (acceptance_launcher), or move it to acceptance_where_possible."

VALUES = "Do not publish this release; look into the log, and run the library verification of this release."

APART = ("See whether all ranks were started, and whether their nodes reach each other at the address in the message: "
         "names of hosts, firewalls between nodes, MASTER_ADDR where the launcher sets it.")
"""Of ranks that wait for others which do not come."""

RAISED_AT_START = {
    "ConnectionError": APART,
    "ConnectionRefusedError": APART,
    "DistNetworkError": APART,
    "DistStoreError": APART,
    "TimeoutError": APART,
    "ModuleNotFoundError": REMEDIES["imports"],
    "ImportError": REMEDIES["imports"],
    "PermissionError": "Give the user of the acceptance access to what is named.",
}
"""Remedies by the exception that ended a rank's start; for others the log is all that can be advised."""


def start_advice(problem: str) -> str:
    """Return what to do about a problem of a rank's start; empty, for the usual remedy, where no exception says it."""
    raised = re.match(r"(\w+(?:Error|Exception|Timeout)): ", problem)
    if raised is None:
        return ""
    waited = re.search("(?i)timed? ?out", problem)
    return RAISED_AT_START.get(raised.group(1), APART if waited else REMEDIES["job"])


class Failure(NamedTuple):
    """Hold what is wrong: the check, one sentence, and a remedy where it is not the check's usual one."""

    check: str
    message: str
    advice: str = ""

    @property
    def remedy(self) -> str:
        """Return what to do next."""
        return self.advice or REMEDIES.get(self.check, VALUES)

    def as_record(self) -> dict[str, str]:
        """Return what a record keeps of it."""
        return {"check": self.check, "message": self.message, "remedy": self.remedy}
