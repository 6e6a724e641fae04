# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A channel of real packages, places for prefixes, and servers of directories."""

from __future__ import annotations

import functools
import http.server
import socket
import threading

import pytest
from support import conda_prefixes


@pytest.fixture(scope="module")
def channel(tmp_path_factory):
    return conda_prefixes.channel(tmp_path_factory)


@pytest.fixture(scope="module")
def warm_cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture()
def place(channel, warm_cache, tmp_path):
    return conda_prefixes.Place(channel, warm_cache, tmp_path)


@pytest.fixture()
def drive(collections_path, tmp_path_factory):
    return conda_prefixes.Driver(collections_path, tmp_path_factory)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a directory and says nothing."""

    def log_message(self, *_arguments):
        pass


@pytest.fixture()
def serve():
    """Serve directories on this machine; gives their addresses."""
    servers = []

    def start(directory):
        handler = functools.partial(Quiet, directory=str(directory))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return "http://127.0.0.1:%d" % server.server_port

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture()
def nobody_there():
    """An address that refuses connections, as nobody else can listen there."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield "http://127.0.0.1:%d" % taken.getsockname()[1]
