# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Which of two versions is the newer one, against the reference implementation of PEP 440."""

from __future__ import annotations

import itertools

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.versions import direction

RELEASES = ("1", "1.0", "1.0.0", "1.1", "1.10", "1!0.1", "v1.2", "2023.10.4", "0")
ENDINGS = (
    "",
    "a1",
    "b2",
    "rc1",
    "-rc.1",
    ".post1",
    "-1",
    ".dev3",
    "a1.dev2",
    "rc1.post2",
    ".post1.dev4",
    "+cpu",
    "+cu118",
    "a",
    "post",
    ".dev",
    ".dev0",
)


def test_python_versions_are_ordered_as_pep_440_orders_their_public_part():
    packaging = pytest.importorskip("packaging.version")
    versions = [release + ending for release in RELEASES for ending in ENDINGS]
    public = {version: packaging.Version(version.partition("+")[0]) for version in versions}
    wrong = []
    for before, after in itertools.product(versions, versions):
        expected = (
            "same"
            if before == after
            else "up"
            if public[before] < public[after]
            else "down"
            if public[before] > public[after]
            else "changed"
        )
        if direction(before, after) != expected:
            wrong.append((before, after, expected, direction(before, after)))
    assert wrong == []


@pytest.mark.parametrize(
    "before, after, expected",
    [
        ("1.1.1w", "3.0.1", "up"),
        ("9e", "9f", "up"),
        ("2024a", "2023c", "down"),
        ("8.1.28.29", "8.1.9", "down"),
        ("1.0", "1.0+g1234", "changed"),
        ("2.13.0+cpu", "2.13.0+cu130", "changed"),
        ("", "1", "up"),
        ("r12", "r12", "same"),
    ],
)
def test_versions_of_other_software_are_ordered_by_their_numbers(before, after, expected):
    assert direction(before, after) == expected
