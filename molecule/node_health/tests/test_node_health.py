# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a look at this machine leaves on disk."""

from __future__ import annotations

import json
import os
import pathlib

import pytest

RECORDS = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "root" / ".torchstack"
STATE = RECORDS / "2026-11-20"


@pytest.fixture()
def record(host):
    return json.loads(host.file(str(STATE / "node_health.json")).content_string)


def test_the_machine_is_fit(record):
    assert record["passed"] is True and record["subject"] == "0123456789abcdef"
    (node,) = record["nodes"]
    assert node["host"] == os.uname().nodename and node["facts"]["storage"][0]["files"]


def test_what_was_not_seen_is_said(record):
    assert any("may get other nodes" in sentence for sentence in record["not_checked"])
    (node,) = record["nodes"]
    unseen = any("The kernel's log was not seen" in sentence for sentence in node["not_seen"])
    assert unseen is not bool(node["facts"]["log"]["source"])


def test_the_second_run_did_not_look_again(host):
    assert len(host.file(str(STATE / "node_health.jsonl")).content_string.splitlines()) == 1


def test_a_machine_without_its_gpus_is_refused(host):
    refused = json.loads(host.file(str(RECORDS / "2026-11-21" / "node_health.json")).content_string)
    assert refused["passed"] is False and refused["nodes"][0]["findings"]


def test_nothing_is_left_of_the_look():
    assert not list(STATE.glob("acceptance.run.*"))
