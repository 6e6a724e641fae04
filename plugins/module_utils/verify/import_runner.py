# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run the import probe once: a clean environment, a time limit, and nothing that survives it."""

from __future__ import annotations

import ast
import contextlib
import os
import resource
import secrets
import signal
import subprocess
import threading
import time
from typing import Any, BinaryIO, Callable, Mapping, NamedTuple, Sequence, cast

from ..core import processes
from ..core.errors import StackError
from ..core.zipapp import source_of
from . import import_probe

ABORT_SECONDS = 5.0  # that an interpreter gets to say where it hangs, before it is killed
MAX_OUTPUT = 64 * 1024  # bytes of output that are kept, from its end
DROPPED = ("PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONUSERBASE")
"""Variables that would let a user's own files in, or make the interpreter wait for input (python(1))."""

_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_SET_DEATH_SIGNAL = 1
_FATAL = "Fatal Python error"


class Plan(NamedTuple):
    """Describe what to run: modules in order, and at most so many seconds."""

    python: str
    modules: Sequence[str]
    expressions: Sequence[str]
    environment: Mapping[str, str]
    timeout: float


class Outcome(NamedTuple):
    """Describe what came of it: the events of :class:`import_probe.Probe`, and how it ended.

    ``status`` is the exit status (negative: the signal; None: it hung and was killed), ``output`` the lines that matter
    of what it wrote to stderr, or else to stdout.
    """

    events: tuple[tuple[Any, ...], ...]
    status: int | None
    output: tuple[str, ...]
    seconds: float


BIND = "SINGULARITY_BIND"
"""What a container sees of the machine, as Singularity and Apptainer take it, separated by commas."""


def environment(
    given: Mapping[str, Any], unset: Sequence[str], scratch: str, container: bool = False
) -> dict[str, str]:
    """Make the environment of a run: a minimal base, what was given, and nothing of a user.

    HOME and TMPDIR lie in the empty directory ``scratch``, which a container sees if the interpreter runs in one.
    Refused are values that are no text or number, and names that cannot be one.
    """
    result = {
        "HOME": os.path.join(scratch, "home"), "TMPDIR": os.path.join(scratch, "tmp"), "PATH": _SYSTEM_PATH,
        "LANG": "C.UTF-8",
    }
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            message = "The value of %s in environment is not a text: %r." % (name, value)
            raise StackError(message, "plan", "Put it in quotes, or name the variable in unset.")
        if not name or "=" in name or "\0" in name + str(value):
            raise StackError("%r cannot be an environment variable." % name, "plan", "Correct its name and value.")
        result[name] = str(value)
    for name in (*unset, *DROPPED):
        result.pop(name, None)
    if container:
        result[BIND] = ",".join(entry for entry in (result.get(BIND), scratch) if entry)
    # Also for processes that an import starts: a release is read-only, and stays as it is.
    result.update(PYTHONDONTWRITEBYTECODE="1", PYTHONNOUSERSITE="1")
    return result


def run(plan: Plan, scratch: str) -> Outcome:
    """Import the modules and evaluate the expressions, in the empty directory that the environment was made for.

    The probe leads a session of its own. Whatever is left of it afterwards is killed; if this process is killed, the
    probe is, too.
    """
    for name in ("home", "tmp"):
        os.mkdir(os.path.join(scratch, name), 0o700)
    report, nonce, started = os.path.join(scratch, "report"), secrets.token_hex(8), time.monotonic()
    program = ["-X", "faulthandler", "-B", "-s", "-c", source_of(import_probe)]
    try:
        process = processes.start_program(
            [plan.python, *program, report, str(len(plan.modules)), *plan.modules, *plan.expressions],
            cwd=os.path.join(scratch, "home"),
            env=dict(plan.environment, **{processes.MARKER: nonce}), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True, preexec_fn=_prepare(),
        )
    except OSError as error:
        message = "The interpreter %s cannot be started: %s." % (plan.python, error.strerror)
        raise StackError(message, "import", "Correct python, or build what provides it.", plan.python) from error
    tails = [_Tail(cast(BinaryIO, stream)) for stream in (process.stderr, process.stdout) if stream is not None]
    known = processes.read_process(process.pid)
    try:
        in_time = _wait(process, plan.timeout)
        if not in_time:
            with contextlib.suppress(OSError):
                process.send_signal(signal.SIGABRT)
            _wait(process, ABORT_SECONDS)
    finally:
        processes.stop_processes(
            lambda: processes.job_processes(nonce, process.pid, known.start_time if known else None), 0.0,
            lambda: cast(None, process.poll()),
        )
    status = process.poll() if in_time else None
    texts = [tail.text() for tail in tails]
    output = excerpt(next((text for text in texts if text.strip()), ""))
    return Outcome(read_report(report), status, output, round(time.monotonic() - started, 3))


def read_report(path: str) -> tuple[tuple[Any, ...], ...]:
    """Read the events that the probe reported; a last one that it could not finish is left out."""
    events = []
    with contextlib.suppress(FileNotFoundError), open(path, encoding="ascii", errors="replace") as stream:
        for line in stream:
            with contextlib.suppress(ValueError, SyntaxError):
                event = ast.literal_eval(line)
                if isinstance(event, tuple) and event:
                    events.append(event)
    return tuple(events)


def excerpt(text: str, most: int = import_probe.LAST_LINES) -> tuple[str, ...]:
    """Pick the lines that say why a process ended: the last, or the first of the interpreter's report of a fatal error.

    That report lists the most recent call first.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    fatal = next((index for index, line in enumerate(lines) if line.startswith(_FATAL)), None)
    return tuple(lines[-most:] if fatal is None else lines[fatal : fatal + most])


class _Tail:
    """Read a pipe to its end in the background, so that no writer waits, and keep the end."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.kept = bytearray()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while True:
                block = os.read(self.stream.fileno(), MAX_OUTPUT)
                if not block:
                    return
                self.kept += block
                del self.kept[:-MAX_OUTPUT]

    def text(self) -> str:
        """Return what was kept, once the writers are gone."""
        self.thread.join(ABORT_SECONDS)
        if not self.thread.is_alive():
            self.stream.close()
        return bytes(self.kept).decode("utf-8", "backslashreplace")


def _wait(process: subprocess.Popen, seconds: float) -> bool:
    """Tell whether the process ended in time."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _prepare() -> Callable[[], None]:
    """Prepare what the child does before it becomes the interpreter: no core dump, and an end when its parent ends."""
    prctl = None
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        prctl = ctypes.CDLL(None).prctl

    def prepare() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if prctl is not None:
            prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)

    return prepare
