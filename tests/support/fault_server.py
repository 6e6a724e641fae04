# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A Python process that is killed at its n-th change of a file system, for every n, without starting anew each time.

The process runs under the library of faults (faults.py) and forks a copy for each run. All copies count in one
file, which is set so that the n-th matching call is the one that the library waits for.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any, Sequence

from support import faults

_HIT = 1_000_000

_SERVER = """
import json, os, sys, traceback
%s
for line in sys.stdin:
    counter, before, arguments = json.loads(line)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        try:
            with open(counter, "r+b", buffering=0) as stream:
                stream.write(before.to_bytes(8, sys.byteorder))
            result = json.dumps(work(**arguments))
        except BaseException:
            result = json.dumps({"crashed": traceback.format_exc()})
        with os.fdopen(writing, "w") as stream:
            stream.write(result)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        result = stream.read()
    os.waitpid(child, 0)
    print(result or "null", flush=True)
"""


class FaultServer:
    """Runs ``work(**arguments)`` of a text of Python again and again, each in a process of its own."""

    def __init__(
        self, library: pathlib.Path, program: str, scratch: pathlib.Path, path: os.PathLike | str,
        action: str = "kill", calls: Sequence[str] = faults.CHANGES,
    ) -> None:
        self._counter = scratch / ("counter-" + action)
        environment = faults.variables(library, action, tuple(calls), path=path, at=_HIT, counter=self._counter)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVER % program], env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1", **environment),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, at: int | None = None, **arguments: Any) -> Any:
        """What ``work`` returns, or None where it was killed.

        Args:
            at: the number of the call, from 1, that meets the fault; None for no fault.
            arguments: of ``work``; plain data.
        """
        assert self._process.stdin and self._process.stdout
        before = 2 * _HIT if at is None else _HIT - at
        self._process.stdin.write(json.dumps([str(self._counter), before, arguments]) + "\n")
        self._process.stdin.flush()
        result = json.loads(self._process.stdout.readline())
        assert not (isinstance(result, dict) and "crashed" in result), result["crashed"]
        return result

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
