# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How long a tree takes to be frozen, looked at again and recorded, next to what does the same without Ansible.

Each function returns seconds: the peer's, those of the work in ours, and what Ansible and the module add to the work;
and the peer's command. Peer and work run in turn, each in a process of its own, after one round that fills the caches;
all three are medians. The tree is thawed and frozen; let it be a copy. ``UnavailableError`` names what is not there to
compare with.
"""

from __future__ import annotations

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Callable, Mapping, NamedTuple

from measuring import require
from plays import collection_environment
from support import faults

RUNS = 5
DELAY = "delay:1000"
_COMPARE = """
import os, sys, time
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import manifest
record = sys.argv[1] + ".manifest.json"
since = os.stat(record).st_mtime_ns
begun = time.perf_counter()
found = manifest.compare(
    manifest.Request(sys.argv[1], os.path.dirname(sys.argv[1]), record, %s, limit=200, since=since))
seconds = time.perf_counter() - begun
if not found["matches"] or found["touched_total"]:
    raise SystemExit("the tree is not as recorded")
print(seconds)
"""
WORK = {
    "tree_permissions": """
import os, sys, time
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import policy as modes
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import permissions as tree
begun = time.perf_counter()
tree.Pass(modes.Policy("frozen"), True).over(*os.path.split(sys.argv[1]))
print(time.perf_counter() - begun)
""",
    "tree_manifest": """
import os, sys, time
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import manifest
begun = time.perf_counter()
manifest.record(manifest.Request(sys.argv[1], os.path.dirname(sys.argv[1]), sys.argv[1] + ".manifest.json"), True)
print(time.perf_counter() - begun)
""",
    "quick": _COMPARE % False,
    "full": _COMPARE % True,
}
MODULES = {"quick": "tree_manifest", "full": "tree_manifest"}
"""The module that a work is part of, where that has another name."""

OPTIONS = {
    "tree_permissions": {"state": "frozen"}, "tree_manifest": {}, "quick": {"state": "compared", "content": "quick"},
    "full": {"state": "compared"},
}


class Timing(NamedTuple):
    """Medians, in seconds, and what was compared with."""

    peer: float
    work: float
    overhead: float
    command: str


def first_pass(tree: os.PathLike | str) -> Timing:
    """Freezing a writable tree next to ``chmod -R a-w,a+rX``."""
    return _in_turn("tree_permissions", tree, "chmod -R a-w,a+rX .", ("chmod",), before=_thaw)


def second_pass(tree: os.PathLike | str) -> Timing:
    """Looking at a frozen tree again next to ``find -perm /222``."""
    _shell("chmod -R a-w,a+rX .", tree, {})
    return _in_turn("tree_permissions", tree, "find . -perm /222", ("find", "chmod"))


def delayed(tree: os.PathLike | str, library: pathlib.Path) -> Timing:
    """Freezing where each call that asks for metadata takes a millisecond more, for both; what the module adds does not
    depend on that and is 0 here."""
    slow = faults.variables(library, DELAY, faults.METADATA, os.path.realpath(tree))
    return _in_turn("tree_permissions", tree, "chmod -R a-w,a+rX .", ("chmod",), _thaw, slow, runs=3, module=False)


def manifest(tree: os.PathLike | str) -> Timing:
    """Recording a tree with all digests next to openssl on two processors."""
    command = "find . -type f -print0 | xargs -0 -P2 openssl dgst -sha256 -r"
    return _in_turn("tree_manifest", tree, command, ("find", "xargs", "openssl"), before=_forget)


def quick(tree: os.PathLike | str) -> Timing:
    """Comparing a tree with its record by what its directories tell, next to ``find -ls``."""
    return _in_turn("quick", tree, "find . -ls", ("find",), before=_remember)


def full(tree: os.PathLike | str) -> Timing:
    """The same with all digests next to openssl on two processors."""
    command = "find . -type f -print0 | xargs -0 -P2 openssl dgst -sha256 -r"
    return _in_turn("full", tree, command, ("find", "xargs", "openssl"), before=_remember)


def _remember(tree: str) -> None:
    """Record the tree once."""
    if not os.path.exists(tree + ".manifest.json"):
        with tempfile.TemporaryDirectory() as scratch:
            subprocess.run(
                [sys.executable, "-c", WORK["tree_manifest"], tree], env=collection_environment(pathlib.Path(scratch)),
                stdout=subprocess.DEVNULL, check=True,
            )


def _thaw(tree: str) -> None:
    _shell("chmod -R u+w .", tree, {})


def _forget(tree: str) -> None:
    pathlib.Path(tree + ".manifest.json").unlink(missing_ok=True)


def _in_turn(
    module_name: str, tree: os.PathLike | str, command: str, programs: tuple[str, ...],
    before: Callable[[str], None] = lambda _tree: None, variables: Mapping[str, str] | None = None, runs: int = RUNS,
    module: bool = True,
) -> Timing:
    require(programs)
    top = os.path.realpath(tree)
    peers, works, overheads = [], [], []
    with tempfile.TemporaryDirectory() as scratch:
        home = pathlib.Path(scratch)
        environment = collection_environment(home)
        try:
            for run in range(runs + 1):
                before(top)
                peer = _shell(command, top, variables or {})
                before(top)
                script = [sys.executable, "-c", WORK[module_name], top]
                work = float(subprocess.check_output(script, env={**environment, **(variables or {})}))
                if run:
                    peers.append(peer)
                    works.append(work)
            for _run in range(3 if module else 0):
                before(top)
                overheads.append(_overhead(module_name, top, home, environment))
        finally:
            _forget(top)
    overhead = statistics.median(overheads) if overheads else 0.0
    return Timing(statistics.median(peers), statistics.median(works), overhead, command)


def _shell(command: str, tree: os.PathLike | str, variables: Mapping[str, str]) -> float:
    begun = time.perf_counter()
    subprocess.run(
        ["/bin/sh", "-c", command], cwd=tree, env={**os.environ, **variables}, stdout=subprocess.DEVNULL, check=True
    )
    return time.perf_counter() - begun


def _overhead(module_name: str, top: str, home: pathlib.Path, environment: Mapping[str, str]) -> float:
    """The seconds of a whole ``ansible`` call beside those that the module says its work took."""
    arguments = {"path": top, "root": os.path.dirname(top), **OPTIONS[module_name]}
    module_name = MODULES.get(module_name, module_name)
    if module_name == "tree_manifest":
        arguments["record"] = top + ".manifest.json"
    command = [os.path.join(os.path.dirname(sys.executable), "ansible"), "localhost", "-c", "local", "-t", str(home),
               "-m", "hpcml.torchstack." + module_name, "-a", json.dumps(arguments)]
    begun = time.perf_counter()
    subprocess.run(command, env=dict(environment), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begun - json.loads((home / "localhost").read_text())["seconds"]
