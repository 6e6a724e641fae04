# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""One command at a time works on a cluster."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator

from .trouble import TroubleError

CREDENTIALS = struct.Struct("3i")
"""Process, user and group of the other end: struct ucred, see unix(7)."""


@contextlib.contextmanager
def alone(cluster: str) -> Iterator[None]:
    """Be the only command that works on a cluster.

    An abstract socket (unix(7)) serves as the lock, as it is gone with its process, however that ends, and is seen by
    all accounts of this machine.

    Args:
        cluster: the cluster's name.

    Raises:
        TroubleError: another one is at it; with its process.
    """
    address = "\0" + cluster
    with socket.socket(socket.AF_UNIX) as mine:
        try:
            mine.bind(address)
        except OSError as error:
            raise TroubleError(
                "Another command is working on %s%s. Wait until it ends, or stop it with Ctrl-C."
                % (cluster, _process_of(address))
            ) from error
        mine.listen()
        yield


def _process_of(address: str) -> str:
    """Who has the address, as a part of a sentence; empty where it has just ended."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as asking:
        asking.connect(address)
        credentials = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        return " (process %d)" % CREDENTIALS.unpack(credentials)[0]
    return ""
