# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Translate py-rattler's errors for an operator. Pure."""

from __future__ import annotations

import re

from ..core.errors import StackError

SOLVE, CHANNEL, PACKAGE, LINK = "solve", "read the channel", "fetch the packages", "link"
_AGAIN = "Correct that, then run it again."


def translate(kind: str, text: str, step: str) -> StackError:
    """Return an error of py-rattler, by the name of its class, as one sentence, with what to do next.

    In ``text`` causes are on lines of their own; ``step`` is what was going on.
    """
    text = "\n".join(line.rstrip() for line in text.strip().splitlines())
    last = text.splitlines()[-1][len("Caused by: "):] if "\nCaused by: " in text else text
    if kind == "SolverError":
        message = "These specs cannot be satisfied together. %s." % text.rstrip(".")
        remedy = "Loosen a spec, add a channel, or set virtual_packages as the compute nodes have them."
        return StackError(message, SOLVE, remedy, explanation=text)
    if kind in ("InvalidMatchSpecError", "InvalidPackageNameError", "InvalidVersionSpecError"):
        return StackError("A spec is not one: %s." % text, SOLVE, "Write it as conda does, `numpy >=1.26,<2`.")
    if kind in ("GatewayError", "FetchRepoDataError", "InvalidChannelError"):
        message = "The channel cannot be read: %s." % one_line(text)
        remedy = "Check its address, and whether this machine reaches it; nothing was changed."
        return StackError(message, CHANNEL, remedy, explanation=text)
    if kind == "ParseCondaLockError":
        return StackError("The lock cannot be read: %s." % one_line(text), "read the lock", "Write it anew.")
    if "hash mismatch" in text:
        found = re.search(r"extracting (\S+) to \S+: expected (\w+), got (\w+)", text)
        said = "%s has sha256 %s where %s was expected" % found.group(1, 3, 2) if found else last
        message = "A package is not the one that was asked for: %s." % said
        remedy = "Fetch it anew into the channel or mirror, or correct the lock, then run it again."
        return StackError(message, PACKAGE, remedy, explanation=text)
    named = re.match(r"failed to fetch (\S+)", text)
    if named:
        message = "The package %s cannot be fetched or is damaged: %s." % (named.group(1), last)
        return StackError(message, PACKAGE, _AGAIN, explanation=text)
    if kind in ("InstallerError", "LinkError", "TransactionError", "IoError"):
        return StackError("The packages cannot be linked: %s." % one_line(text), LINK, _AGAIN, explanation=text)
    return StackError("py-rattler failed: %s: %s." % (kind, one_line(text)), step, _AGAIN, explanation=text)


def one_line(text: str) -> str:
    """Return a text of several lines as one."""
    return "; ".join(line.replace("Caused by: ", "").strip().rstrip(".") for line in text.splitlines() if line.strip())
