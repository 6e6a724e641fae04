# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Two commands do not work on one cluster at once."""

from __future__ import annotations

import os

import pytest

from rehearsal.alone import alone
from rehearsal.trouble import TroubleError


@pytest.fixture()
def name():
    """A name that no other run of the tests uses."""
    return "torchstack-rehearsal-alone-%d" % os.getpid()


def test_a_second_command_is_refused_with_the_process_of_the_first(name):
    with alone(name), pytest.raises(TroubleError, match=r"%s \(process %d\)" % (name, os.getpid())), alone(name):
        pass


def test_the_next_command_and_one_on_another_cluster_may_work(name):
    with alone(name), alone(name + "-2"):
        pass
    with alone(name):
        pass
