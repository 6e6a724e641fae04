# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run several operations on one file system in an order that a random number decides, change by change.

Each operation is a process that stops before each of its changes to the file system, and wherever it waits. Whoever
drives them lets one of them go on at a time, or kills it there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any, Callable

CHANGES = ("rename", "replace", "link", "unlink", "mkdir", "rmdir", "chmod")
PATIENCE = 60.0


class Actor:
    """An operation that is run step by step; its end is ``status``, and what it gave back is in ``answer``."""

    def __init__(self, name: str, work: Callable[[], Any]) -> None:
        self.name = name
        self.status: int | None = None
        self.answer = ""
        go_read, self._go = os.pipe()
        self._stopped, stopped_write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._go)
            os.close(self._stopped)
            _run(work, go_read, stopped_write)
        os.close(go_read)
        os.close(stopped_write)
        self._await()

    def step(self) -> None:
        """Let it do its next change, up to the one after."""
        os.write(self._go, b"+")
        self._await()

    def kill(self) -> None:
        """End it where it is."""
        os.kill(self.pid, signal.SIGKILL)
        self._await()

    def _await(self) -> None:
        byte = os.read(self._stopped, 1)
        if byte == b".":
            return
        while byte:
            self.answer += byte.decode("utf-8", "replace")
            byte = os.read(self._stopped, 4096)
        self.status = os.waitpid(self.pid, 0)[1]
        os.close(self._go)
        os.close(self._stopped)


def _run(work: Callable[[], Any], go: int, stopped: int) -> None:
    """Be an actor; this process never returns."""
    me, code = os.getpid(), 1

    def stop() -> None:
        # What the operation forks itself runs freely.
        if os.getpid() == me:
            os.write(stopped, b".")
            os.read(go, 1)

    def before(function: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*arguments: Any, **options: Any) -> Any:
            stop()
            return function(*arguments, **options)
        return changed

    try:
        for name in CHANGES:
            setattr(os, name, before(getattr(os, name)))
        ended = time.monotonic() + PATIENCE
        # To wait is to let others go on; their turn takes no time of the clock.
        time.sleep = lambda _seconds: stop()
        now = time.monotonic
        time.monotonic = lambda: min(now(), ended - PATIENCE)
        stop()
        answer = work()
        code = 0
        os.write(stopped, repr(answer)[:2000].replace(".", ",").encode("utf-8", "replace"))
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.write(stopped, ("%s: %s" % (type(error).__name__, error)).replace(".", ",").encode("utf-8", "replace"))
    finally:
        os._exit(code)
