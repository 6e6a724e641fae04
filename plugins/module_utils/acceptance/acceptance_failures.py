# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What is wrong in an acceptance, and what to do next."""

from __future__ import annotations

from typing import NamedTuple, Sequence

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
"""What to do next, by what failed; for a check that is not here, :data:`VALUES`."""

ELSEWHERE = "Run the acceptance where it can run (acceptance_launcher), or move it to acceptance_where_possible."

VALUES = "Do not publish this release; look into the log, and run the library verification of this release."


class Failure(NamedTuple):
    """Something that is wrong: in which check, one sentence, and what to do where that is not the check's usual."""

    check: str
    message: str
    advice: str = ""

    @property
    def remedy(self) -> str:
        """What to do next."""
        return self.advice or REMEDIES.get(self.check, VALUES)


def failure_sentence(release: str, failures: Sequence[Failure], record: str, log: str) -> tuple[str, str]:
    """What the play says when an acceptance fails: one sentence what is wrong, one what to do.

    Args:
        release: its name.
        failures: at least one; the first one is the one that explains most.
        record: path of the record.
        log: path of the log.
    """
    first = failures[0]
    more = " (and %d more in the record)" % (len(failures) - 1) if len(failures) > 1 else ""
    message = "The acceptance of %s failed at %s: %s%s." % (release, first.check, first.message.rstrip("."), more)
    return message, "%s Record: %s, log: %s." % (first.remedy, record, log)
