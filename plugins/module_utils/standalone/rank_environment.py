# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find out which rank a process is, from the variables of any launcher, for RANK, WORLD_SIZE and the like. Pure.

The one place that knows what launchers set. It travels beside programs that ranks run, to nodes without this
collection, and therefore imports nothing of it.

Sources: srun(1), OUTPUT ENVIRONMENT VARIABLES; Open MPI's "Environment variables set for MPI applications"; Hydra's
``MPI_LOCALRANKID`` and ``MPI_LOCALNRANKS`` beside PMI's own; MVAPICH2's user guide, section on mpirun_rsh; torchrun's
"Environment Variables"; flux-environment(7), "TASK ENVIRONMENT". PALS sets ``PMI_RANK``, ``PMI_SIZE`` and
``PMI_LOCAL_RANK`` as well as names of its own.
"""

from __future__ import annotations

import re
import zlib
from typing import Callable, Iterable, Mapping, NamedTuple, Sequence

Environment = Mapping[str, str]

FIRST_SPECIAL_STEP = 0xFFFFFFF0
"""Slurm numbers the steps of srun from 0; the last 16 numbers stand for the batch script, the interactive shell of
salloc, and the like (slurm.h, ``SLURM_BATCH_SCRIPT``)."""

DAEMONS_OF_OTHERS = ("slurm", "flux")
"""Launchers that also start the daemons by which another one starts its ranks."""

PORTS = (10000, 30000)
"""Where ports are derived from a job's identity: below what Linux hands out by itself (ip(7), ip_local_port_range)."""

_PER_NODE = re.compile(r"(\d+)(?:\(x(\d+)\))?\Z")


class Placement(NamedTuple):
    """Which rank a process is; None where the launcher does not tell."""

    source: str
    """``torchrun``, ``openmpi``, ``mvapich``, ``pals``, ``pmi`` (Hydra and its kin), ``slurm``, ``flux``,
    ``environment`` (RANK and WORLD_SIZE by somebody else), or ``none``: started without a launcher."""
    rank: int | None
    size: int | None
    local_rank: int | None = None
    local_size: int | None = None
    node: int | None = None
    nodes: int | None = None


class Hint(NamedTuple):
    """Where ranks may meet. Nothing is reserved: rank 0 is usually there, and the port is usually free."""

    address: str
    """Empty where it cannot be known."""
    port: int
    """0 where it cannot be known."""


ALONE = Placement("none", 0, 1, 0, 1, 0, 1)


def placement(environment: Environment) -> Placement:
    """Find out which rank of how many this process is.

    Every launcher that has left its variables is asked. They may agree: srun speaks PMI as well. Where they do not, one
    was started by the other. The outer one has one process per node, a daemon that starts ranks; torchrun, and a mpirun
    inside a step of srun, are always the inner one. Anything else cannot be told apart and is refused, because each
    rank would be taken for another one.

    ``rank``, ``size`` and ``local_rank`` of the answer are numbers; the others where the launcher tells. ValueError:
    variables are no numbers, incomplete, or contradict each other.
    """
    if environment.get("TORCHELASTIC_RUN_ID") and environment.get("RANK"):
        return _whole(_torchrun(environment))
    asked = (_openmpi, _mvapich, _pals, _pmi, _slurm, _flux, _by_hand)
    answers = [answer for answer in (ask(environment) for ask in asked) if answer]
    return _whole(_innermost(_merged(answers))) if answers else ALONE


def variables(found: Placement, hint: Hint | None = None) -> dict[str, str]:
    """Return the variables that PyTorch's ``env://`` and most programs read, as far as they are known.

    GROUP_RANK is the node's number; the hint is that of :func:`rendezvous`.
    """
    values = {
        "RANK": found.rank, "WORLD_SIZE": found.size, "LOCAL_RANK": found.local_rank,
        "LOCAL_WORLD_SIZE": found.local_size, "GROUP_RANK": found.node,
        "MASTER_ADDR": (hint and hint.address) or None, "MASTER_PORT": (hint and hint.port) or None,
    }
    return {name: str(value) for name, value in values.items() if value is not None}


