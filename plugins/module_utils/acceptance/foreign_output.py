# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Copy what a program prints that reads another account's file, which may be anything by now.

A named pipe in its place would be waited for for ever, a device without an end would fill the root.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from typing import IO, Sequence

from ..core.processes import start_program

SECONDS = 300.0
MOST_BYTES = 1 << 30
"""Within how many seconds it is copied, and how many bytes of it: far more than a run prints."""


def copy_printed(words: Sequence[str], target: IO[bytes]) -> bool:
    """Copy a program's output into a file; tell whether it ended well, in time, and before there was too much.

    OSError: it cannot be started, or the file cannot be written.
    """
    with start_program(
            list(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as program:
        whole = program.stdout is not None and _copy(program.stdout.fileno(), target)
        if not whole:
            # Another account's process behind it ends by itself, as soon as it prints to nobody.
            program.kill()
    return whole and program.returncode == 0


def _copy(source: int, target: IO[bytes]) -> bool:
    ended, copied = time.monotonic() + SECONDS, 0
    with selectors.DefaultSelector() as selector:
        selector.register(source, selectors.EVENT_READ)
        while time.monotonic() < ended and copied <= MOST_BYTES:
            if selector.select(1.0):
                block = os.read(source, 1 << 16)
                if not block:
                    return True
                copied += target.write(block)
    return False
