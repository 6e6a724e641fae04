# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Compile bytecode of Python files that a thaw changed, by the release's own interpreter."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any, Mapping, NamedTuple, Sequence

from ..core.errors import StackError
from ..core.processes import run_program
from ..trees.manifest_entry import Entry
from .thaw_files import Stage, digest_of, files_below
from .thaw_paths import Named, is_compiled, source_of

STEP = "compile"
TIMEOUT = 1800
"""Seconds for all files together."""

# Judges bytecode as the import system does (magic number, time, size), unless the source is known to be another one.
# Compiles into a directory of its own: as the freeze compiles, so with the source's own path in it.
PROGRAM = r"""
import importlib.util, json, os, py_compile, struct, sys
asked = json.load(sys.stdin)
found = {}
for number, (name, changed) in enumerate(asked["sources"]):
    source = os.path.join(asked["prefix"], name)
    target = importlib.util.cache_from_source(source, optimization="")
    status = os.stat(source)
    expected = struct.pack(
        "<4sLLL", importlib.util.MAGIC_NUMBER, 0, int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF)
    try:
        with open(target, "rb") as stream:
            current = not changed and stream.read(16) == expected
    except FileNotFoundError:
        current = False
    if current:
        continue
    compiled = os.path.join(asked["stage"], "%d.pyc" % number) if asked["stage"] else ""
    entry = {"target": os.path.relpath(target, asked["prefix"]), "compiled": compiled, "reason": ""}
    try:
        if compiled:
            py_compile.compile(source, compiled, doraise=True, optimize=0,
                               invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP)
        else:
            with open(source, "rb") as stream:
                compile(stream.read(), source, "exec", dont_inherit=True, optimize=0)
    except (py_compile.PyCompileError, SyntaxError, ValueError) as error:
        entry["reason"] = " ".join(str(getattr(error, "exc_value", error)).split())[:200]
    found[name] = entry
print(json.dumps(found))
"""


class Bytecode(NamedTuple):
    """What has to become of the bytecode."""

    compiled: dict[str, str]
    """Path of the bytecode in the release to the file that was compiled; empty where nothing was."""
    removed: list[str]
    """Bytecode of sources that are gone."""

    @property
    def paths(self) -> list[str]:
        """Return all of it."""
        return sorted([*self.compiled, *self.removed])


def compile_outdated(
    stage: Stage, several: Sequence[Named], recorded: Mapping[str, Entry], python: str, apply: bool
) -> Bytecode:
    """Look for bytecode that is not its source's any more, and compile it into the stage; nothing without ``python``.

    Raises StackError: a file that was changed cannot be compiled, or the interpreter does not run.
    """
    if not python:
        return Bytecode({}, [])
    sources = []
    for path, _found in files_below(stage.prefix, several):
        if is_compiled(path):
            before = recorded.get(path)
            same = before is not None and before.sha256 == digest_of(os.path.join(stage.prefix, path))
            sources.append((path, not same))
    # What could not be compiled when the release was frozen has no bytecode there, and need not have any now.
    judged = _ask(stage, sources, python, apply)
    changed = {path for path, differs in sources if differs}
    broken = {path: entry["reason"] for path, entry in judged.items() if entry["reason"] and path in changed}
    if broken:
        path = sorted(broken)[0]
        raise StackError(
            "%s cannot be compiled by the release's Python%s: %s." % (
                path, " (nor can %d others)" % (len(broken) - 1) if len(broken) > 1 else "", broken[path]),
            STEP, "Correct it; the release stays thawed until then.", os.path.join(stage.prefix, path))
    compiled = {entry["target"]: entry["compiled"] for entry in judged.values() if not entry["reason"]}
    gone = [path for path in recorded
            if source_of(path) in recorded and not os.path.lexists(os.path.join(stage.prefix, source_of(path)))
            and os.path.lexists(os.path.join(stage.prefix, path))]
    return Bytecode(compiled, sorted(gone))


def _ask(stage: Stage, sources: Sequence[tuple[str, bool]], python: str, apply: bool) -> dict[str, Any]:
    if not sources:
        return {}
    question = {"prefix": stage.prefix, "sources": sources, "stage": stage.directory if apply else ""}
    try:
        # -I: no variable of the environment says where bytecode goes, or which modules are imported meanwhile. -S: nor
        # does a file of the release, which may be what is being fixed.
        ran = run_program(
            [python, "-I", "-S", "-W", "ignore", "-c", PROGRAM], input=json.dumps(question), capture_output=True,
            text=True, timeout=TIMEOUT)
        if ran.returncode == 0:
            return json.loads(ran.stdout.splitlines()[-1])
        reason = (ran.stderr.strip().splitlines() or ["exit code %d" % ran.returncode])[-1]
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        reason = str(error)
    raise StackError(
        "The release's interpreter %s did not look at the bytecode: %s." % (python, reason), STEP,
        "See whether it runs, or name another one as thaw_python.", python)
