# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Raise and describe failures: what failed, where, and what to do next."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Iterator, cast

from .text import printable

_SYSTEM_REMEDIES = {
    errno.EROFS: "Mount the file system for writing, or run this where it is",
    errno.ENOSPC: "Make room on the file system",
    errno.EDQUOT: "Make room within the quota, or have it raised",
    errno.EIO: "Have the file system checked",
    errno.ESTALE: "Mount the file system again",
    errno.EMFILE: "Raise the limit of open files (ulimit -n)",
    errno.ENFILE: "Have the limit of open files of this host raised",
}


class StackError(Exception):
    """A failure that an operator can act on.

    Message and remedy are a sentence each: what is wrong, naming the thing, and what to do next. ``failed_step`` is the
    phase, in the words of the module's documentation; details are further plain data for its result.
    """

    def __init__(self, message: str, failed_step: str, remedy: str = "", path: str = "", **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.failed_step = failed_step
        self.remedy = remedy
        self.path = path
        self.details = details

    def as_result(self) -> dict:
        """Return the arguments of ``fail_json``, with secrets that a program has repeated masked."""
        result = dict(self.details)
        # A program's words may hold what a terminal obeys, and Ansible prints a message as it is.
        remedy = printable(self.remedy)
        result["msg"] = " ".join(part for part in (printable(self.message), remedy) if part)
        result["failed_step"] = self.failed_step
        for key, value in (("path", self.path), ("remedy", remedy)):
            if value:
                result[key] = value
        # Here, as programs that take only parts of this collection with them raise errors too, and show no result.
        from .redaction import redacted_data, secret_values

        # Not by names: a lock's token is what tells its holder from another.
        return cast(dict, redacted_data(result, secret_values(os.environ), by_name=False))

    def __reduce__(self) -> tuple:
        return _again, (self.message, self.failed_step, self.remedy, self.path, self.details)


def _again(message: str, failed_step: str, remedy: str, path: str, details: dict) -> StackError:
    """Make the error anew in the process that receives it."""
    return StackError(message, failed_step, remedy, path, **details)


def system_remedy(error: OSError, otherwise: str) -> str:
    """Return what helps against an error of the system, without a full stop; ``otherwise`` where it says too little."""
    return _SYSTEM_REMEDIES.get(error.errno or 0, otherwise)


@contextlib.contextmanager
def explained(what: str, failed_step: str, remedy: str, path: str) -> Iterator[None]:
    """Turn an error of the system into a StackError: what could not be done, why, and what to do next."""
    try:
        yield
    except OSError as error:
        raise StackError("%s: %s." % (what, error.strerror or error), failed_step, remedy, path) from error
