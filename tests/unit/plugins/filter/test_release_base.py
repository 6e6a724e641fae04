# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The filters over a base hand on what was found, and name what is missing."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.hpcml.torchstack.plugins.filter.release_base import FilterModule

FILTERS = FilterModule().filters()


def test_a_base_is_judged_and_described():
    written = {"base": {"kind": "conda", "python": "3.11", "specs": ["pip"]}, "locks": {"conda": "x"}}
    assert "no python" in FILTERS["base_problems"](written)[0]
    python = {"executable": "/usr/bin/python3", "minor": "3.11", "tag": "cp311", "platform": "linux_x86_64"}
    definition = {"base": {"kind": "python_overlay"}, "locks": {"tools": ""}}
    assert FILTERS["described_base"](definition, "/r", "1", python)["prefix"] == "/r/1/base"


def test_a_machine_without_python_is_named():
    with pytest.raises(AnsibleFilterError, match="no Python was found"):
        FILTERS["described_base"]({"base": {"kind": "python_overlay"}, "locks": {}}, "/r", "1", {})
