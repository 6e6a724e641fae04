# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the looks at two releases found, before and after the system moved."""

import json
import os

ROOT = os.path.join(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"], "root")
AFTERWARDS = os.path.join(ROOT, ".torchstack", "2026-11-20")


def test_s45_what_was_found_before_and_after_the_system_moved_is_in_the_history_once_each(host):
    text = host.file(os.path.join(AFTERWARDS, "drift.jsonl")).content_string
    told = [json.loads(line) for line in text.splitlines()]
    assert [line["look"].partition(" on ")[0] for line in told] == ["full", "system", "quick", "system"]
    assert [line.get("passed", line.get("matches")) for line in told] == [True, True, False, False]


def test_s45_a_moved_library_is_named_with_where_it_was_and_where_one_is_now(host):
    looks = json.loads(host.file(os.path.join(AFTERWARDS, "drift.json")).content_string)["looks"]
    outcome, = (look["outcome"] for kind, look in looks.items() if kind.startswith("system on "))
    assert outcome["looked_at"] == ["modules", "modulefile", "libraries", "imports"]
    found = {finding["kind"]: finding for finding in outcome["findings"]}
    assert set(found) == {"missing", "import"}
    place = ROOT + "/system/opt/libfabric/%s/lib64/libfabric.so.1"
    assert found["missing"]["before"] == [place % "1.15"] and found["missing"]["now"] == [place % "1.22"]
    assert found["missing"]["objects"] == ["base/lib/libnet.so"]
    assert "libfabric.so.1" in found["import"]["message"]
    assert [finding["path"] for finding in looks["quick"]["outcome"]["findings"]] == ["base/site/answer.py"]


def test_s45_nothing_is_recorded_in_the_frozen_release(host):
    assert host.file(os.path.join(AFTERWARDS, "drift", "verification.json")).exists
    records = host.file(os.path.join(ROOT, "2026-11-20", ".torchstack")).listdir()
    assert sorted(records) == ["imports.json", "manifest.json", "release.yml", "steps", "verification.json"]
