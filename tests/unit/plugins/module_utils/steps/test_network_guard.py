# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A listener that refuses, and the sentence about it (network_guard and network_refusals)."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import threading
import types

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import tcp_connections as connections
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps import network_guard
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.network_guard import (
    MAX_CONNECTIONS,
    RefusingListener,
    variables,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.network_refusals import (
    fetch_step,
    refused_sentence,
)


@pytest.fixture(name="listener")
def a_listener(tmp_path):
    notes = []
    listener = RefusingListener("horovod", str(tmp_path / "refused.jsonl"), notes.append)
    listener.notes = notes
    listener.start()
    yield listener
    listener.close()


def ask(listener, *parts):
    """Send the parts one after another; all that is answered."""
    with socket.create_connection(("127.0.0.1", listener.port), 60) as client:
        for part in parts:
            client.sendall(part)
        client.shutdown(socket.SHUT_WR)
        return client.makefile("rb").read()


def test_a_request_in_pieces_is_refused_and_recorded(listener, tmp_path):
    answer = ask(listener, b"GET http://exam", b"ple.org/a HTTP/1.1\r\n", b"\r\n")
    assert answer.startswith(b"HTTP/1.1 403 Step horovod: build steps have no network\r\n")
    assert b"Step horovod tried to download http://example.org/a from host example.org: build steps" in answer
    listener.close()
    (entry,) = [json.loads(line) for line in (tmp_path / "refused.jsonl").read_text().splitlines()]
    assert {key: entry[key] for key in ("host", "url", "step", "way")} == {
        "host": "example.org", "url": "http://example.org/a", "step": "horovod", "way": "http"}
    assert listener.outcome() == {"refused": [entry], "refusals": 1}
    assert len(listener.notes) == 1


def test_who_says_nothing_is_not_recorded_and_garbage_is(listener, tmp_path):
    assert ask(listener) == b""
    assert ask(listener, b"\x16\x03\x01\x02\x00").startswith(b"HTTP/1.1 403")
    listener.close()
    assert [(entry["host"], entry["way"]) for entry in listener.outcome()["refused"]] == [("", "unknown")]
    assert "something that is no request to a proxy" in refused_sentence("s", [], listener.outcome())


def test_the_same_address_is_recorded_once_and_counted(listener):
    for _time in range(5):
        ask(listener, b"CONNECT example.org:443 HTTP/1.1\r\n\r\n")
    listener.close()
    assert (len(listener.outcome()["refused"]), listener.outcome()["refusals"]) == (1, 5)


def test_what_another_account_asks_for_is_no_reason_of_a_failure(listener, tmp_path, monkeypatch):
    found = {}

    def seen(client, server):
        found[client[1]] = connections.socket_of(client, server)
        return found[client[1]] and found[client[1]]._replace(user=os.geteuid() + 1)

    monkeypatch.setattr(network_guard, "connections", types.SimpleNamespace(**dict(vars(connections), socket_of=seen)))
    with socket.socket(socket.AF_INET6) as client:
        client.connect(("::ffff:127.0.0.1", listener.port))
        port = client.getsockname()[1]
        with contextlib.suppress(OSError):
            client.sendall(b"GET http://attacker.example/your-build-is-bad HTTP/1.1\r\n\r\n")
            assert client.recv(100) == b""
    listener.close()
    assert found[port].user == os.geteuid(), "the socket is found in the table of IPv6"
    assert listener.outcome() == {} and listener.notes == [] and not (tmp_path / "refused.jsonl").exists()


def test_a_request_whose_owner_nobody_knows_is_refused_and_not_recorded(listener, monkeypatch):
    unseen = types.SimpleNamespace(**dict(vars(connections), socket_of=lambda client, server: None))
    monkeypatch.setattr(network_guard, "connections", unseen)
    assert ask(listener, b"GET http://attacker.example/ HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 403")
    listener.close()
    assert listener.outcome() == {} and listener.notes == []


def test_idle_connections_of_another_account_take_no_place(listener, monkeypatch):
    others = {}
    seen = types.SimpleNamespace(**dict(vars(connections), socket_of=lambda client, server: others.get(
        client[1], connections.socket_of(client, server))))
    monkeypatch.setattr(network_guard, "connections", seen)
    # Who has a place keeps it for longer than this client waits for its answer.
    monkeypatch.setattr(network_guard, "CLIENT_SECONDS", 3600.0)
    stranger = connections.Socket(os.geteuid() + 1, "1")
    idle = []
    for _number in range(MAX_CONNECTIONS + 36):
        client = socket.socket()
        client.bind(("127.0.0.1", 0))
        others[client.getsockname()[1]] = stranger
        client.connect(("127.0.0.1", listener.port))
        idle.append(client)
    try:
        assert ask(listener, b"GET http://example.org/ HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 403")
    finally:
        for client in idle:
            client.close()


def test_more_connections_than_are_held_wait_for_their_turn(listener, monkeypatch):
    monkeypatch.setattr(network_guard, "CLIENT_SECONDS", 0.5)
    idle = [socket.create_connection(("127.0.0.1", listener.port), 60) for _number in range(MAX_CONNECTIONS + 10)]
    try:
        assert ask(listener, b"GET http://example.org/ HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 403")
    finally:
        for client in idle:
            client.close()


def test_the_client_has_its_answer_although_it_sends_more_than_is_read(listener):
    body = b"x" * 100000
    head = b"POST http://example.org/upload HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
    assert ask(listener, head, body).startswith(b"HTTP/1.1 403")


def test_a_closed_listener_is_gone_with_its_thread(tmp_path):
    listener = RefusingListener("s", str(tmp_path / "refused.jsonl"), lambda text: None)
    listener.start()
    listener.close()
    listener.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "refused-network"]
    with socket.socket() as client:
        assert client.connect_ex(("127.0.0.1", listener.port)) != 0


