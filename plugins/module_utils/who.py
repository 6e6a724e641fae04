# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Who does something, and when, as the journals of a release keep it."""

from __future__ import annotations

import os
import pwd
import re
import time

_ACCOUNT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}\$?")


def who() -> str:
    """Name of the account that asked for this, as far as the system knows it.

    Whoever became the rollout account through sudo is named by sudo (SUDO_USER, sudo(8)); else it is the real user id's
    name, or the id where it has none.
    """
    asked = os.environ.get("SUDO_USER", "")
    if _ACCOUNT.fullmatch(asked):
        return asked
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def now() -> str:
    """This moment in UTC, to the second, as ``2026-11-20T08:15:00Z``."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
