# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""uv looks where pip looks, and what it says becomes a sentence."""

from __future__ import annotations

import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.locking import groups, uv

GROUP = groups.Group(("locks.base",), ("numpy",), range(11, 15))


def test_without_uv_it_is_said_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))
    with pytest.raises(uv.UvError, match="made by uv, which is not on PATH: install it, as with 'pip install uv'"):
        uv.program()


def test_what_pip_is_configured_for_counts_for_uv_and_what_uv_is_told_itself_comes_first(monkeypatch, tmp_path):
    (tmp_path / "pip.conf").write_text(
        "[global]\nindex-url = https://a.example/simple\nextra-index-url =\n    https://b.example/simple\n"
        "    https://c.example/simple\ncert = /etc/proxy.pem\n")
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_SYSTEM_CERTS", "SSL_CERT_FILE", "PIP_CERT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    found = uv.environment()
    assert found["UV_DEFAULT_INDEX"] == "https://a.example/simple"
    assert found["UV_INDEX"] == "https://b.example/simple https://c.example/simple"
    assert found["SSL_CERT_FILE"] == "/etc/proxy.pem" and found["UV_SYSTEM_CERTS"] == "1"
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://own.example/simple")
    assert uv.environment()["UV_DEFAULT_INDEX"] == "https://own.example/simple"


@pytest.mark.parametrize(("said", "words"), [
    ("error: Failed to fetch: `https://a.example/simple/numpy/`\n  Caused by: invalid peer certificate: UnknownIssuer",
     "index is not reached (Caused by: invalid peer certificate: UnknownIssuer); give the certificate of the proxy"),
    ("error: Failed to fetch: `https://a.example/simple/numpy/`\n  Caused by: dns error",
     "as an index is not reached (Caused by: dns error); say where an index is in pip's configuration"),
    ("No solution found: numpy<1", "cannot be made; uv says:\nNo solution found: numpy<1"),
])
def test_what_uv_says_becomes_a_sentence(tmp_path, said, words):
    program = tmp_path / "uv"
    program.write_text("#!/bin/sh\ncat >&2 <<'END'\n%s\nEND\nexit 2\n" % said)
    program.chmod(0o755)
    with pytest.raises(uv.UvError) as raised:
        uv.resolve(str(program), GROUP, "", [], False)
    assert words in str(raised.value) and str(raised.value).startswith("The locks locks.base ")
