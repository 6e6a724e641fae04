# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The page of a report where a release is accepted on several partitions."""

from __future__ import annotations

import pathlib
import re

from ansible_collections.hpcml.torchstack.plugins.module_utils.report import (
    document,
    page,
)
from support import report_records

TEMPLATES = pathlib.Path(page.__file__).parents[3] / "roles" / "report" / "templates"


def test_a_page_has_the_sections_of_each_partition_under_anchors_that_are_there_once(tmp_path):
    place = tmp_path / ".torchstack" / report_records.RELEASE
    report_records.write(place / "frozen.json", {"digest": report_records.DIGEST, "frozen_at": "2026-11-20T12:00:00Z"})
    said = {"a100": {}, "l40s": {"optional": "It is new."}, "old": {"left_out": "It goes."}}
    report_records.write(place / "partitions.json", said)
    accepted = {"a100": report_records.acceptance(), "l40s": report_records.acceptance(1, 2, passed=False)}
    for name, record in accepted.items():
        report_records.write(place / "partitions" / name / "acceptance.json", record)
        report_records.write(place / "partitions" / name / "acceptance.jsonl", "")
    facts = document.update_document(str(tmp_path), report_records.RELEASE, {}, True)["facts"]
    text = page.render_page(facts, str(TEMPLATES))
    anchors = re.findall(r' id="([^"]+)"', text)
    assert len(anchors) == len(set(anchors))
    assert {"acceptance-a100", "bandwidth-l40s", "health-a100", "sweep-l40s", "unchecked"} <= set(anchors)
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(anchors)
    assert "Acceptance on partition l40s" in text and "Acceptance on partition old" not in text
    assert "Partition old is left out: It goes." in text and "Partition l40s is optional: It is new." in text
    assert "No pair sweep was run on partition a100" in text and "a100: 8 ranks on 2 hosts" in text
