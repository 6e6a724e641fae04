# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The cluster's PBS: programs of this machine, set up as the rehearsal's data say, and whether it is ready."""

from __future__ import annotations

import json
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .batch_system import Ask, BatchSystem, Programs
from .dress_data import known_keys
from .nodes import CONTROL
from .trouble import MissingError, TroubleError

PREFIX = "/opt/pbs"
"""Where PBS is installed by default, and where the nodes have it."""

HOME = "/var/spool/pbs"
VARIABLE = "REHEARSAL_PBS"
NEEDED = (
    "bin/qsub", "bin/qmgr", "bin/pbsnodes", "bin/pbs_tmrsh", "libexec/pbs_habitat", "sbin/pbs_comm", "sbin/pbs_mom",
    "sbin/pbs_sched", "sbin/pbs_server",
)
"""What the directory of a PBS has that was installed as a whole."""

KEYS = ("system", "queues", "resources", "required")
QUEUE_KEYS = ("nodes", "walltime")
LIMITS = {"nodes": "resources_max.nodect", "walltime": "resources_max.walltime"}
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_:.-]*")
"""A name or value that qmgr(8) takes without quotes."""

ACCOUNTS = {"rollout": "staff", "researcher": "science"}
"""Who may charge jobs to what, as in the accounting of the cluster's Slurm."""

DOWN = ("down", "state-unknown", "unresolvable", "Stale", "initializing")
"""States of a node that has not answered. One that an operator took away on purpose has."""

QUEUEJOB = "usr/local/lib/rehearsal/admission.py"
"""The hook, a file of the image."""


class Data(NamedTuple):
    """What a rehearsal says of its PBS."""

    queues: dict[str, dict[str, str]]
    """by name, the default first, with their limits"""
    resources: dict[str, int]
    """what each node has, believed"""
    required: dict[str, list[str]]
    """resources that a job has to name, with the words that it may join by colons"""


class Pbs(BatchSystem):
    """OpenPBS or PBS Professional as it is installed on this machine."""

    name = "pbs"
    title = "PBS and its nodes"
    shows_nodes = (PREFIX + "/bin/pbsnodes", "-aSj")

    def __init__(self, data: Data) -> None:
        self.data = data
        self.here = pathlib.Path(os.environ.get(VARIABLE, "") or PREFIX)
        self.programs = Programs(self.here, PREFIX)

    def check(self) -> None:
        """Look whether there is a PBS to copy.

        Raises:
            MissingError: there is none, or not all of one.
        """
        missing = [path for path in NEEDED if not (self.here / path).is_file()]
        if not self.here.is_absolute() or missing:
            what = "is no absolute path" if not self.here.is_absolute() else "has no %s" % missing[0]
            raise MissingError(
                "This rehearsal runs on PBS, and %s %s: let %s name the directory of an OpenPBS that was built on "
                "Debian 12 for its default prefix, %s, or leave out SCHEDULER=pbs to rehearse on Slurm "
                "(docs/tutorials/rehearse-a-site.md, \"On a real PBS\")." % (self.here, what, VARIABLE, PREFIX)
            )

    def files(self, node: str, compute: Sequence[str]) -> dict[str, str]:
        """Give pbs.conf(8) and, on the node of the server, what it is set up by when it starts first."""
        runs = {"SERVER": node == CONTROL, "SCHED": node == CONTROL, "COMM": node == CONTROL, "MOM": node in compute}
        lines = ["PBS_EXEC=" + PREFIX, "PBS_HOME=" + HOME, "PBS_SERVER=" + CONTROL]
        lines += ["PBS_START_%s=%d" % item for item in runs.items()]
        laid = {"etc/pbs.conf": _text(lines)}
        if node in compute:
            laid["etc/rehearsal/mom.conf"] = _text(["$clienthost " + CONTROL, "$usecp *:/shared /shared"])
        if node == CONTROL:
            laid["etc/rehearsal/qmgr"] = _text(commands(self.data, compute))
            laid["etc/rehearsal/resources"] = _text([", ".join(sorted(self.data.resources))])
            laid["etc/rehearsal/admission.json"] = json.dumps(
                {"accounts": ACCOUNTS, "required": self.data.required}, indent=1)
        return laid

    def ready(self, ask: Ask, compute: Sequence[str]) -> bool:
        """Tell whether the server is set up, which is done when it knows the nodes, and the nodes have answered."""
        answer = ask(PREFIX + "/bin/pbsnodes", "-a", "-F", "json")
        if answer.returncode != 0:
            return False
        nodes = json.loads(answer.stdout, strict=False).get("nodes", {})
        fit = {name for name, known in nodes.items() if not set(str(known.get("state")).split(",")) & set(DOWN)}
        return fit.issuperset(compute)


