# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run programs and functions of the health collector with time limits: a sick node must not hang it.

Runs on compute nodes with the system's own Python, 3.6 or later, without this collection around it.
"""

import contextlib
import errno
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

MAX_OUTPUT_BYTES = 8 << 20
"""Limit of one program's output; `nvidia-smi -q -x` prints about 30 KiB for each GPU."""

ASK_SECONDS = 0.3
"""Between the two signals to what shall end, for it to end what it has started itself."""

KILL_SECONDS = 3.0
"""For the end of what was killed. What still lives then waits in the kernel, and is left behind."""

PATHS = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin", "/opt/cray/bin")
"""Directories that are searched after PATH, in which a batch job may lack those of administrators."""

_RUNNING = set()  # type: set
"""Process groups that this process has started and not seen the end of."""


CLEANERS = []  # type: List[Callable[[], None]]
"""Clean-up of a task that is ended before its time."""


class _Depth:
    """Hold whether this process is a child of :func:`run_apart`."""

    inner = False


def find_program(name: str, path: Optional[str] = None) -> Tuple[str, str]:
    """Find a program: its path and ``""``, or ``""`` and ``missing``, or ``denied`` where a file may not be run."""
    denied = ""
    own = (os.environ.get("PATH") or "") if path is None else path
    for directory in own.split(":") + list(PATHS if path is None else ()):
        candidate = os.path.join(directory, name) if directory else ""
        if candidate and os.path.isfile(candidate):
            if os.access(candidate, os.X_OK):
                return candidate, ""
            denied = "denied"
    return "", denied or "missing"


def run(words: Sequence[str], seconds: float, path: Optional[str] = None) -> Dict[str, Any]:
    """Run a program without input, and end it with its children after its time.

    Returns:
        ``command``, ``status`` (``ok``, ``failed``, ``missing``, ``denied``, ``hung``, ``endless``), ``code``,
        ``output``, ``error`` (the end of what it said on standard error, or why it did not start), ``seconds``.
    """
    begin = time.time()
    answer = {"command": " ".join(words), "status": "", "code": None, "output": "", "error": ""}  # type: Dict[str, Any]
    program, answer["status"] = find_program(words[0], path)
    if program:
        try:
            # core/processes.py is not used here: this file travels without the collection.
            process = subprocess.Popen(  # pylint: disable=ansible-bad-function # see above
                [program, *words[1:]], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env=dict(os.environ, LC_ALL="C", LANG="C"), start_new_session=True, close_fds=True)
        except OSError as error:
            denied = error.errno in (errno.EACCES, errno.EPERM)
            answer.update(status="denied" if denied else "failed", error=error.strerror or str(error))
        else:
            answer.update(_collect_output(process, begin + seconds))
    answer["seconds"] = round(time.time() - begin, 3)
    return answer


def _collect_output(process: Any, until: float) -> Dict[str, Any]:
    """Read what a program prints up to its end or that time."""
    _RUNNING.add(process.pid)
    said = {process.stdout.fileno(): [], process.stderr.fileno(): []}  # type: Dict[int, List[bytes]]
    names = {process.stdout.fileno(): "output", process.stderr.fileno(): "error"}
    open_ends, size, status = set(said), 0, ""
    while open_ends and not status:
        left = until - time.time()
        if process.poll() is not None:
            # A child that it has left behind may hold the pipes for ever.
            left = min(left, 0.2)
        ready = select.select(list(open_ends), [], [], max(0.0, min(left, 0.2)))[0]
        for descriptor in ready:
            piece = os.read(descriptor, 65536)
            said[descriptor].append(piece)
            size += len(piece)
            if not piece:
                open_ends.discard(descriptor)
        if size > MAX_OUTPUT_BYTES:
            status = "endless"
        elif not ready and process.poll() is not None:
            break
        elif time.time() > until:
            status = "hung"
    if not status:
        status = _wait_for_end(process, max(0.1, until - time.time()))
    if status in ("hung", "endless"):
        _kill(process.pid)
        if _wait_for_end(process, KILL_SECONDS) == "hung":
            status = "hung"
    _RUNNING.discard(process.pid)
    for stream in (process.stdout, process.stderr):
        stream.close()
    texts = {names[key]: b"".join(value).decode("utf-8", "replace") for key, value in said.items()}
    code = process.returncode
    if not status:
        status = "ok" if code == 0 else "denied" if code == 126 else "failed"
    return {"status": status, "code": code, "output": texts["output"], "error": texts["error"][-2000:].strip()}