def rendezvous(
    environment: Environment, found: Placement, first_line: Callable[[str], str] | None = None
) -> Hint:
    """Find where the ranks of this job may meet: the first node, and a port of this job alone.

    What MASTER_ADDR and MASTER_PORT say, where both are set. ``first_line`` reads the first line of a file, for the
    node file of PBS; without it that is not looked at. ValueError: MASTER_PORT is no number.
    """
    given = _number(environment, "MASTER_PORT")
    if environment.get("MASTER_ADDR") and given is not None:
        return Hint(environment["MASTER_ADDR"], given)
    own = identity(environment, found.source)
    low, high = PORTS
    port = low + zlib.crc32(own.encode("utf-8", "replace")) % (high - low) if own else 0
    if found.size is not None and found.size == found.local_size:
        return Hint("127.0.0.1", port)
    if environment.get("PBS_NODEFILE") and first_line is not None:
        return Hint(first_line(environment["PBS_NODEFILE"]).strip(), port)
    nodes = environment.get("SLURM_STEP_NODELIST" if found.source == "slurm" else "SLURM_JOB_NODELIST", "")
    return Hint(first_host(nodes), port)


def first_host(names: str) -> str:
    """Return the first host of Slurm's notation: ``nid[001-003,007],login`` is ``nid001``."""
    name = re.match(r"[^,\[]*(?:\[[^\]]*\][^,\[]*)*", names)
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", name.group()) if name else ""


def identity(environment: Environment, source: str) -> str:
    """Return what tells an application from others on its nodes, alike for all its ranks; empty where nothing does."""
    # Of another launcher than the ranks' own, the step differs between the node of mpirun and those of its daemons.
    own = {"slurm": ["SLURM_STEP_ID"], "pals": ["PALS_APID"], "flux": ["FLUX_ENCLOSING_ID", "FLUX_JOB_ID"]}
    words = [environment.get(name, "") for name in ["SLURM_JOB_ID", "PBS_JOBID", *own.get(source, [])]]
    if any(words):
        return ".".join(words)
    return environment.get("PMIX_NAMESPACE", "") or environment.get("FLUX_ENCLOSING_ID", "")


# --- what each launcher says -----------------------------------------------------------------------------------------


def _number(environment: Environment, *names: str) -> int | None:
    """Return the first of the variables that is set, as a whole number; ValueError: it is set to something else."""
    for name in names:
        text = environment.get(name, "")
        if text:
            if not (text.isascii() and text.isdigit()):
                raise ValueError("%s is %r, not a number" % (name, text))
            return int(text)
    return None


def _torchrun(environment: Environment) -> Placement:
    numbers = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
    return Placement("torchrun", *(_number(environment, name) for name in numbers))


def _by_hand(environment: Environment) -> Placement | None:
    if not environment.get("RANK") or not environment.get("WORLD_SIZE"):
        return None
    return _torchrun(environment)._replace(source="environment")


