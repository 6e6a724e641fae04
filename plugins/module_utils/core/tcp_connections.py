# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find who is at the other end of a TCP connection within this machine, as /proc shows it.

Columns of /proc/net/tcp and tcp6 are those of proc_net_tcp in the kernel's documentation: local and remote address in
hexadecimal, the account and the inode of the socket; proc(5) says that /proc/<pid>/fd names the socket by that inode.
"""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

from .processes import own_processes, read_process_file

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
"""A socket of IPv6 that is connected to an address of IPv4 (RFC 4291, 2.5.5.2) stands in the second one."""


class Socket(NamedTuple):
    """One end of a connection."""

    user: int
    inode: str


def socket_of(port: int, remote: int) -> Socket | None:
    """Find the socket on the client's ``port`` here whose other end is on the server's; None where unseen."""
    wanted = (":%04X" % port, ":%04X" % remote)
    for table in _TABLES:
        with contextlib.suppress(OSError, ValueError), open(table, encoding="ascii", errors="replace") as stream:
            for line in stream:
                words = line.split()
                if len(words) > 9 and words[1].endswith(wanted[0]) and words[2].endswith(wanted[1]):
                    return Socket(int(words[7]), words[9])
    return None


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
