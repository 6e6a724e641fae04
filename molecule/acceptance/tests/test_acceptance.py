# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What an accepted release looks like on disk."""

from __future__ import annotations

import json
import os
import pathlib
import pwd

import pytest

ROOT = pathlib.Path(os.environ.get("TORCHSTACK_TEST_ROOT") or os.environ["HOME"] + "/torchstack-test")
STATE = ROOT / ".torchstack" / "2026-11-20"
USER = os.environ.get("ACCEPTANCE_TEST_USER") or os.environ.get("TORCHSTACK_ORDINARY_USER", "")


@pytest.fixture()
def record(host):
    return json.loads(host.file(str(STATE / "acceptance.json")).content_string)


def test_the_release_is_accepted(record):
    assert record["passed"] is True
    assert record["subject"] == "0123456789abcdef"
    assert [check["name"] for check in record["checks"]] == ["imports", "devices", "mpi4py"]


def test_the_record_has_rank_host_and_device(record):
    assert [row["rank"] for row in record["ranks"]] == [0, 1]
    assert all(row["host"] and row["device"] for row in record["ranks"])


def test_the_ranks_ran_as_the_user_that_the_record_names(record):
    name = USER or pwd.getpwuid(os.geteuid()).pw_name
    assert record["user"] == name
    assert {row["uid"] for row in record["ranks"]} == {pwd.getpwnam(name).pw_uid}
    assert record["ordinary_user"] is bool(USER)


def test_without_another_account_the_record_says_so(record):
    said = any("Not as an ordinary user" in sentence for sentence in record["not_checked"])
    assert said is not bool(USER)


def test_the_record_says_whether_it_went_through_the_module(record):
    said = any("Not through the module" in sentence for sentence in record["not_checked"])
    assert said is (record["through"] == "environment")
    assert bool(record["modulefiles"]) is (record["through"] != "environment")


def test_the_rollout_account_owns_the_records(host):
    names = ("acceptance.json", "acceptance.jsonl", "acceptance.log")
    assert {host.file(str(STATE / name)).uid for name in names} == {os.geteuid()}


def test_the_second_run_did_nothing(host):
    assert len(host.file(str(STATE / "acceptance.jsonl")).content_string.splitlines()) == 1


def test_nothing_is_left_of_the_run():
    assert not list(STATE.glob("acceptance.run.*"))
