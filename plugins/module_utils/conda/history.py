# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Write the history of a conda prefix, as conda itself reads it."""

from __future__ import annotations

import json
import os
import time
from typing import Iterable

from ..core.files import write_atomic
from .package import (
    Transaction,
)
from .prefix import META
from .request import ALIAS, DEFAULTS


def channel_name(url: str) -> str:
    """Tell what conda calls a channel in its history: a name where the address is a known one."""
    url = url.rstrip("/")
    if url in DEFAULTS:
        return "defaults"
    return url[len(ALIAS) + 1:] if url.startswith(ALIAS + "/") else url


def history_entry(transaction: Transaction, specs: Iterable[str], command: str, when: float) -> str:
    """Tell what a transaction for some specs adds to the history; ``command`` stands for the command line."""
    removed = [*transaction.removed, *(change.before for change in transaction.changed)]
    added = [*transaction.added, *(change.after for change in transaction.changed)]
    lines = ["==> %s <==" % time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when)), "# cmd: " + command]
    for sign, packages in (("-", removed), ("+", added)):
        lines += sorted("%s%s/%s::%s" % (sign, channel_name(p.channel), p.subdir, p.stem) for p in packages)
    specs = sorted(specs)
    if specs:
        lines.append("# update specs: %s" % json.dumps(specs))
    return "".join(line + "\n" for line in lines)


def write_history(prefix: str, start: str, entry: str) -> None:
    """Let the history be what it was before the transaction, and its entry."""
    write_atomic(os.path.join(prefix, META, "history"), (start + entry).encode("utf-8"))


def read_history(prefix: str) -> str:
    """Return the history, empty where there is none."""
    try:
        with open(os.path.join(prefix, META, "history"), encoding="utf-8") as stream:
            return stream.read()
    except (FileNotFoundError, NotADirectoryError):
        return ""
