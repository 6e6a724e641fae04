# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What to do about a file system that refuses as a whole."""

from __future__ import annotations

import errno

_REMEDIES = {
    errno.EROFS: "Mount the file system for writing, or run this where it is",
    errno.ENOSPC: "Make room on the file system",
    errno.EDQUOT: "Make room within the quota, or have it raised",
    errno.EIO: "Have the file system checked",
    errno.ESTALE: "Mount the file system again",
    errno.EMFILE: "Raise the limit of open files (ulimit -n)",
    errno.ENFILE: "Have the limit of open files of this host raised",
}


def remedy(error: OSError, otherwise: str) -> str:
    """What helps against an error, without an end; ``otherwise`` is for those that say nothing of the file system."""
    return _REMEDIES.get(error.errno or 0, otherwise)
