# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Programs whose file system calls fail, stop, die or take time: the library in fixtures/faults, and its variables.

The program is unchanged; LD_PRELOAD puts the library between it and the C library (ld.so(8)). Groups of calls:

``open`` (for reading), ``create`` (open with O_CREAT or O_TRUNC, mkdir, symlink, link), ``write``, ``read`` (mmap too),
``rename``, ``remove``, ``sync``, ``close``, ``mode`` (chmod, chown, utimens), ``stat`` (access and readlink too),
``list`` (opendir), ``next`` (readdir). A single function's name is a group of one.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
from typing import Mapping

SOURCE = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "faults" / "faults.c"
CHANGES = ("create", "write", "rename", "remove", "sync", "mode")
"""The groups of calls that change a file system."""

METADATA = ("open", "create", "rename", "remove", "mode", "stat", "list")
"""The groups of calls that ask a metadata server, or change something on it."""


def compiler() -> str | None:
    """The C compiler at hand, if there is one."""
    return shutil.which("cc") or shutil.which("gcc")


def build(directory: pathlib.Path) -> pathlib.Path:
    """Compile the library into a directory."""
    library = directory / "faults.so"
    subprocess.run(
        [compiler() or "cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE), "-ldl"], check=True
    )
    return library


def variables(
    library: pathlib.Path, action: str, calls: tuple[str, ...], path: os.PathLike | str = "/", at: int | None = None,
    onwards: bool = False, program: str = "", log: os.PathLike | str = "", counter: os.PathLike | str = "",
) -> dict[str, str]:
    """The environment under which programs meet a fault.

    Args:
        library: what :func:`build` made.
        action: ``error:ENOSPC`` (or another name of errno(3)), ``kill``, ``torn`` (write half, then die), ``short``
            (transfer half), ``stop`` (SIGSTOP before the call), ``delay:<microseconds>``, or ``none`` to count only.
        calls: groups or names of functions.
        path: only calls on this path, and on what begins with it.
        at: the number of the matching call that meets the fault, from 1; None for every one.
        onwards: the calls after that one meet it too.
        program: only processes with this text in their command line.
        log: a file that gets a line for each matching call: its name and the path.
        counter: a file by which all processes count together; without it each one counts for itself.
    """
    found = {
        "LD_PRELOAD": str(library), "FAULTS_ACTION": action, "FAULTS_CALLS": ",".join(calls), "FAULTS_PATH": str(path),
        "FAULTS_AT": "" if at is None else "%d%s" % (at, "+" if onwards else ""),
    }
    more: Mapping[str, object] = {"PROGRAM": program, "LOG": log, "COUNTER": counter}
    found.update({"FAULTS_" + name: str(value) for name, value in more.items() if str(value)})
    return found
