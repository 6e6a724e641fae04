"""Copy a container image to where a release has it, or check the one that it refers to. Runs with Python 3.6.

Arguments: the checksum that the image must have, the record to write for the release, the central image, and the copy,
or nothing where the release has none. A copy gets its name when its checksum is right, and not before; whoever looks
sees the copy that was there before, or the new one. Two that copy the same image at once each finish their own.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import signal
import socket
import sys
import tempfile
import time

BLOCK = 4 << 20
MEBIBYTE = 1 << 20
PREFIX = ".copying."
SUFFIX = ".part"

DEAD_SECONDS = 3600
"""Age at which a begun copy of another machine counts as given up: one that is being written is never that old."""


class Trouble(Exception):
    """What an operator is told: what failed, and what to do."""


class Interrupted(BaseException):
    """A signal that asks to stop."""


def stop(number, _frame):
    """Turn the first signal into an exception; the cleanup that follows is not to be interrupted as well."""
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    raise Interrupted(number)


class Progress:
    """Says how much was read, as build_step shows it: when a second has passed, and at the end."""

    def __init__(self, size):
        self.total = max(1, -(-size // MEBIBYTE))
        self.done = 0
        self.told = time.monotonic()

    def add(self, count):
        """Count bytes."""
        self.done += count
        if time.monotonic() - self.told >= 1:
            self.tell()

    def tell(self):
        """Print the mark."""
        self.told = time.monotonic()
        print("[%d/%d] MiB" % (min(self.total, -(-self.done // MEBIBYTE)), self.total), flush=True)


def digest_of(source, write=None):
    """The checksum of an open file, with progress.

    Args:
        source: the file, open for reading as bytes.
        write: what every block is handed to.

    Returns:
        the checksum, and whether the file stayed the same meanwhile.
    """
    before = os.fstat(source.fileno())
    progress = Progress(before.st_size)
    digest = hashlib.sha256()
    for block in iter(lambda: source.read(BLOCK), b""):
        digest.update(block)
        if write:
            write(block)
        progress.add(len(block))
    progress.tell()
    after = os.fstat(source.fileno())
    same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
    return digest.hexdigest(), same and progress.done == before.st_size


def refuse(path, found, expected, same):
    """Say why an image is not the one that the release was written for.

    Raises:
        Trouble: always.
    """
    if not same:
        raise Trouble("%s changed while it was read. Run this again when whoever keeps it has finished." % path)
    raise Trouble("%s has sha256 %s, and the release wants %s. Get the right image, or make a release of this one." % (
        path, found, expected))


def open_image(central):
    """The central image, opened.

    Raises:
        Trouble: it cannot be.
    """
    try:
        return open(central, "rb")
    except OSError as error:
        raise Trouble("The image %s cannot be read (%s). Correct torchstack_images, or have it put there." % (
            central, error.strerror)) from None


def own_prefix():
    """How the names of copies begin that are made on this machine."""
    return PREFIX + socket.gethostname() + "."


def write_record(path, record):
    """Replace a record by a new one."""
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path))
    try:
        with os.fdopen(descriptor, "w") as stream:
            json.dump(record, stream, indent=2, sort_keys=True)
            stream.write("\n")
            os.fchmod(stream.fileno(), 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def record_of(status, expected):
    """What is kept beside a copy, so that it need not be read again."""
    return {"bytes": status.st_size, "mtime_ns": status.st_mtime_ns, "sha256": expected}


def is_right(copy, expected):
    """Whether there is a copy with the right checksum. One that has no valid record is read, and recorded."""
    try:
        with open(copy, "rb") as stream:
            status = os.fstat(stream.fileno())
            with contextlib.suppress(OSError, ValueError), open(copy + ".json") as record:
                if json.load(record) == record_of(status, expected):
                    return True
            print("Reading %s, which is there already." % copy, flush=True)
            found, same = digest_of(stream)
    except FileNotFoundError:
        return False
    if found != expected or not same:
        print("It has sha256 %s and is replaced." % found, flush=True)
        return False
    write_record(copy + ".json", record_of(status, expected))
    return True


def is_given_up(stream, now):
    """Whether nobody writes a begun copy any more.

    Args:
        stream: the begun copy.
        now: time of the file server.
    """
    status = os.fstat(stream.fileno())
    if now - status.st_mtime >= DEAD_SECONDS:
        return True
    # Who has just made one takes its lock before anything is written.
    if not status.st_size or not os.path.basename(stream.name).startswith(own_prefix()):
        return False
    try:
        fcntl.flock(stream.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def remove_leftovers(directory, own):
    """Remove what was begun here and given up: by a process of this machine that is gone, or long ago.

    Args:
        directory: where copies are made.
        own: status of a file that was made a moment ago, for the time of the file server.
    """
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        if not (name.startswith(PREFIX) and name.endswith(SUFFIX)):
            continue
        with contextlib.suppress(OSError), open(path, "r+b") as stream:
            if os.fstat(stream.fileno()).st_ino != own.st_ino and is_given_up(stream, own.st_mtime):
                os.unlink(path)
                print("Removed %s, which a copy that was stopped left." % path, flush=True)


def copy_image(central, copy, expected):
    """Make the copy, through a file that has no valid name until it is whole and right."""
    directory = os.path.dirname(copy)
    os.makedirs(directory, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(SUFFIX, own_prefix(), directory)
    try:
        with os.fdopen(descriptor, "wb") as target:
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_leftovers(directory, os.fstat(descriptor))
            print("Copying %s." % central, flush=True)
            with open_image(central) as source:
                found, same = digest_of(source, target.write)
            if found != expected:
                refuse(central, found, expected, same)
            target.flush()
            os.fchmod(descriptor, 0o444)
            os.fsync(descriptor)
            os.replace(temporary, copy)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    write_record(copy + ".json", record_of(os.stat(copy), expected))
    with contextlib.suppress(OSError):
        entry = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(entry)
        finally:
            os.close(entry)


def explained(error, copy):
    """The sentences for an error of the system."""
    where = os.path.dirname(copy) or "this directory"
    kept = "Nothing was kept of the copy."
    if error.errno == errno.EDQUOT:
        return "The quota is used up in %s. %s Make room, or ask for more." % (where, kept)
    if error.errno == errno.ENOSPC:
        return "The file system of %s is full. %s Make room there." % (where, kept)
    if error.errno == errno.EFBIG:
        return "Files may not grow this large in %s. %s See 'ulimit -f'." % (where, kept)
    return "%s: %s. %s" % (error.filename or where, error.strerror, kept)


def main(expected, record, central, copy=""):
    """Bring the image, or check it, and record which one it is."""
    if not copy:
        with open_image(central) as source:
            found, same = digest_of(source)
        if found != expected:
            refuse(central, found, expected, same)
    elif is_right(copy, expected):
        print("%s is there." % copy, flush=True)
    else:
        copy_image(central, copy, expected)
    path = copy or central
    write_record(record, {
        "bytes": os.path.getsize(path), "central": central, "copy": copy, "file": os.path.basename(path),
        "sha256": expected})


if __name__ == "__main__":
    for asked in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(asked, stop)
    try:
        main(*sys.argv[1:])
    except Trouble as trouble:
        sys.exit("ERROR: %s" % trouble)
    except OSError as trouble:
        sys.exit("ERROR: %s" % explained(trouble, sys.argv[4] if len(sys.argv) > 4 else ""))
    except Interrupted as signalled:
        print("ERROR: Stopped by signal %d. Nothing was kept of the copy." % signalled.args[0], flush=True)
        sys.exit(128 + signalled.args[0])
