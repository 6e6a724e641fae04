# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a release that was fixed looks like on disk."""

from __future__ import annotations

import json
import os
import pathlib

ROOT = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "root"
SITE = ROOT / "2026-11-20" / "base" / "site"
AFTERWARDS = ROOT / ".torchstack" / "2026-11-20"


def test_the_fix_is_there_and_everything_is_read_only(host):
    assert "ANSWER = 42" in host.file(str(SITE / "answer.py")).content_string
    assert "PATCHED = True" in host.file(str(SITE / "patched.py")).content_string
    assert host.run("find %s -type f -perm /222 -o -type d -perm /222", str(ROOT / "2026-11-20")).stdout == ""


def test_the_sibling_that_shared_a_file_keeps_its_own(host):
    assert "PATCHED = False" in host.file(str(ROOT / "2026-10-01" / "patched.py")).content_string


def test_the_journal_says_who_why_and_what(host):
    lines = host.file(str(AFTERWARDS / "thaw.jsonl")).content_string.splitlines()
    opened, closed = (json.loads(line) for line in lines)
    assert (opened["action"], opened["paths"], opened["why"]) == ("thawed", ["base/site"], "The answer is wrong")
    assert opened["who"] and closed["action"] == "refrozen"
    changed = [entry["path"].rpartition("/")[2].split(".")[0] for entry in closed["difference"]]
    assert sorted(changed) == ["answer", "answer", "patched", "patched"]


def test_the_record_of_the_freeze_is_the_new_manifest_s(host):
    frozen = json.loads(host.file(str(AFTERWARDS / "frozen.json")).content_string)
    manifest = json.loads(host.file(str(ROOT / "2026-11-20" / ".torchstack" / "manifest.json")).content_string)
    assert frozen["manifest"]["digest"] == manifest["digest"] and frozen["thawed"] == 1
    assert not host.file(str(AFTERWARDS / "thawed.json")).exists and not host.file(str(AFTERWARDS / "thaw")).exists
