# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How long it takes to say where every library of a tree comes from, next to ldd for each file and to libtree.

The peers get their files from find, as an operator would type it, and its time is theirs; ours looks into every file.
Peer and work run in turn, each in processes of its own, after one round that fills the caches; times are medians.
``UnavailableError`` names what is not there to compare with.
"""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Callable, NamedTuple

from measuring import require
from plays import collection_environment

RUNS = 5
FILES = r"find . -type f \( -name '*.so*' -o -perm -0100 \)"
WORK = """
import os, sys, time
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify.library_rules import parse_rules
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify.libraries import verify
before, begun = os.times(), time.perf_counter()
outcome = verify(parse_rules({}), sys.argv[1:])
took, after = time.perf_counter() - begun, os.times()
print(took, sum(after[:4]) - sum(before[:4]), len(outcome.scan.objects))
"""


class Timing(NamedTuple):
    """Medians, in seconds, what was compared with, and how many ELF objects the tree has."""

    peer: float
    work: float
    overhead: float
    command: str
    objects: int


def against_ldd(tree: os.PathLike | str, processor: bool = False) -> Timing:
    """Next to one ldd for each file.

    Args:
        tree: a directory, which is only read.
        processor: compare the time of processors, user and system, instead of the time that passes.
    """
    return _in_turn(tree, FILES + r" -exec ldd {} \;", ("find", "ldd"), processor, 3)


def against_libtree(tree: os.PathLike | str, program: os.PathLike | str = "libtree", processor: bool = False) -> Timing:
    """Next to libtree, which takes many files at once; ``program`` is its path or its name on PATH."""
    command = "%s -print0 | xargs -0 %s" % (FILES, shlex.quote(str(program)))
    return _in_turn(tree, command, ("find", "xargs", str(program)), processor, RUNS)


def _in_turn(
    tree: os.PathLike | str, command: str, programs: tuple[str, ...], processor: bool, runs: int
) -> Timing:
    require(programs)
    top = os.path.realpath(tree)
    peers, works, overheads = [], [], []
    objects = 0
    with tempfile.TemporaryDirectory() as scratch:
        home = pathlib.Path(scratch)
        environment = collection_environment(home)
        for run in range(runs + 1):
            peer = _timed(lambda: _peer(command, top, home), processor)
            script = [sys.executable, "-c", WORK, top]
            words = subprocess.check_output(script, env=environment).split()
            objects = int(words[2])
            if run:
                peers.append(peer)
                works.append(float(words[processor]))
        nothing = home / "nothing"
        nothing.mkdir()
        for _run in range(3):
            overheads.append(_timed(lambda: _module(nothing, environment), processor))
    return Timing(statistics.median(peers), statistics.median(works), statistics.median(overheads), command, objects)


def _timed(call: Callable[[], None], processor: bool) -> float:
    """The seconds that a call takes, its processes included."""
    before, begun = os.times(), time.perf_counter()
    call()
    took, after = time.perf_counter() - begun, os.times()
    return sum(after[:4]) - sum(before[:4]) if processor else took


def _peer(command: str, top: str, home: pathlib.Path) -> None:
    """Run the peer. What it finds missing is its exit status, so its output has to show that it did something."""
    output = home / "output"
    with output.open("wb") as stream:
        subprocess.run(
            ["/bin/sh", "-c", command], cwd=top, stdout=stream, stderr=subprocess.DEVNULL, check=False
        )
    if b".so" not in output.read_bytes():
        raise RuntimeError("%s did not say where the libraries of %s come from." % (command, top))


def _module(tree: pathlib.Path, environment: dict[str, str]) -> None:
    """A whole ``ansible`` call that verifies a directory with nothing in it."""
    command = [os.path.join(os.path.dirname(sys.executable), "ansible"), "localhost", "-c", "local",
               "-m", "hpcml.torchstack.ldd_verify", "-a", json.dumps({"paths": [str(tree)]})]
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
