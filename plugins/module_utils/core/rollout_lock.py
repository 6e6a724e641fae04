# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Lock a release for one rollout: a record in a file names the process that rolls out.

The lock appears by link(2), which is atomic on local and on network file systems, and goes by unlink(2). A record whose
process has ended is replaced under a second lock of the same kind, named after the record's token, so that of two
replacers only one acts, and acts on the very record that was judged. Process ids only have a meaning on their own host,
in their own boot and process id namespace: elsewhere nobody is declared dead.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import socket
import tempfile
import time
import uuid
from typing import Any, Iterable, NamedTuple

from .account import account_name
from .clock import utc
from .digests import text_of
from .errors import StackError
from .processes import read_process

#: Seconds to wait for another process that is about to replace the same record, or is still writing one.
PATIENCE = 2.0

ALIVE, DEAD, UNKNOWN = "alive", "dead", "unknown"

_WITHOUT_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_IDENTITY = ("host", "machine", "boot_id", "pid_namespace", "pid", "start_time")
_FIELDS = (*_IDENTITY, "token", "user", "started", "since", "playbook")

Record = Any


class Place(NamedTuple):
    """Where process ids are counted: a host, one boot of it, one process id namespace."""

    host: str
    machine: str
    boot_id: str
    pid_namespace: str


class Taken(NamedTuple):
    """A lock that is held now."""

    record: Record
    replaced: Record | None
    """The record of an ended process that was there before."""
    again: bool
    """Whether the same process had it already."""


class LockHeld(Exception):
    """Somebody else has the lock, or may have it."""

    def __init__(self, record: Record, path: str, verdict: str) -> None:
        super().__init__(path)
        self.record = record
        self.path = path
        self.verdict = verdict


def this_place() -> Place:
    """Describe this host and boot; fields that the system does not tell are empty."""
    machine = text_of("/etc/machine-id").strip()
    # machine-id(5) asks not to show the id itself to others.
    hidden = hashlib.sha256(("hpcml.torchstack " + machine).encode("ascii", "replace")).hexdigest()[:16]
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    boot_id = text_of("/proc/sys/kernel/random/boot_id").strip()
    return Place(socket.gethostname(), hidden if machine else "", boot_id, namespace)


def describe_process(pid: int, playbook: str) -> Record:
    """Identify a process of this host and what it runs, as the lock records it for whoever is refused."""
    process = read_process(pid)
    record = this_place()._asdict()
    record.update(
        pid=pid, start_time=str(process.start_time) if process else "",
        started=_started(process.start_time) if process else "", user=account_name(os.geteuid()), playbook=playbook,
    )
    return dict(record)


def _started(ticks: int) -> str:
    for line in text_of("/proc/stat").splitlines():
        if line.startswith("btime "):
            return utc(int(line.split()[1]) + ticks / os.sysconf("SC_CLK_TCK"))
    return ""


def same_holder(one: Record, other: Record) -> bool:
    """Tell whether two records name one and the same process."""
    return all(one.get(key) == other.get(key) for key in _IDENTITY)


def judge(record: Record, place: Place) -> str:
    """Judge whether the process that a record names still runs: ``alive``, ``dead``, or ``unknown`` elsewhere."""
    if record["host"] != place.host or record["machine"] != place.machine or not record["boot_id"]:
        return UNKNOWN
    if record["boot_id"] != place.boot_id:
        return DEAD if place.boot_id else UNKNOWN
    if record["pid_namespace"] != place.pid_namespace:
        return UNKNOWN
    try:
        os.kill(record["pid"], 0)
    except ProcessLookupError:
        return DEAD
    except OSError:
        # Another account's process: it exists. Where /proc hides it (hidepid), that is all there is to know.
        pass
    process = read_process(record["pid"])
    if process is None:
        return ALIVE
    return DEAD if process.ended or str(process.start_time) != record["start_time"] else ALIVE


