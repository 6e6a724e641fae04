# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run py-rattler in a process of its own.

Its threads outlive the event loop and crash an interpreter that ends normally; the process here ends by ``_exit``. It
has its own umask, dies with its parent, and a fault in the library is an error of the module, not its end. The parent
never imports it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import sys
from typing import Any, Callable, Iterator, Mapping

from ..core.errors import StackError

PR_SET_PDEATHSIG = 1  # prctl(2): the signal that a process gets when its parent dies

Handlers = Mapping[str, Callable[..., Any]]


class Worker:
    """A forked process that answers calls of the functions that ``prepare`` gives there, by name."""

    def __init__(self, prepare: Callable[[], Handlers]) -> None:
        asked, ask = os.pipe()
        answered, answer = os.pipe()
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(ask)
            os.close(answered)
            _serve(prepare, parent, asked, answer)
        os.close(asked)
        os.close(answer)
        self.ask = os.fdopen(ask, "w", encoding="utf-8")
        self.answered = os.fdopen(answered, encoding="utf-8")

    def call(self, name: str, meanwhile: Iterator | None = None, **arguments: object) -> Any:
        """Return the answer of one function; ``meanwhile`` this process works step by step.

        Raises:
            StackError: the function raised it, or the process died.
        """
        try:
            self.ask.write(json.dumps([name, arguments]) + "\n")
            self.ask.flush()
            for _step in meanwhile or ():
                if select.select([self.answered], [], [], 0)[0]:
                    break
            answer = json.loads(self.answered.readline() or "null")
        except BrokenPipeError:
            answer = None
        if answer is None:
            message = "py-rattler ended without an answer (%s)." % describe_status(os.waitpid(self.pid, 0)[1])
            remedy = "Run it again: what is complete stays so. If it recurs, look for lack of memory."
            raise StackError(message, name, remedy)
        if "error" in answer:
            raise StackError(**answer["error"])
        return answer["result"]

    def stop(self) -> None:
        """End the process at once, whatever its threads still do."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.close()

    def dismiss(self) -> None:
        """Let the process end by itself; nothing is asked any more."""
        with contextlib.suppress(BrokenPipeError):
            self.ask.close()

    def close(self) -> None:
        """End the process once it has answered."""
        self.dismiss()
        self.answered.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_why: object) -> None:
        self.close()


def describe_status(status: int) -> str:
    """Tell how a process ended, from its wait status."""
    if os.WIFSIGNALED(status):
        return "signal %d" % os.WTERMSIG(status)
    return "exit status %d" % os.WEXITSTATUS(status)


def _serve(prepare: Callable[[], Handlers], parent: int, asked: int, answer: int) -> None:
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        os.umask(0o022)
        os.dup2(2, 1)
        gc.disable()  # the process is too short-lived to leave anything worth collecting
        with os.fdopen(asked, encoding="utf-8") as calls, os.fdopen(answer, "w", encoding="utf-8") as out:
            handlers: Handlers | None = None
            for line in calls:
                name, arguments = json.loads(line)
                try:
                    handlers = handlers or prepare()
                    reply: dict[str, Any] = {"result": handlers[name](**arguments)}
                except StackError as error:
                    said = {"message": error.message, "failed_step": error.failed_step, "remedy": error.remedy}
                    reply = {"error": {**error.details, **said, "path": error.path}}
                out.write(json.dumps(reply) + "\n")
                out.flush()
    finally:
        os._exit(0)
