# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Print the CPUs that go with each GPU of a node, as srun takes them.

In a batch script, which Slurm runs on the first node of a job::

    srun --cpu-bind=mask_cpu:"$(gpu-cpu-masks)" --ntasks-per-node=8 ...

Rank number i on its node then has the cores next to GPU number i. Slurm takes masks for whole nodes only, and the nodes
of the job have to be alike. Python 3.6 is enough.
"""

import argparse
import os
import shutil
import subprocess
import sys

LIBRARY = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, LIBRARY)

import topology

RESERVED = os.path.join(LIBRARY, "reserved-cpus")
"""What the site reserves: one line beside comments. Without the file, nothing."""

CPUS = ("lscpu", "-p")
GPUS = (("rocm-smi", "--showtoponuma"), ("/opt/rocm/bin/rocm-smi", "--showtoponuma"), ("nvidia-smi", "topo", "-m"))
PATIENCE = 120
"""Seconds after which a program that says nothing is given up; GPUs that sleep take some time to answer."""

FORMS = ("mask_cpu", "map_cpu", "gpu_bind")


class Trouble(Exception):
    """What keeps the masks from being known, as one sentence."""


def main(words):
    """Do what the command line says; its exit status."""
    given = arguments(words)
    try:
        reserved = given.reserved if given.reserved is not None else read_reserved()
        allowed = None if given.lscpu else frozenset(os.sched_getaffinity(0))
        cores = topology.cores(read(given.lscpu) if given.lscpu else ask(CPUS))
        kept = topology.reserved_cpus(cores, reserved)
        complain_of_a_part(cores, kept, allowed)
        found = topology.gpus(read(given.gpus)) if given.gpus else ask_for_gpus()
        bound = topology.binding(cores, found, reserved, given.threads, allowed)
    except (Trouble, topology.TopologyError) as error:
        print("gpu-cpu-masks: %s" % error, file=sys.stderr)
        return 1
    for note in bound.notes:
        print("gpu-cpu-masks: %s" % note, file=sys.stderr)
    print(table(bound) if given.table else form(bound, given.form))
    return 0


def arguments(words):
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="gpu-cpu-masks", description=__doc__.partition("\n")[0], epilog=(
        "Without files, this node is asked, and only CPUs that this process may use are taken."))
    parser.add_argument("--form", choices=FORMS, default=FORMS[0], help=(
        "mask_cpu (the default) and map_cpu: for srun --cpu-bind, all cores of each GPU or one; gpu_bind: for srun "
        "--gpu-bind=map:, the order of the GPUs where ranks have CPUs in the order of their numbers"))
    parser.add_argument("--table", action="store_true", help="for people: a line for each GPU instead")
    parser.add_argument("--threads", choices=topology.THREADS, default="one", help="of each core; default: one")
    parser.add_argument("--reserved", metavar="CPUS", help=(
        "cores to leave out, as 0,8,16 or '%s'; '' for none; default: what the site says" % topology.FIRST_OF_CACHE))
    parser.add_argument("--lscpu", metavar="FILE", help="what 'lscpu -p' has printed on such a node")
    parser.add_argument("--gpus", metavar="FILE", help=(
        "what 'rocm-smi --showtoponuma' or 'nvidia-smi topo -m' has printed there"))
    return parser.parse_args(words)


def read(path):
    """The text of a file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError as error:
        raise Trouble("%s cannot be read: %s." % (path, error.strerror)) from error


def read_reserved():
    """What the site reserves."""
    if not os.path.exists(RESERVED):
        return ""
    lines = [line.strip() for line in read(RESERVED).splitlines()]
    return "".join(line for line in lines if not line.startswith("#"))


def ask(command):
    """What a program of this node prints."""
    try:
        asked = subprocess.run(  # noqa: UP022 - Python 3.6 does not know capture_output
            command, env=dict(os.environ, LC_ALL="C", PATH=search_path()), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE, check=False,
        )
    except OSError as error:
        raise Trouble("%s cannot be run: %s." % (command[0], error.strerror)) from error
    except subprocess.TimeoutExpired as error:
        raise Trouble("'%s' has not answered within %d seconds." % (" ".join(command), PATIENCE)) from error
    if asked.returncode:
        said = asked.stderr.decode(errors="replace").strip() or asked.stdout.decode(errors="replace").strip()
        raise Trouble("'%s' ended with status %d: %s" % (
            " ".join(command), asked.returncode, said.splitlines()[-1] if said else "it said nothing."))
    return asked.stdout.decode(errors="replace")


def search_path():
    """PATH without this release's commands: rocm-smi is a script for python3, which among them is the container's."""
    own = os.path.join(os.path.dirname(os.path.dirname(LIBRARY)), "bin")
    return ":".join(place for place in os.environ.get("PATH", os.defpath).split(":") if os.path.realpath(place) != own)


def ask_for_gpus():
    """What the first program that knows GPUs says of this node's."""
    troubles = []
    for command in GPUS:
        if not shutil.which(command[0], path=search_path()):
            continue
        try:
            return topology.gpus(ask(command))
        except (Trouble, topology.TopologyError) as error:
            troubles.append(str(error))
    said = " ".join(troubles) or "It has neither rocm-smi nor nvidia-smi."
    raise Trouble("No GPU was found on this node. %s" % said)


def complain_of_a_part(cores, kept, allowed):
    """Say so where this process may not use all cores that are not reserved."""
    if allowed is None:
        return
    usable = [core for core in cores if not kept.intersection(core.cpus)]
    mine = [core for core in usable if allowed.intersection(core.cpus)]
    if len(mine) < len(usable):
        print(
            "gpu-cpu-masks: warning: this process may use %d of the node's %d cores. Masks are valid for whole nodes "
            "only: ask for them with --exclusive, or name with --reserved the cores that jobs never get." % (
                len(mine), len(usable)), file=sys.stderr)


def form(bound, name):
    """The words for srun."""
    values = {"mask_cpu": bound.masks, "map_cpu": bound.first_cpus, "gpu_bind": bound.gpus_by_cpu}
    return ",".join(map(str, values[name]))


def table(bound):
    """A line for each GPU."""
    lines = [("GPU", "NUMA", "CACHE", "CORES", "CPUS", "MASK")]
    for gpu, (share, mask) in enumerate(zip(bound.shares, bound.masks)):
        caches = list(dict.fromkeys(core.cache or "?" for core in share.cores))
        lines.append((str(gpu), topology.listed(share.nodes), ",".join(caches), str(len(share.cores)),
                      topology.listed(share.cpus), mask))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