def read_lock(path: str) -> Record | None:
    """Read the record in a lock file; None when there is no such file, StackError: it is no record, and stays so."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with open(path, "rb") as stream:
                record = json.loads(stream.read().decode("utf-8"))
            if isinstance(record, dict) and all(key in record for key in _FIELDS) and isinstance(record["pid"], int):
                return record
        except FileNotFoundError:
            return None
        except ValueError:
            pass
        # Without hard links the file is there a moment before its content.
        if time.monotonic() > deadline:
            raise StackError(
                "%s is not a lock record." % path, "lock",
                "Make sure that nobody is rolling out this release, remove that file, and run this again.", path,
            )
        time.sleep(0.05)


def acquire(path: str, holder: Record, place: Place, dead: Iterable[str] = ()) -> Taken:
    """Take the lock, replacing the record of a process that has ended here, or is known to be dead by its token.

    LockHeld: another process has it, or it cannot be told whether that process is alive. StackError: the lock file is
    not a record, or changes hands all the time. OSError: the directory, which has to exist, cannot be written.
    """
    known_dead = frozenset(dead)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() <= deadline + PATIENCE:
        mine = dict(holder, token=uuid.uuid4().hex[:16], since=utc(time.time()))
        current = read_lock(path)
        if current is None:
            if _create(path, mine):
                return Taken(mine, None, False)
            continue
        if same_holder(current, holder):
            return Taken(current, None, True)
        verdict = DEAD if current["token"] in known_dead else judge(current, place)
        if verdict != DEAD:
            raise LockHeld(current, path, verdict)
        claim = "%s.%s" % (path, current["token"])
        try:
            acquire(claim, holder, place, known_dead)
        except LockHeld:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
            continue
        try:
            again = read_lock(path)
            if again is not None and again["token"] == current["token"]:
                _replace(path, mine)
                return Taken(mine, current, False)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(claim)
    raise StackError("%s changes hands all the time." % path, "lock", "Run this again in a minute.", path)


def release(path: str, holder: Record) -> tuple[bool, Record | None]:
    """Give the lock back if ``holder`` has it; return whether it was, and the record that was found."""
    current = read_lock(path)
    if current is None or not same_holder(current, holder):
        return False, current
    os.unlink(path)
    return True, current


def make_directory(path: str) -> None:
    """Create a directory with its parents, each readable by everybody whatever the umask of the caller."""
    if not os.path.isdir(path):
        make_directory(os.path.dirname(path))
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)
            os.chmod(path, 0o755)


def _write_beside(path: str, record: Record) -> str:
    descriptor, temporary = tempfile.mkstemp(prefix=".%s." % os.path.basename(path), dir=os.path.dirname(path))
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(_content(record))
        stream.flush()
        os.fchmod(descriptor, 0o644)
        os.fsync(descriptor)
    return temporary


def _content(record: Record) -> bytes:
    return (json.dumps(record, indent=2, sort_keys=True) + "\n").encode("utf-8")


def _create(path: str, record: Record) -> bool:
    temporary = _write_beside(path, record)
    try:
        try:
            os.link(temporary, path)
            return True
        except OSError as error:
            # A network file system may do the work, lose the answer, and report a failure of the repeated request.
            if os.stat(temporary).st_nlink == 2:
                return True
            if error.errno == errno.EEXIST:
                return False
            if error.errno not in _WITHOUT_LINKS:
                raise
        return _create_exclusively(path, record)
    finally:
        os.unlink(temporary)


def _create_exclusively(path: str, record: Record) -> bool:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(_content(record))
        os.fchmod(descriptor, 0o644)
    return True


def _replace(path: str, record: Record) -> None:
    temporary = _write_beside(path, record)
    try:
        os.rename(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise


def describe(record: Record) -> str:
    """Say who a record names, in the words of a sentence."""
    return "process %d on %s (%s of %s%s)" % (
        record["pid"], record["host"], record["playbook"], record["user"],
        ", started " + record["started"] if record["started"] else "",
    )


def refusal(held: LockHeld, release_name: str, root: str, here: str) -> StackError:
    """Make the error that says why a rollout cannot begin, and what to do."""
    record = held.record
    message = "Release %s below %s is being rolled out: %s has held its lock since %s." % (
        release_name, root, describe(record), record["since"])
    if held.verdict == ALIVE:
        remedy = "Wait for it to end, or end that process, and run this again."
    else:
        message = message[:-1] + ", and %s cannot tell whether that process is alive." % here
        remedy = "On %s, look with 'ps -o lstart,args -p %d'; if it is gone, remove %s and run this again." % (
            record["host"], record["pid"], held.path)
    return StackError(message, "lock", remedy, held.path, holder=record, would_block=True)
