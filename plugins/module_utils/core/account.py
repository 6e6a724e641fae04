# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Name accounts, and the account that asked for what is done."""

from __future__ import annotations

import os
import pwd
import re

_ACCOUNT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}\$?")


def account_name(uid: int) -> str:
    """Return the name of an account, or its number where it has no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def actor() -> str:
    """Name the account that asked for this: whoever became this one through sudo (SUDO_USER, sudo(8)), else its own."""
    asked = os.environ.get("SUDO_USER", "")
    if _ACCOUNT.fullmatch(asked):
        return asked
    return account_name(os.getuid())
