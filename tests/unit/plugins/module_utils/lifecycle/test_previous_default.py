# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Whose users an announcement is for: those of the default before."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle.previous_default import outgoing
from ansible_collections.hpcml.torchstack.plugins.module_utils.release.states import ReleaseState


def state(release, default=False, defaulted_at="", name="torchstack"):
    nothing = {"tcl": False, "lmod": False}
    return ReleaseState(
        "/soft",
        release,
        "/soft/" + release,
        {},
        name,
        release,
        nothing,
        {"tcl": default, "lmod": default},
        nothing,
        "",
        nothing,
        None,
        None,
        defaulted_at,
    )


def became(release, previous, by=""):
    return {"release": by or release, "action": "default", "version": release, "previous": previous}


def before(release, states, journal):
    found = outgoing(next(one for one in states if one.release == release), states, journal)
    return found.release if found else ""


@pytest.mark.parametrize(
    "default, journal, release, expected",
    [
        ("", [], "1", ""),
        ("1", [became("1", "")], "1", ""),
        ("1", [became("1", "")], "2", "1"),
        ("2", [became("1", ""), became("2", "1")], "2", "1"),
        ("3", [became("1", ""), became("2", "1"), became("3", "2")], "2", "1"),
        ("3", [became("1", ""), became("2", "1"), became("3", "2")], "1", ""),
        # Rolled back: the default is 1 again, as the journal of 2 says, and 2 still takes the place of 1.
        ("1", [became("1", ""), became("2", "1"), became("1", "2", by="2")], "2", "1"),
        ("1", [became("1", ""), became("2", "1"), became("1", "2", by="2")], "1", ""),
        # Taken back, and something else was the default in between.
        ("3", [became("1", ""), became("2", "1"), became("3", "2"), became("2", "3"), became("3", "2")], "3", "2"),
        # Made the default once more: its users now come from 3.
        ("2", [became("1", ""), became("2", "1"), became("3", "2"), became("2", "3")], "2", "3"),
        ("2", [became("2", "4")], "2", ""),
    ],
)
def test_the_release_before_is_the_default_before(default, journal, release, expected):
    known = [entry["version"] for entry in journal]
    states = [state(name, name == default, "2026" if name in known else "") for name in ("1", "2", "3")]
    assert before(release, states, journal) == expected


def test_releases_of_another_module_take_nobodys_place():
    states = [state("1", True, "2026", "other"), state("2")]
    assert before("2", states, [became("1", "")]) == ""
