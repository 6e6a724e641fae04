# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The page about trust names tests that there are."""

from __future__ import annotations

import pathlib
import re

TOP = pathlib.Path(__file__).resolve().parents[2]


def test_each_finding_of_the_page_about_trust_names_a_test_that_there_is():
    text = (TOP / "docs" / "explanation" / "trust.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| .* \| `(tests/[^`]+)` \| (.+) \|$", text, re.MULTILINE)
    assert len(rows) > 20
    missing = [
        "%s::%s" % (file, name) for file, names in rows for name in re.findall("`([^`]+)`", names)
        if "def %s(" % name not in (TOP / file).read_text(encoding="utf-8")]
    assert missing == []
