# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a manifest leaves out."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees.manifest_exclude import Exclusion


@pytest.mark.parametrize("path, left_out", [
    ("cache", True), ("lib/a.pyc", True), ("lib/a.py", False),
    (".torchstack/manifest.json", True), (".torchstack/.manifest.json.x1y2z3_a", True),
    (".torchstack/.manifest.json.X", False), ("manifest.json", False),
])
def test_globs_the_record_and_what_a_killed_run_left_of_it_are_left_out(path, left_out):
    exclusion = Exclusion([["cache"], ["**/*.pyc"]], [".torchstack/manifest.json", None])
    assert exclusion(path) is left_out


def test_without_globs_only_the_directory_of_the_record_has_to_be_asked_about():
    exclusion = Exclusion([[]], [".torchstack/manifest.json"])
    assert exclusion.within(b".torchstack/") and not exclusion.within(b"") and not exclusion.within(b"lib/")
    assert Exclusion([["*"]], [None]).within(b"lib/")