def _openmpi(environment: Environment) -> Placement | None:
    # OMPI_COMM_WORLD_NODE_RANK is not the node's number: it counts processes on a node across jobs.
    names = ["OMPI_COMM_WORLD_" + name for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")]
    return _told("openmpi", [_number(environment, name) for name in names])


def _mvapich(environment: Environment) -> Placement | None:
    names = ["MV2_COMM_WORLD_" + name for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")]
    return _told("mvapich", [_number(environment, name) for name in names])


def _pals(environment: Environment) -> Placement | None:
    size = _number(environment, "PMI_SIZE")
    names = ("PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE", "PALS_NODEID")
    local = [_number(environment, name) for name in names]
    return _told("pals", [_number(environment, "PALS_RANKID"), size, *local])


def _pmi(environment: Environment) -> Placement | None:
    numbers = [
        _number(environment, "PMI_RANK"), _number(environment, "PMI_SIZE"),
        _number(environment, "PMI_LOCAL_RANK", "MPI_LOCALRANKID"),
        _number(environment, "PMI_LOCAL_SIZE", "MPI_LOCALNRANKS"),
    ]
    return _told("pmi", numbers)


def _slurm(environment: Environment) -> Placement | None:
    """Read what srun says; nothing in the batch script or in salloc's shell, whose numbers are not those of ranks."""
    step = _number(environment, "SLURM_STEP_ID", "SLURM_STEPID")
    if step is None or step >= FIRST_SPECIAL_STEP:
        return None
    node = _number(environment, "SLURM_NODEID")
    return _told("slurm", [
        _number(environment, "SLURM_PROCID"), _number(environment, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        _number(environment, "SLURM_LOCALID"), _tasks_on(node, environment.get("SLURM_STEP_TASKS_PER_NODE", "")),
        node, _number(environment, "SLURM_STEP_NUM_NODES"),
    ])


def _flux(environment: Environment) -> Placement | None:
    """Read what flux run says; nothing in a batch script, which has none of it."""
    size, nodes = _number(environment, "FLUX_JOB_SIZE"), _number(environment, "FLUX_JOB_NNODES")
    # Each node has a task at least.
    local_size = {1: size, size: 1}.get(nodes)
    numbers = [_number(environment, name) for name in ("FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID")]
    return _told("flux", [numbers[0], size, numbers[1], local_size, None, nodes])


def _told(source: str, numbers: Sequence[int | None]) -> Placement | None:
    return None if numbers[0] is None else Placement(source, *numbers)


def _tasks_on(node: int | None, text: str) -> int | None:
    """Count the tasks on one node, from Slurm's ``4(x2),3``: twice four, then three."""
    counts: list[int] = []
    for word in text.split(","):
        part = _PER_NODE.match(word)
        if not part:
            return None
        counts += [int(part.group(1))] * min(int(part.group(2) or 1), 1 << 20)
    if len(set(counts)) == 1:
        return counts[0]
    return counts[node] if node is not None and node < len(counts) else None


# --- several launchers -----------------------------------------------------------------------------------------------


def _merged(answers: Iterable[Placement]) -> list[Placement]:
    """Merge answers that agree in all that both know; the name of a batch system stays, whatever PMI it speaks."""
    merged: list[Placement] = []
    for answer in answers:
        for place, other in enumerate(merged):
            if all(mine is None or theirs is None or mine == theirs for mine, theirs in zip(answer[1:], other[1:])):
                known = [theirs if mine is None else mine for mine, theirs in zip(answer[1:], other[1:])]
                merged[place] = Placement(answer.source if answer.source in DAEMONS_OF_OTHERS else other.source, *known)
                break
        else:
            merged.append(answer)
    return merged


def _innermost(answers: list[Placement]) -> Placement:
    """Choose the launcher that started this very process; ValueError: it cannot be told."""
    inner = [answer for answer in answers if answer.local_size != 1]
    outer = [answer for answer in answers if answer.source in DAEMONS_OF_OTHERS and answer.local_size in (1, None)]
    if len(inner) != 1 and outer:
        inner = [answer for answer in answers if answer.source not in DAEMONS_OF_OTHERS]
    if len(answers) > 1 and len(inner) != 1:
        said = ["%s says rank %s of %s" % (answer.source, answer.rank, _or_unknown(answer.size)) for answer in answers]
        raise ValueError(
            "the variables of several launchers contradict each other: %s; start ranks with one of them, and unset "
            "what the other has left" % ", ".join(said)
        )
    return inner[0] if len(answers) > 1 else answers[0]


def _or_unknown(number: int | None) -> str:
    return "an unknown number" if number is None else str(number)


def _whole(found: Placement) -> Placement:
    """Complete a placement; ValueError: a number is missing, or the numbers make no sense together."""
    source, rank, size, local_rank, local_size = found[:5]
    if rank is None or size is None:
        raise ValueError("the launcher (%s) tells rank %s its number, but not how many there are" % (source, rank))
    if rank >= size:
        raise ValueError("the launcher (%s) says rank %d of %d" % (source, rank, size))
    if local_rank is None:
        raise ValueError("the launcher (%s) does not tell rank %d its number on its node" % (source, rank))
    if local_size is not None and not local_rank < local_size <= size:
        raise ValueError("the launcher (%s) says that rank %d of %d is number %d of %d on its node" % (
            source, rank, size, local_rank, local_size))
    if found.node is not None and found.nodes is not None and found.node >= found.nodes:
        raise ValueError("the launcher (%s) says that rank %d is on node %d of %d" % (
            source, rank, found.node, found.nodes))
    return found._replace(node=0, nodes=1) if local_size == size else found
