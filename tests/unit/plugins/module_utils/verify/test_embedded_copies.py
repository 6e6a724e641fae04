# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Copies of a library inside other files."""

from __future__ import annotations

import io
import os

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify.embedded_copies import (
    REACH,
    search,
    search_stream,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify.library_rules import Paths, parse_rules

BANNER = b"NCCL version 2.14.3+cuda11.8"


def rules(*patterns, provider="**/libnccl.so.2"):
    return parse_rules({
        "embedded": [{"pattern": pattern, "provider": provider, "name": "x%d" % number}
                     for number, pattern in enumerate(patterns)]
    }).embedded


@pytest.mark.parametrize("pattern", [r"NCCL version [0-9.]+\+cuda[0-9.]+", r"[A-Z]{4} version [0-9.]+\+cuda[0-9.]+"])
@pytest.mark.parametrize("before", [0, 1, REACH - 1, REACH, 3 * REACH - 40, 4 * REACH - 1, 4 * REACH, 9 * REACH])
def test_a_text_is_found_whole_wherever_the_chunks_end(pattern, before):
    data = b"\0" * before + BANNER + b"\0" * 3
    for chunk in (4 * REACH, REACH + 7, 100):
        assert search_stream(io.BytesIO(data).read, rules(pattern), chunk)[0][1:] == (before, BANNER)


def test_several_texts_are_found_in_one_pass_even_inside_each_other():
    data = b"--" + BANNER + b"--" + BANNER
    found = search_stream(io.BytesIO(data).read, rules("version 2", "NCCL version", "absent"))
    assert [(rule.name, offset) for rule, offset, _text in found] == [("x0", 7), ("x1", 2)]


def test_the_beginning_of_a_text_alone_is_not_the_text():
    assert search_stream(io.BytesIO(b"NCCL version NCCL version of").read, rules(r"NCCL version \d")) == []
    assert search_stream(io.BytesIO(b"").read, rules(r"NCCL")) == []


def test_only_the_provider_may_hold_it_whatever_name_a_hard_link_has(tmp_path):
    provider, copy, other = tmp_path / "libnccl.so.2", tmp_path / "copy.so", tmp_path / "other.so"
    provider.write_bytes(BANNER)
    os.link(str(provider), str(copy))
    other.write_bytes(b"harmless")
    files = [os.fsencode(str(path)) for path in (copy, provider, other)]
    for order in (files, files[::-1]):
        found, failed = search(order, rules(r"NCCL version \d"), Paths())
        assert [(entry.path, entry.text) for entry in found] == [(files[0], b"NCCL version 2")]
        assert failed == []


def test_a_file_that_is_gone_or_became_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(str(tmp_path / "pipe"))
    files = [os.fsencode(str(tmp_path / name)) for name in ("pipe", "gone")]
    found, failed = search(files, rules("x"), Paths())
    assert found == [] and [path for path, _error in failed] == files[1:]


def test_a_file_that_is_cut_short_while_it_is_read_ends_the_search_of_it(tmp_path):
    path = tmp_path / "big.so"
    path.write_bytes(b"\0" * 300000 + BANNER)
    blocks = []

    def read(size):
        with open(str(path), "rb") as stream:
            stream.seek(sum(map(len, blocks)))
            blocks.append(stream.read(1 << 16))
        path.write_bytes(b"\0" * 70000)
        return blocks[-1]

    assert search_stream(read, rules("NCCL")) == []
    assert len(blocks) == 3
