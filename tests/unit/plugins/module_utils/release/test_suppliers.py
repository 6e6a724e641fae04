# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Suppliers in a bill of materials."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.release import suppliers


@pytest.mark.parametrize("metadata, said", [
    ({"Author": "Jane Doe"}, "Person: Jane Doe"),
    ({"Author": "UNKNOWN", "Maintainer": "The Example Developers"}, "Organization: The Example Developers"),
    ({"Author-email": "Example Inc <a@example.org>"}, "Organization: Example Inc"),
    ({"Author-email": "team@example.org"}, "Organization: example.org"),
    ({"Author": "Jane Doe (and others)"}, "Person: Jane Doe"),
    ({"Author": "Jane Doe, John Roe"}, "Organization: Jane Doe, John Roe"),
    ({"Author": "A\x1b]0;title\x07 B\n  C D E F"}, "Organization: A B C D E F"),
    ({"Author": "x" * 5000}, "Organization: " + "x" * 120),
    ({"Author": "()"}, ""),
    ({}, ""),
])
def test_a_distribution_is_supplied_by_whom_its_metadata_names(metadata, said):
    assert suppliers.of_metadata(metadata) == said


@pytest.mark.parametrize("url, said", [
    ("https://github.com/NVIDIA/nccl", "Organization: NVIDIA"),
    ("https://git.example.org/group/x.git", "Organization: git.example.org"),
    ("file:///shared/x.git", ""),
    ("http://[x", ""),
    ("/shared/x.git", ""),
    ("", ""),
])
def test_a_source_is_supplied_by_whose_address_it_has(url, said):
    assert suppliers.of_address(url) == said


@pytest.mark.parametrize("channel, said", [
    ("https://conda.example.org/conda-forge", "Organization: conda-forge"),
    ("conda-forge", "Organization: conda-forge"),
    ("file:///mirror/conda", ""),
    ("", ""),
])
def test_a_conda_package_is_supplied_by_its_channel(channel, said):
    assert suppliers.of_channel(channel) == said
