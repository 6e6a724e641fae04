# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The nodes' packages come from where this machine's come from, if it has the same distribution."""

from __future__ import annotations

from rehearsal.distribution import sources_among

SUITE = "https://mirror.example.org/debian|bookworm|main|bookworm|Debian"
SECURITY = "https://mirror.example.org/security|bookworm-security|main|bookworm-security|Debian"
VENDOR = "https://vendor.example.org/apt|bookworm|main|bookworm|Vendor"


def test_the_suite_and_its_updates_are_taken_and_nothing_of_others():
    assert sources_among([SUITE, SECURITY, VENDOR, SUITE]) == [
        "deb https://mirror.example.org/debian bookworm main",
        "deb https://mirror.example.org/security bookworm-security main",
    ]


def test_another_distribution_or_suite_leaves_the_choice_to_mmdebstrap():
    assert sources_among([]) == []
    assert sources_among([SECURITY, VENDOR]) == []
    assert sources_among(["https://mirror.example.org/debian|trixie|main|trixie|Debian"]) == []
    assert sources_among(["https://mirror.example.org/ubuntu|jammy|main|jammy|Ubuntu"]) == []


def test_an_archive_on_this_machine_is_not_taken_as_the_new_system_does_not_see_it():
    assert sources_among(["mirror+file:/etc/apt/mirrors/debian.list|bookworm|main|bookworm|Debian"]) == []