def _wait_for_end(process: Any, seconds: float) -> str:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return "hung"
    return ""


def _kill(group: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(OSError):
        os.killpg(group, number)


def end_all(_number: int = 0, _frame: Any = None) -> None:
    """End this process with all that it has started; a handler for SIGTERM and SIGINT."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for group in list(_RUNNING):
            _kill(group, number)
        if number == signal.SIGTERM and _RUNNING:
            # Children have this handler, too, and may have a child themselves.
            time.sleep(ASK_SECONDS if _Depth.inner else 3 * ASK_SECONDS)
    for clean in CLEANERS:
        clean()
    os._exit(143)


def run_apart(tasks: Mapping[str, Callable[[], Any]], seconds: float) -> Dict[str, Dict[str, Any]]:
    """Call functions at once, each in its own process, so that one that hangs delays no other.

    Reading a file of the kernel can hang as well as a program can: a driver may hold a lock for ever.

    Args:
        tasks: name -> function, whose result can be JSON.

    Returns:
        name -> ``result`` (None where there is none), ``problem`` (why there is none), and ``seconds``.
    """
    begin = time.time()
    answers = {name: {"result": None, "problem": "", "seconds": 0.0} for name in tasks}  # type: Dict[str, Any]
    waiting = {}  # type: Dict[int, Tuple[str, int, List[bytes]]]
    sys.stdout.flush()
    for name, task in tasks.items():
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _run_child(task, writing)
        os.close(writing)
        _RUNNING.add(child)
        waiting[reading] = (name, child, [])
    while waiting and time.time() < begin + seconds:
        for descriptor in select.select(list(waiting), [], [], min(0.5, seconds))[0]:
            name, child, pieces = waiting[descriptor]
            piece = os.read(descriptor, 1 << 20)
            pieces.append(piece)
            if not piece:
                answers[name].update(_parse_answer(b"".join(pieces)), seconds=round(time.time() - begin, 3))
                os.close(descriptor)
                del waiting[descriptor]
                _reap(child, KILL_SECONDS)
    # SIGTERM first: they end what they have started, and remove what they have made. All of them at once, as
    # one that hangs in the kernel takes its time.
    left = [child for _name, child, _pieces in waiting.values()]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for child in left:
            with contextlib.suppress(OSError):
                os.kill(child, number)
        until = time.time() + KILL_SECONDS / 3
        left = [child for child in left if not _reap(child, until - time.time())]
    for descriptor, (name, _child, _pieces) in waiting.items():
        os.close(descriptor)
        late = "it did not end within %g seconds" % seconds
        answers[name].update(problem=late, seconds=round(time.time() - begin, 3))
    return answers


def _run_child(task: Callable[[], Any], writing: int) -> None:
    """Call the function in a child of :func:`run_apart`, and send its result."""
    code = 1
    try:
        _RUNNING.clear()
        _Depth.inner = True
        signal.signal(signal.SIGTERM, end_all)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.setsid()
        # A launcher waits for the end of its output: one that hangs for ever must not hold it.
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        try:
            said = {"result": task()}  # type: Dict[str, Any]
        except Exception as error:
            said = {"problem": "%s: %s" % (type(error).__name__, error)}
        with os.fdopen(writing, "wb") as stream:
            stream.write(json.dumps(said).encode("utf-8"))
        code = 0
    finally:
        os._exit(code)


def _parse_answer(text: bytes) -> Dict[str, Any]:
    try:
        said = json.loads(text.decode("utf-8"))
    except ValueError:
        said = None
    return said if isinstance(said, dict) else {"problem": "it ended without an answer"}


def _reap(child: int, seconds: float) -> bool:
    """Wait for the end of a child; return whether it has ended."""
    until = time.time() + seconds
    while True:
        try:
            if os.waitpid(child, os.WNOHANG)[0]:
                _RUNNING.discard(child)
                return True
        except ChildProcessError:
            _RUNNING.discard(child)
            return True
        if time.time() > until:
            return False
        time.sleep(0.01)


def read_text(path: str, most: int = 1 << 20) -> Optional[str]:
    """Read a small file of the kernel, without the space around its text; None where it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return stream.read(most).decode("utf-8", "replace").strip()
    except OSError:
        return None


def list_names(path: str) -> List[str]:
    """List the names in a directory, sorted; empty where it cannot be read."""
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []
