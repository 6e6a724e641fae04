# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The parts of the comparison, each with its goals; the measuring is in the files of their names."""

from __future__ import annotations

import os
import pathlib
import tempfile
from collections.abc import Callable

import build_step
import bundles
import conda
import libraries
import noop_rollout
import patch_loop
import trees
from installed_tree import measure, writable
from measuring import UnavailableError
from support import faults
from table import Goal, Kind, Outcome, Row

# Every call takes a millisecond, so the whole tree would take chmod two minutes each time.
DELAYED = "transformers"


def ldd_verify(tree: pathlib.Path, _cache: pathlib.Path) -> Outcome:
    """Where every library comes from: ldd, and libtree where it is at hand."""
    outcome = Outcome()
    timing = libraries.against_ldd(tree)
    outcome.rows.append(
        Row("ldd_verify, whole tree", timing.command, timing.peer, timing.work, timing.overhead, Goal(Kind.FASTER, 15))
    )
    program = os.environ.get("LIBTREE") or "libtree"
    try:
        timing = libraries.against_libtree(tree, program)
    except UnavailableError:
        outcome.missing.append("ldd_verify with libtree: there is no %s; LIBTREE=/path/to/libtree names one." % program)
    else:
        # A path of somebody's machine has no place in a table that is kept.
        command = timing.command.replace(program, "libtree")
        goal = Goal(Kind.AT_MOST, 3)
        outcome.rows.append(
            Row("ldd_verify, next to libtree", command, timing.peer, timing.work, timing.overhead, goal)
        )
    return outcome


def tree_permissions(tree: pathlib.Path, _cache: pathlib.Path) -> Outcome:
    """Freezing, looking again, and freezing where each metadata call takes a millisecond."""
    outcome = Outcome()
    with writable(tree):
        for what, call, limit in (
            ("tree_permissions, first pass", trees.first_pass, 1.5),
            ("tree_permissions, second pass", trees.second_pass, 2),
        ):
            timing = call(tree)
            goal = Goal(Kind.AT_MOST, limit)
            outcome.rows.append(Row(what, timing.command, timing.peer, timing.work, timing.overhead, goal))
    return outcome


def slow_metadata(tree: pathlib.Path, _cache: pathlib.Path) -> Outcome:
    """Freezing where each metadata call takes a millisecond, on a part of the tree."""
    if not faults.compiler():
        raise UnavailableError("there is no C compiler to build the library that delays calls with")
    part = tree / DELAYED
    with writable(tree), tempfile.TemporaryDirectory() as scratch:
        timing = trees.delayed(part, faults.build(pathlib.Path(scratch)))
    what = "tree_permissions, 1 ms per metadata call"
    row = Row(what, timing.command, timing.peer, timing.work, None, Goal(Kind.FASTER, 8))
    note = "1 ms per metadata call: on the %d files of %s, as chmod takes minutes for all; one library under both."
    return Outcome([row], [note % (measure(part).files, DELAYED)])


def tree_manifest(tree: pathlib.Path, _cache: pathlib.Path) -> Outcome:
    """Digests of all files."""
    timing = trees.manifest(tree)
    row = Row(
        "tree_manifest, %.1f GB" % (measure(tree).bytes / 1e9), timing.command, timing.peer, timing.work,
        timing.overhead, Goal(Kind.AT_MOST, 1.3),
    )
    return Outcome([row])


def drift(tree: pathlib.Path, _cache: pathlib.Path) -> Outcome:
    """Comparing a tree with its record, at both levels."""
    outcome = Outcome()
    for what, call, limit in (("drift, quick", trees.quick, 1.5), ("drift, full", trees.full, 1.3)):
        timing = call(tree)
        goal = Goal(Kind.AT_MOST, limit)
        outcome.rows.append(Row(what, timing.command, timing.peer, timing.work, timing.overhead, goal))
    return outcome


def build(_tree: pathlib.Path, _cache: pathlib.Path) -> Outcome:
    """Processor time of what build_step adds to a build."""
    by_hand, added, notes = build_step.compare()
    if not by_hand:
        raise UnavailableError(" ".join(notes))
    goal = Goal(Kind.BELOW_PERCENT, build_step.GOAL)
    row = Row("build_step, processor time", "the same script by hand, xargs -P2 g++", by_hand, added, None, goal)
    return Outcome([row], ["build_step: ours is what supervisor and followers add. %s." % "; ".join(notes)])


PARTS: dict[str, Callable[[pathlib.Path, pathlib.Path], Outcome]] = {
    # First, before others remove trees: see conda.Bed.place.
    "conda": conda.compare,
    "ldd_verify": ldd_verify,
    "tree_permissions": tree_permissions,
    "slow_metadata": slow_metadata,
    "tree_manifest": tree_manifest,
    "drift": drift,
    "patch_series": lambda _tree, cache: patch_loop.compare(cache),
    "build_step": build,
    "bundles": lambda _tree, cache: bundles.compare(cache),
    "rollout": lambda _tree, _cache: noop_rollout.compare(),
}
"""By name; each compares on the tree and may keep things in the cache."""
