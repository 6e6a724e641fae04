# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find who is at the other end of a TCP connection within this machine, as /proc shows it.

Columns of /proc/net/tcp and tcp6 are those of proc_net_tcp in the kernel's documentation: local and remote address in
hexadecimal, the account and the inode of the socket; proc(5) says that /proc/<pid>/fd names the socket by that inode.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from typing import NamedTuple

from .processes import own_processes, read_process_file

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
"""A socket of IPv6 that is connected to an address of IPv4 (RFC 4291, 2.5.5.2) stands in the second one."""


class Socket(NamedTuple):
    """One end of a connection."""

    user: int
    inode: str


def socket_of(client: tuple[str, int], server: tuple[str, int]) -> Socket | None:
    """Find the socket of a client here, by the addresses (of IPv4) and ports of both ends; None where unseen.

    Ports alone would not do: another account may have a connection of the same two between other addresses.
    """
    near, far = _spelt(client), _spelt(server)
    for table in _TABLES:
        with contextlib.suppress(OSError, ValueError), open(table, encoding="ascii", errors="replace") as stream:
            for line in stream:
                words = line.split()
                if len(words) > 9 and words[1] in near and words[2] in far:
                    return Socket(int(words[7]), words[9])
    return None


def _spelt(end: tuple[str, int]) -> tuple[str, str]:
    """Spell an address of IPv4 and its port as the tables have them, for IPv4 and for IPv6."""
    # Words of 32 bits, as this machine's processor orders their bytes.
    last, third = (
        "%08X" % int.from_bytes(part, sys.byteorder) for part in (socket.inet_aton(end[0]), b"\0\0\xff\xff"))
    return "%s:%04X" % (last, end[1]), "%s%s%s:%04X" % ("0" * 16, third, last, end[1])


def holders(inode: str) -> list[int]:
    """List this account's processes with a socket open, its user before those that inherited it."""
    name, found = "socket:[%s]" % inode, []
    for process in own_processes():
        directory = "/proc/%d/fd" % process.pid
        # A process may end, or change its account, while it is looked at.
        with contextlib.suppress(OSError):
            for descriptor in os.listdir(directory):
                with contextlib.suppress(OSError):
                    if os.readlink(os.path.join(directory, descriptor)) == name:
                        found.append(process)
                        break
    return [process.pid for process in sorted(found, key=lambda process: -process.start_time)]


def arguments(pid: int) -> list[str]:
    """Read a process's arguments; empty where it has gone."""
    words = (read_process_file(pid, "cmdline") or b"")[:65536].split(b"\0")
    return [word.decode("utf-8", "replace") for word in words if word]
