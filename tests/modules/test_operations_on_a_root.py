# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Operations on one root at once, in random orders of their changes, and killed in between.

After every single change of anybody, the default is a release that is there: its modulefile loads, and its files lie
where that says. In the end no release is published and removed, or thawed and removed, at once.
"""

from __future__ import annotations

import os
import random

import pytest
from support.root_operations import OPERATIONS, clear, make_kept
from support.root_operations import play as play_on

SEQUENCES = int(os.environ.get("TORCHSTACK_ROOT_SEQUENCES", "4"))
"""How many random orders are tried of each pair; by night there are more."""

PAIRS = [(one, other) for number, one in enumerate(OPERATIONS) for other in list(OPERATIONS)[number:]]


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    root = make_kept(tmp_path_factory.mktemp("kept"))
    yield root
    clear(root.parent)


def play(kept, several, seed):
    """Run operations on a fresh copy of the root; what went on."""
    root = kept.with_name("root")
    if root.exists():
        clear(root)
    return play_on(kept, several, seed, root)


@pytest.mark.parametrize("several", PAIRS, ids=" and ".join)
def test_the_default_is_whole_after_every_change_of_two_at_once(kept, several):
    for number in range(SEQUENCES):
        play(kept, several, "%s %d" % (several, number))


def test_the_default_is_whole_after_every_change_of_three_at_once(kept):
    for number in range(8 * SEQUENCES):
        chance = random.Random(number)
        play(kept, chance.choices(list(OPERATIONS), k=3), number)


def test_of_two_who_publish_and_remove_one_release_only_one_succeeds(kept):
    refused = set()
    for number in range(40):
        ended = play(kept, ("default", "remove"), "race %d" % number)
        refused.update(name.split()[0] for name, answer in ended if "StackError" in answer)
    assert refused == {"default", "remove"}
