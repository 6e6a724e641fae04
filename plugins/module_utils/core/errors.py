# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The one error type of the collection: what failed, where, and what to do next."""

from __future__ import annotations

import os
from typing import cast


class StackError(Exception):
    """A failure that an operator can act on.

    Args:
        message: one sentence: what is wrong, naming the thing.
        failed_step: the phase that failed, in the words of the module's documentation.
        remedy: one sentence: what to do next.
        path: the file or directory concerned.
        details: further plain data for the module's result.
    """

    def __init__(self, message: str, failed_step: str, remedy: str = "", path: str = "", **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.failed_step = failed_step
        self.remedy = remedy
        self.path = path
        self.details = details

    def as_result(self) -> dict:
        """The keyword arguments for ``AnsibleModule.fail_json``, without secrets that a program has repeated."""
        result = dict(self.details)
        result["msg"] = " ".join(part for part in (self.message, self.remedy) if part)
        result["failed_step"] = self.failed_step
        for key, value in (("path", self.path), ("remedy", self.remedy)):
            if value:
                result[key] = value
        # Here, as programs that take only parts of this collection with them raise errors too, and show no result.
        from .redaction import (
            redacted_data,
            secret_values,
        )

        # Not by names: a lock's token is what tells its holder from another.
        return cast(dict, redacted_data(result, secret_values(os.environ), by_name=False))

    def __reduce__(self) -> tuple:
        return _again, (self.message, self.failed_step, self.remedy, self.path, self.details)


def _again(message: str, failed_step: str, remedy: str, path: str, details: dict) -> StackError:
    """The error as another process knows it."""
    return StackError(message, failed_step, remedy, path, **details)
