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
    manifest = json.loads(host.file(str(PREFIX / ".torchstack" / "manifest.json")).content_string)
    assert record["digest"] == "0123456789abcdef"
    assert record["manifest"]["files"] == sum(entry["type"] == "file" for entry in manifest["entries"])
    assert not host.file(str(ROOT / ".torchstack" / "2026-11-20" / "freezing.json")).exists


def test_the_manifest_has_the_modes_of_the_frozen_tree(host):
    manifest = json.loads(host.file(str(PREFIX / ".torchstack" / "manifest.json")).content_string)
    modes = {entry["path"]: entry["mode"] for entry in manifest["entries"] if "mode" in entry}
    assert modes[".torchstack"] == "0555"
    assert modes["base/bin"] == "2555"
    assert host.file(str(PREFIX / ".torchstack")).mode == 0o555


def test_s04_what_can_be_compiled_has_bytecode_and_the_rest_is_listed(host):
    record = json.loads(host.file(str(PREFIX / ".torchstack" / "bytecode.json")).content_string)
    assert (record["files"], record["failed"]) == (2, ["base/site/template.py"])
    names = host.file(str(PREFIX / "base" / "site" / "__pycache__")).listdir()
    assert [name.split(".")[0] for name in names] == ["answer"]


def test_s09_the_logs_are_archived_and_committed(host):
    record = json.loads(host.file(str(ROOT / ".torchstack" / "2026-11-20" / "frozen.json")).content_string)
    assert host.file(record["logs"]["archive"]).is_file
    place = record["logs"]["commit"] + ":mysite/2026-11-20/bytecode/log"
    assert "template.py" in host.run("git -C %s show %s", str(ROOT / "logs.git"), place).stdout
