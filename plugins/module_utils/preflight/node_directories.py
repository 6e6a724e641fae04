# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Try the directories of a node: that for temporary files, and what it shares with the login side.

It travels as part of :mod:`.node_facts`: Python 3.8 or later, and nothing of this collection.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import time
from typing import Any, Mapping

from .node_capacity import read
from .node_command import run


def temporary(path: str) -> dict[str, Any]:
    """Try a directory for temporary files: write, run a program, bind a socket.

    Returns:
        ``path``, ``problem`` (why nothing can be written; empty where it can), ``runs`` (whether a program starts from
        there), ``socket`` (why no socket can be bound there; empty where one can), ``free`` (bytes).
    """
    facts: dict[str, Any] = {"path": path, "problem": "", "runs": None, "socket": "", "free": None}
    try:
        with tempfile.TemporaryDirectory(prefix="torchstack.", dir=path) as directory:
            room = os.statvfs(directory)
            facts["free"] = room.f_bavail * room.f_frsize
            program = os.path.join(directory, "program")
            with open(program, "w", encoding="utf-8") as stream:
                stream.write("#!/bin/sh\nexit 0\n")
            os.chmod(program, 0o755)
            facts["runs"] = run([program]).code == 0
            with socket.socket(socket.AF_UNIX) as listener:
                try:
                    listener.bind(os.path.join(directory, "s"))
                except OSError as error:
                    facts["socket"] = error.strerror or str(error)
    except OSError as error:
        facts["problem"] = error.strerror or str(error)
    return facts


def shared(question: Mapping[str, Any]) -> dict[str, Any]:
    """Look for what was written on the login side, and write in the release.

    Args:
        question: ``nonce_file``, ``nonce``, ``prefix``, ``wait`` (seconds for a file system that is late).

    Returns:
        ``nonce`` (what the file says; empty where it does not appear), ``waited`` (seconds), ``prefix`` (whether there
        is such a directory), ``problem`` (why it cannot be written; empty where it can).
    """
    begin = time.monotonic()
    nonce = read(question["nonce_file"]).strip()
    while nonce != question["nonce"] and time.monotonic() - begin < question["wait"]:
        time.sleep(0.5)
        # Reading a directory makes NFS look at it anew.
        with contextlib.suppress(OSError):
            os.listdir(os.path.dirname(question["nonce_file"]))
        nonce = read(question["nonce_file"]).strip()
    waited = round(time.monotonic() - begin, 1)
    try:
        descriptor, path = tempfile.mkstemp(prefix=".torchstack.", dir=question["prefix"])
        os.close(descriptor)
        os.unlink(path)
        problem = ""
    except OSError as error:
        problem = error.strerror or str(error)
    return {"nonce": nonce, "waited": waited, "prefix": os.path.isdir(question["prefix"]), "problem": problem}
