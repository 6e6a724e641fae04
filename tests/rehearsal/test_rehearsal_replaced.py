# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The table of what a rehearsal replaces."""

from __future__ import annotations

from rehearsal.replaced import differences, table_of

OWN = {"site-login": {"root": "/soft/pytorch", "ranks": 8, "python": "/usr/bin/python3.11"}}


def test_only_what_differs_is_listed():
    here = {"site-login": {**OWN["site-login"], "root": "/shared/software", "user": "researcher"}}
    found = differences(OWN, here)
    assert [(row.variable, row.own, row.here) for row in found] == [
        ("root", "/soft/pytorch", "/shared/software"),
        ("user", "(not set)", "researcher"),
    ]


def test_the_same_variables_replace_nothing_and_the_table_says_so():
    assert differences(OWN, OWN) == []
    assert "replaced nothing" in table_of([], "own", "over")


def test_structures_are_shown_on_one_line_and_long_ones_are_cut():
    found = differences(OWN, {"site-login": {**OWN["site-login"], "ranks": {"per_node": 2, "words": ["srun"] * 40}}})
    assert found[0].own == "8"
    assert found[0].here.startswith('{"per_node": 2,')
    assert found[0].here.endswith(" ...")
    assert len(found[0].here) <= 60


def test_a_host_of_the_rehearsal_alone_is_listed():
    assert ("other", "(the host)") in [(row.host, row.variable) for row in differences(OWN, {**OWN, "other": {}})]


def test_the_table_names_the_inventories_and_lines_up():
    here = {"site-login": {**OWN["site-login"], "root": "/shared/software", "ranks": 2}}
    lines = table_of(differences(OWN, here), "own.yml", "over.yml").splitlines()
    assert "own.yml" in lines[0]
    assert "over.yml" in lines[0]
    assert len({line.index(word) for line, word in zip(lines[1:], ("in the", "2", "/shared"))}) == 1
