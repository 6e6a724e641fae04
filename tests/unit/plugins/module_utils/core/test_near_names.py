# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The known name that an unknown one was meant for."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.near_names import VERY_NEAR, find_nearest, nearest

KNOWN = ("partition", "walltime", "memory_per_gpu", "memory", "qos")


@pytest.mark.parametrize(("word", "meant"), [
    ("partiton", "partition"), ("Partition", "partition"), ("memory-per-gpu", "memory_per_gpu"), ("menory", "memory"),
    ("wall-time", "walltime"), ("weather", ""), ("", ""),
])
def test_a_slip_is_answered_with_the_name_that_is_most_like_it(word, meant):
    assert nearest(word, KNOWN) == meant


def test_what_might_be_somebody_s_own_is_only_taken_for_a_slip_where_it_is_very_like_a_name():
    assert nearest("memories", KNOWN) == "memory" and nearest("memories", KNOWN, VERY_NEAR) == ""
    assert nearest("partitionn", KNOWN, VERY_NEAR) == "partition"


def test_how_alike_they_are_is_told_and_the_first_of_several_is_taken():
    assert find_nearest("qos", KNOWN) == ("qos", 1.0) and find_nearest("xyz", KNOWN) == ("", 0.0)
    assert nearest("ab1", ["ab3", "ab2"]) == "ab2"


def test_of_equally_like_names_the_one_of_the_same_letters_is_meant():
    assert nearest("lsit", ["lint", "list", "lock"]) == "list"
