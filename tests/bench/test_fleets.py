# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The diagnosis of a pair sweep on a thousand simulated fleets; the unit tests take some of them."""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from unit.plugins.module_utils.acceptance.test_sweep_diagnosis import tally


def test_s28_of_1000_simulated_fleets_the_slow_are_named_and_nobody_else():
    bad, missed, accused, rounds = tally(range(1000))
    print("%d slow, %d missed, %d accused; %d rounds for suspects in the middle, %d at most" % (
        bad, missed, accused, rounds[500], rounds[-1]))
    assert missed <= 0.01 * bad, "%d of %d were missed" % (missed, bad)
    assert accused <= 1, "%d innocent ones were accused" % accused
