# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Have other processes answer calls: all are answered, and a death is noticed."""

from __future__ import annotations

import os
import signal
import time

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees.call_pool import CallPool
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees.process_pool import MAX_ITEM

KILLED = StackError("One of them was killed.", "read the tree", "See what killed it.", "/tree")


@pytest.fixture(name="made")
def pools_that_are_shut_down():
    """Make pools that are shut down after the test, and leave no descriptor and no process behind."""
    before = len(os.listdir("/proc/self/fd"))
    pools = []

    def make(*arguments):
        pools.append(CallPool(*arguments, KILLED))
        return pools[-1]

    yield make
    for pool in pools:
        copies = list(pool.copies)
        pool.shutdown()
        for pid in copies:
            with pytest.raises(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
    assert len(os.listdir("/proc/self/fd")) == before


def test_calls_are_answered_in_any_order(made):
    pool = made(2, lambda number: number * 2, 2)
    calls = [pool.submit(number) for number in range(4)]
    assert [call.result() for call in reversed(calls)] == [6, 4, 2, 0]
    assert len(pool.copies) == 2


def test_more_calls_than_the_copies_may_have_are_refused_until_one_is_answered(made):
    pool = made(1, lambda seconds: time.sleep(seconds) or [seconds], 2)
    first, second = pool.submit(0.3), pool.submit(0.0)
    assert pool.submit(0.0) is None
    assert first.result() == [0.3] and second.result() == [0.0]
    assert pool.submit(0.0).result() == [0.0]


def test_answers_longer_than_a_pipe_holds_arrive_whole(made):
    pool = made(2, lambda length: b"x" * length, 4)
    calls = [pool.submit(length) for length in (1 << 20, 0, 3 << 20, 17)]
    assert [len(call.result()) for call in calls] == [1 << 20, 0, 3 << 20, 17]


def test_a_call_too_long_to_hand_over_is_refused(made):
    assert made(1, len, 2).submit(b"x" * MAX_ITEM) is None


def test_a_copy_that_is_killed_is_the_error_of_the_pool(made):
    pool = made(1, lambda _argument: os.kill(os.getpid(), signal.SIGKILL), 2)
    call = pool.submit("anything")
    with pytest.raises(StackError, match="One of them was killed") as caught:
        call.result()
    assert caught.value.path == "/tree"


def test_without_further_processes_every_call_is_refused(made, monkeypatch):
    def refused():
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refused)
    assert made(2, len, 2).submit(b"") is None
