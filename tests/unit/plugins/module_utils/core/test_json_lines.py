# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Journals that only grow, and who wrote to them."""

from __future__ import annotations

import os
import pwd
import re

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import account, clock
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import json_lines as subject


def test_entries_come_back_in_their_order(tmp_path):
    path = str(tmp_path / "a.jsonl")
    assert subject.entries(path) == []
    for number in range(3):
        subject.append(path, {"number": number, "text": "ä\nb"})
    assert [entry["number"] for entry in subject.entries(path)] == [0, 1, 2]
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == 3


def test_everybody_may_read_a_journal_whatever_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        subject.append(str(tmp_path / "a.jsonl"), {})
    finally:
        os.umask(before)
    assert (tmp_path / "a.jsonl").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("torn", ['{"number": 1, "te', '{"number": 1}', "\udce4".encode("utf-8", "surrogateescape")])
def test_a_line_that_was_cut_takes_no_other_with_it(tmp_path, torn):
    path = tmp_path / "a.jsonl"
    subject.append(str(path), {"number": 0})
    with open(path, "ab") as stream:
        stream.write(torn if isinstance(torn, bytes) else torn.encode())
    subject.append(str(path), {"number": 2})
    numbers = [entry["number"] for entry in subject.entries(str(path))]
    assert numbers == ([0, 1, 2] if torn == '{"number": 1}' else [0, 2])


def test_what_is_no_entry_is_passed_over(tmp_path):
    (tmp_path / "a.jsonl").write_text('[]\n"x"\n{"a": 1}\n\n')
    assert subject.entries(str(tmp_path / "a.jsonl")) == [{"a": 1}]


def test_whoever_came_through_sudo_is_named_and_not_the_account_of_the_rollout(monkeypatch):
    monkeypatch.setenv("SUDO_USER", "alice")
    assert account.actor() == "alice"
    monkeypatch.setenv("SUDO_USER", "alice\n{evil}")
    assert account.actor() == pwd.getpwuid(os.getuid()).pw_name
    monkeypatch.delenv("SUDO_USER")
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    assert account.actor() == "4000000000"


def test_times_are_in_utc_to_the_second():
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", clock.now())