def test_a_listener_that_was_never_started_is_closed(tmp_path):
    RefusingListener("s", str(tmp_path / "refused.jsonl"), lambda text: None).close()


def test_a_record_that_cannot_be_written_does_not_end_the_refusing(tmp_path):
    listener = RefusingListener("s", str(tmp_path / "nowhere" / "refused.jsonl"), lambda text: None)
    listener.start()
    assert ask(listener, b"GET http://example.org/ HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 403")
    listener.close()
    assert listener.outcome()["refusals"] == 1


def test_the_text_for_the_shell_keeps_what_git_was_told_before(tmp_path):
    asked = "eval \"$TORCHSTACK_NO_NETWORK\"; env | grep ^GIT_CONFIG | sort"
    environment = dict(os.environ, **variables(4711))
    environment.update(GIT_CONFIG_COUNT="1", GIT_CONFIG_KEY_0="a.b", GIT_CONFIG_VALUE_0="c")
    printed = subprocess.run(
        ["bash", "-euc", asked], env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    assert printed == [
        "GIT_CONFIG_COUNT=3", "GIT_CONFIG_KEY_0=a.b", "GIT_CONFIG_KEY_1=http.proxy",
        "GIT_CONFIG_KEY_2=url.http://.insteadOf", "GIT_CONFIG_VALUE_0=c", "GIT_CONFIG_VALUE_1=http://127.0.0.1:4711",
        "GIT_CONFIG_VALUE_2=git://",
    ]


def entry(**changes):
    return dict({"host": "example.org", "url": "https://example.org/", "way": "connect"}, **changes)


@pytest.mark.parametrize(
    ("log", "url"),
    [
        (b"", "https://example.org/"),
        (b"fatal: unable to access 'https://example.org/a.git/': ...", "https://example.org/a.git/"),
        (b"HTTPSConnectionPool(host='example.org', port=443): Max retries exceeded with url: /b.whl (Caused by",
         "https://example.org/b.whl"),
        (b"ProxyError('Cannot connect', OSError('Tunnel connection failed: 403 Step s: no'))': /simple/c/",
         "https://example.org/simple/c/"),
    ],
)
def test_the_address_is_completed_from_the_log_where_only_the_host_was_asked_for(log, url):
    said = refused_sentence("s", ["base"], {"refused": [entry()], "refusals": 1}, log)
    assert said == (
        "step s tried to download %s from host example.org: build steps have no network; "
        "fetch it in a step before it that may use the network" % url)


def test_a_sentence_counts_and_names_the_fetch_step():
    refused = [entry(host="", url="", way="unknown"), entry()]
    said = refused_sentence("s", ["s-fetch"], {"refused": refused, "refusals": 7})
    assert "https://example.org/ from host example.org (and 6 more)" in said
    assert said.endswith("fetch it in the fetch step s-fetch")
    assert refused_sentence("s", [], {"reason": "exit"}) == ""


def test_a_fetch_step_is_one_of_the_step_itself():
    assert fetch_step("horovod", ["base", "horovod-source"]) == "horovod-source"
    assert fetch_step("package-a", ["package-a-b-fetch", "package-a-fetch"]) == "package-a-fetch"
    assert fetch_step("horovod", ["mpi-fetch"]) == ""
