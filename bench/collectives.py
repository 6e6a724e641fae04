# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What bin/collectives says of a machine's GPUs, next to what nccl-tests says of them in the same run.

::

    python3 bench/collectives.py --perf 'all_reduce_perf -g 2' --launcher 'torchrun --nproc-per-node 2' --largest 16GiB

The two run in turn, so that a GPU that grows warm is warm for both. Figures are bus bandwidths in GB/s, of nccl-tests
those in place, medians over the rounds. Exit code: 0 from 1 GiB on all are within the bound, 1 some are not.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
from typing import Sequence

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent

BOUND = 0.02
"""How far two programs that measure the same may be apart."""

JUDGED = 1 << 30
"""Bytes from which the network decides, and not how fast Python or C++ launches."""

IN_PLACE = 11
"""The column of nccl-tests' table with the bus bandwidth in place; the first is the size."""


def of_nccl_tests(printed: str) -> dict[int, float]:
    """Bus bandwidths by size from what one of nccl-tests' programs printed.

    Raises:
        ValueError: it has found wrong values, or has no figures.
    """
    rows = [line.split() for line in printed.splitlines() if line.strip()[:1].isdigit()]
    found = {int(row[0]): float(row[IN_PLACE]) for row in rows if len(row) > IN_PLACE + 1}
    wrong = [row[0] for row in rows if len(row) > IN_PLACE + 1 and row[IN_PLACE + 1] not in ("0", "N/A")]
    if wrong or not found:
        raise ValueError("nccl-tests printed %s" % (
            "wrong values at %s bytes" % ", ".join(wrong) if wrong else "no figures"))
    return found


def of_ours(record: dict) -> dict[int, float]:
    """Bus bandwidths by size from our JSON.

    Raises:
        ValueError: values were wrong.
    """
    if not record["verified"]:
        raise ValueError("ours has wrong values")
    return {line["bytes"]: line["busbw"] for group in record["measurements"] for line in group["rows"]}


def compared(theirs: Sequence[dict[int, float]], ours: Sequence[dict[int, float]]) -> list[tuple[int, float, float]]:
    """Size, their median and ours, where both have measured."""
    sizes = sorted(set(theirs[0]).intersection(ours[0]))
    return [(size, *(statistics.median(run[size] for run in runs) for runs in (theirs, ours))) for size in sizes]


def table(rows: Sequence[tuple[int, float, float]]) -> list[str]:
    """Markdown."""
    lines = ["| bytes | nccl-tests | ours | ours / theirs | within %g %% |" % (100 * BOUND), "|---|---|---|---|---|"]
    for size, peer, own in rows:
        verdict = ("yes" if within(peer, own) else "NO") if size >= JUDGED else ""
        lines.append("| %d | %.2f | %.2f | %.4f | %s |" % (size, peer, own, own / peer, verdict))
    return lines


def within(peer: float, own: float) -> bool:
    """Whether two figures are as good as the same."""
    return abs(own / peer - 1) <= BOUND


def main(arguments: Sequence[str]) -> int:
    """Run both in turn and print the table."""
    command = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    command.add_argument("--perf", required=True, help="words that start nccl-tests' program on all GPUs")
    command.add_argument("--launcher", required=True, help="words that start our ranks, one for each GPU")
    command.add_argument("--python", default="", help="between launcher and program; torchrun needs none")
    command.add_argument("--operation", default="all_reduce", help="what the program of --perf measures (all_reduce)")
    command.add_argument("--smallest", default="1MiB")
    command.add_argument("--largest", default="4GiB")
    command.add_argument("--rounds", type=int, default=2)
    given = command.parse_args(arguments)
    theirs, ours = [], []
    with tempfile.TemporaryDirectory() as directory:
        archive, path = os.path.join(directory, "collectives.pyz"), os.path.join(directory, "out.json")
        subprocess.run([str(CHECKOUT / "bin" / "collectives"), "--archive", archive], check=True)
        sizes = [given.smallest, given.largest]
        peer = [*shlex.split(given.perf), "-b", _theirs(sizes[0]), "-e", _theirs(sizes[1])]
        peer += ["-f", "2", "-n", "20", "-w", "5"]
        own = [*shlex.split(given.launcher), *shlex.split(given.python), archive, "--backend", "nccl", "--json", path]
        own += ["--operations", given.operation, "--smallest", sizes[0], "--largest", sizes[1]]
        for _round in range(given.rounds):
            printed = subprocess.run(peer, check=True, stdout=subprocess.PIPE, text=True).stdout
            theirs.append(of_nccl_tests(printed))
            subprocess.run(own, check=True)
            ours.append(of_ours(json.loads(pathlib.Path(path).read_text())))
    rows = compared(theirs, ours)
    print("\n".join(["", *table(rows)]))
    judged = [within(peer, own) for size, peer, own in rows if size >= JUDGED]
    return 0 if judged and all(judged) else 1


def _theirs(size: str) -> str:
    """A size as nccl-tests reads it: ``1G`` for ``1GiB``."""
    return size.replace("iB", "").replace(" ", "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
