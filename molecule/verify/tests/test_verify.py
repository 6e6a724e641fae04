# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the verification leaves behind."""

from __future__ import annotations

import json
import os
import pathlib

ROOT = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "root"
RECORDS = ROOT / "2026-11-20" / ".torchstack"


def record(host, name):
    return json.loads(host.file(str(RECORDS / name)).content_string)


def test_every_object_is_recorded_with_where_its_libraries_are(host):
    objects = record(host, "verification.json")["objects"]
    assert sorted(objects) == ["base/lib/libanswer.so", "base/lib/libinner.so", "base/plugins/libdevice.so"]
    assert objects["base/lib/libanswer.so"]["needed"]["libinner.so"]["path"] == "base/lib/libinner.so"
    assert objects["base/plugins/libdevice.so"]["needed"]["libdriver.so.1"]["path"] is None


def test_the_rules_are_recorded_without_words_in_braces_that_only_the_role_knows(host):
    rules = record(host, "verification.json")["rules"]
    assert rules["providers"][0]["path"] == "{prefix}/base/lib/*"
    assert rules["environment"] == {"LD_LIBRARY_PATH": "{prefix}/base/plugins"}


def test_what_the_imports_mapped_and_reported_is_recorded(host):
    imports = record(host, "imports.json")
    assert imports["reported"] == {"answer.number()": 42, "answer.VERSION": "42", "answer.mode()": "quick"}
    mapped = {entry["path"]: entry["brought_by"] for entry in imports["mapped"]}
    assert mapped["base/lib/libinner.so"] == "answer"


def test_a_release_with_a_finding_has_no_record(host):
    assert not host.file(str(ROOT / "verification.json")).exists
