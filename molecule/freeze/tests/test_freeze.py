# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a frozen release looks like on disk."""

from __future__ import annotations

import json
import os
import pathlib

import pytest

ROOT = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "root"
PREFIX = ROOT / "2026-11-20"


@pytest.mark.parametrize(
    "name, mode",
    [("", 0o555), ("base", 0o555), ("base/bin", 0o2555), ("base/bin/run", 0o555), ("base/data", 0o444)],
)
def test_s03_everything_is_readable_and_nothing_writable(host, name, mode):
    assert host.file(str(PREFIX / name)).mode == mode


def test_a_link_is_not_followed_out_of_the_release(host):
    assert host.file(str(ROOT / "outside")).mode == 0o644


def test_the_sources_are_gone(host):
    assert not host.file(str(PREFIX / "src")).exists


def test_the_freeze_is_recorded_outside_of_the_release(host):
    record = json.loads(host.file(str(ROOT / ".torchstack" / "2026-11-20" / "frozen.json")).content_string)
    assert record["digest"] == "0123456789abcdef"
