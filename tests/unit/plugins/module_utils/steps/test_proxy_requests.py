# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What clients ask a proxy for, as they write it."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.proxy_requests import (
    MAX_REQUEST_BYTES,
    UNKNOWN,
    address_in,
    is_greeting,
    parse_request,
    public,
    refusal,
)

END = b"\r\n\r\n"
SOCKS5_NAME = b"\x05\x01\x00\x05\x01\x00\x03\x0bexample.org\x01\xbb"
REQUESTS = [
    (b"GET http://example.org/a/b.tgz HTTP/1.1" + END, ("example.org", "http://example.org/a/b.tgz", "http")),
    (b"GET http://Example.org:8080/ HTTP/1.0\n\n", ("example.org", "http://Example.org:8080/", "http")),
    (b"GET ftp://me:pw@example.org/a HTTP/1.1" + END, ("example.org", "ftp://example.org/a", "http")),
    (b"GET /a?b=c HTTP/1.1\r\nA: b\r\nhost: example.org" + END, ("example.org", "http://example.org/a?...", "http")),
    (b"GET /a HTTP/1.1" + END, ("", "http:///a", "http")),
    (b"CONNECT example.org:443 HTTP/1.1\r\nHost: h:443" + END, ("example.org", "https://example.org/", "connect")),
    (b"CONNECT example.org:8443 HTTP/1.1" + END, ("example.org", "https://example.org:8443/", "connect")),
    (b"CONNECT example.org:80 HTTP/1.1" + END, ("example.org", "http://example.org/", "connect")),
    (b"CONNECT [2001:db8::1]:443 HTTP/1.1" + END, ("2001:db8::1", "https://2001:db8::1/", "connect")),
    (b"SSH -o SendEnv=GIT_PROTOCOL git@example.org git-upload-pack 'a/b.git'" + END,
     ("example.org", "ssh://example.org/a/b.git", "ssh")),
    (b"SSH -p 2222 example.org git-upload-pack '/b.git'" + END, ("example.org", "ssh://example.org/b.git", "ssh")),
    (b"SSH -4 example.org" + END, ("example.org", "ssh://example.org/", "ssh")),
    (SOCKS5_NAME, ("example.org", "https://example.org/", "socks")),
    (b"\x05\x02\x00\x02\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x50", ("192.0.2.1", "http://192.0.2.1/", "socks")),
    (b"\x05\x01\x00\x05\x01\x00\x04" + b"\0" * 15 + b"\x01\x00\x16", ("::1", "[::1]:22", "socks")),
    (b"\x04\x01\x01\xbb\xc0\x00\x02\x01me\x00", ("192.0.2.1", "https://192.0.2.1/", "socks")),
    (b"\x04\x01\x00\x50\x00\x00\x00\x01\x00example.org\x00", ("example.org", "http://example.org/", "socks")),
]
GARBAGE = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\0" * 40, b"hello" + END, b"GET" + END, b"SSH" + END,
    b"CONNECT" + END, b"GET http://[::1 HTTP/1.1" + END, b"\xff\xfe" + END, b"A" * MAX_REQUEST_BYTES,
    b"\x05\x01\x00\x05\x01\x00\x09\x00\x00\x00\x00\x00", b"\x04" + b"a" * MAX_REQUEST_BYTES,
    b"\x04\x01\x00\x50\x00\x00\x00\x01\x00" + b"a" * MAX_REQUEST_BYTES,
]


@pytest.mark.parametrize(("sent", "wanted"), REQUESTS)
def test_a_request_is_parse_request_as_soon_as_it_is_complete(sent, wanted):
    assert parse_request(sent) == wanted
    assert {parse_request(sent[:end]) for end in range(len(sent))} == {None}


@pytest.mark.parametrize("sent", GARBAGE)
def test_what_is_no_request_is_told_apart_and_never_an_error(sent):
    assert parse_request(sent) == UNKNOWN
    for end in range(min(len(sent), 64)):
        assert parse_request(sent[:end]) in (None, UNKNOWN)


def test_a_socks_greeting_is_answered_before_its_request_comes():
    assert [end for end in range(len(SOCKS5_NAME) + 1) if is_greeting(SOCKS5_NAME[:end])] == [3]


def test_each_protocol_is_refused_in_its_own_words():
    reason = "Step horovod: build steps have no network"
    http = refusal(b"CONNECT a:443 HTTP/1.1" + END, reason, "The step\u2019s text.")
    head, _end, body = http.partition(END)
    assert head.startswith(b"HTTP/1.1 403 Step horovod: build steps have no network\r\n")
    assert b"Content-Length: %d\r\n" % len(body) in head + b"\r\n"
    assert body.decode("utf-8") == "The step\u2019s text.\n"
    assert refusal(SOCKS5_NAME, reason, "text") == b"\x05\x02\x00\x01" + bytes(6)
    assert refusal(b"\x04\x01", reason, "text") == b"\x00\x5b" + bytes(6)
    assert refusal(b"SSH example.org", reason, "text") == b"text\n"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:secret@example.org:8443/a/b#part", "https://example.org:8443/a/b"),
        ("https://example.org/a?X-Amz-Signature=secret", "https://example.org/a?..."),
        ("http://[::1/a?secret", "http://[::1/a"),
        ("http://example.org/\x1b[31m", "http://example.org/?..."),
        ("http://example.org/" + "a" * 5000, ("http://example.org/" + "a" * 5000)[:500]),
    ],
)
def test_nothing_secret_and_nothing_endless_of_an_address_is_kept(url, shown):
    assert public(url) == shown


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("curl -LO https://example.org/a.tgz", "https://example.org/a.tgz"),
        ("fatal: unable to access 'https://example.org/a.git/': CONNECT", "https://example.org/a.git/"),
        ("git-remote-https origin https://me:pw@example.org/a.git", "https://example.org/a.git"),
        ("cannot open https://example.org:8443/a.", "https://example.org:8443/a"),
        ("https://example.org.evil/a and https://other.org/b", "https://example.org"),
        ("nothing of it", ""),
    ],
)
def test_an_address_is_found_in_a_command_or_a_log(text, found):
    assert address_in(text, "example.org") == found
