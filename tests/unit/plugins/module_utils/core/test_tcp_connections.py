# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Whose the other end of a connection is."""

from __future__ import annotations

import contextlib
import os
import socket

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import tcp_connections


@contextlib.contextmanager
def connection(server_address, client_address, ports=(0, 0), family=socket.AF_INET):
    """One connection on the loopback: its client, and the server's side of it."""
    with socket.socket() as door, socket.socket(family) as client:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind((server_address, ports[0]))
        door.listen()
        if family == socket.AF_INET:
            client.bind((client_address, ports[1]))
            client.connect(door.getsockname())
        else:
            client.connect(("::ffff:" + server_address, door.getsockname()[1]))
        side, _address = door.accept()
        with side:
            yield client, side


def inode(client):
    return str(os.fstat(client.fileno()).st_ino)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_client_is_found_over_both_families(family):
    if family == socket.AF_INET6 and not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("this kernel has no IPv6")
    with connection("127.0.0.1", "127.0.0.1", family=family) as (client, side):
        found = tcp_connections.socket_of(side.getpeername(), side.getsockname())
        assert found == (os.geteuid(), inode(client))


def test_a_connection_of_the_same_ports_between_other_addresses_is_another_one():
    with connection("127.0.0.1", "127.0.0.1") as (client, side):
        ports = side.getsockname()[1], side.getpeername()[1]
        with connection("127.0.0.2", "127.0.0.3", ports) as (decoy, decoys):
            ends = [(client, side), (decoy, decoys)]
            found = [tcp_connections.socket_of(one.getpeername(), one.getsockname()).inode for _client, one in ends]
            assert found == [inode(client), inode(decoy)]


def test_what_is_not_there_is_not_found():
    assert tcp_connections.socket_of(("127.0.0.1", 1), ("127.0.0.1", 2)) is None