def data_of(given: Mapping[str, Any], where: str) -> Data:
    """Read what a rehearsal says of its PBS.

    Args:
        given: the mapping in its inventory.
        where: the mapping's name.

    Raises:
        TroubleError: a key or a value is none.
    """
    known_keys(given, KEYS, where)
    queues = given.get("queues") or {}
    if not queues:
        raise TroubleError("%s.queues is missing: a mapping of the queues of this PBS, the default first." % where)
    limits = {}
    for name, limit in queues.items():
        place = "%s.queues.%s" % (where, name)
        known_keys(limit or {}, QUEUE_KEYS, place)
        limits[_plain(name, place)] = {key: _plain(value, place) for key, value in (limit or {}).items()}
    resources = given.get("resources") or {}
    for name, value in resources.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise TroubleError("%s.resources.%s is '%s'; it has to be a whole number." % (where, name, value))
    required = given.get("required") or {}
    for name, words in required.items():
        if not isinstance(words, list) or not words:
            raise TroubleError("%s.required.%s has to be a list of words." % (where, name))
    return Data(
        limits, {_plain(name, where + ".resources"): value for name, value in resources.items()},
        {_plain(name, where + ".required"): [_plain(word, where) for word in words] for name, words in required.items()}
    )


def commands(data: Data, compute: Sequence[str]) -> list[str]:
    """Give the commands of qmgr(8) that make a server what the data say; the nodes last, as all else counts for them.

    Args:
        data: what the rehearsal says.
        compute: the names of the compute nodes.
    """
    own = [name for name in data.resources if name not in ("ncpus", "mem")]
    lines = ["create resource %s type=long, flag=nh" % name for name in own]
    lines += ["create resource %s type=string" % name for name in data.required]
    for name, limits in data.queues.items():
        lines.append("create queue %s queue_type=Execution, enabled=True, started=True" % name)
        lines += ["set queue %s %s = %s" % (name, LIMITS[key], value) for key, value in limits.items()]
    lines += ["set server %s = %s" % setting for setting in (
        ("default_queue", next(iter(data.queues))), ("flatuid", "True"), ("job_history_enable", "True"),
        ("job_history_duration", "720:00:00"), ("acl_roots", "root@*"), ("managers", "root@*"),
        ("resources_default.walltime", "01:00:00"))]
    lines += [
        "create hook admission event=queuejob, enabled=True",
        "import hook admission application/x-python default /" + QUEUEJOB,
        "import hook admission application/x-config default /etc/rehearsal/admission.json",
    ]
    for node in compute:
        lines.append("create node " + node)
        lines += ["set node %s resources_available.%s = %d" % (node, *item) for item in data.resources.items()]
    return lines


def _plain(value: Any, where: str) -> str:
    if not isinstance(value, (str, int)) or not PLAIN.fullmatch(str(value)):
        raise TroubleError(
            "%s: '%s' has to be a word of letters, numbers, and : . _ - after the first; times stand in quotes."
            % (where, value))
    return str(value)


def _text(lines: Sequence[str]) -> str:
    return "".join(line + "\n" for line in lines)
