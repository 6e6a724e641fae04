# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Processes that share out work: everything is done once, all of them end, and a death is noticed."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees.process_pool import MAX_ITEM, ProcessPool, may_fork


@pytest.fixture(name="forked")
def processes_forked_here(monkeypatch):
    """The processes that the test has forked."""
    found = []
    fork = os.fork

    def recorded():
        found.append(fork())
        return found[-1]

    monkeypatch.setattr(os, "fork", recorded)
    return found


def none_is_left(forked):
    """Whether all of them have ended and were waited for."""
    assert forked
    for pid in forked:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def work_off(pool, pile):
    """Do what is in the pile and what comes; a number makes two smaller ones."""
    done = []
    while True:
        while pile:
            number = pile.pop()
            done.append(number)
            for below in (2 * number, 2 * number + 1):
                if below < 4000 and not (pool.has_idle_worker and pool.put(below)):
                    pile.append(below)
        item = pool.take()
        if item is None:
            return done
        pile.append(item)


@pytest.mark.parametrize("size", [2, 4])
def test_every_item_is_done_once_by_one_of_them_and_all_end(size, forked):
    before = os.listdir("/proc/self/fd")
    for _time in range(5):
        pool = ProcessPool(size)
        try:
            pool.start(lambda pool=pool: work_off(pool, []))
            done = work_off(pool, [1])
            for others in pool.results():
                done += others
        finally:
            pool.shutdown()
        assert sorted(done) == list(range(1, 4000))
    assert os.listdir("/proc/self/fd") == before
    none_is_left(forked)


def test_a_killed_copy_is_an_error_and_not_a_wait_for_ever():
    pool = ProcessPool(2)
    try:
        pool.start(lambda: os.kill(os.getpid(), signal.SIGKILL))
        with pytest.raises(StackError, match="was killed"):
            pool.take()
        with pytest.raises(StackError, match="was killed"):
            pool.results()
    finally:
        pool.shutdown()


def test_who_gives_up_lets_the_others_go():
    pool = ProcessPool(2)
    try:
        pool.start(pool.take)
        pool.give_up()
        assert pool.given_up and pool.take() is None and pool.results() == [None]
    finally:
        pool.shutdown()


def test_what_is_too_long_and_what_finds_no_room_stays_where_it_is():
    pool = ProcessPool(1)
    try:
        assert not pool.put("x" * MAX_ITEM)
        sent = 0
        while pool.put("x" * (MAX_ITEM // 2)):
            sent += 1
        assert 0 < sent < 1000
    finally:
        pool.shutdown()


def test_without_further_processes_the_first_one_works_alone(monkeypatch):
    pool = ProcessPool(3)

    def refused():
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refused)
    try:
        with pytest.raises(OSError, match="unavailable"):
            pool.start(list)
        assert sorted(work_off(pool, [1])) == list(range(1, 4000)) and pool.results() == []
    finally:
        pool.shutdown()


def test_nobody_is_forked_next_to_a_thread():
    assert may_fork()
    stop = threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()
    assert not may_fork()
    stop.set()
    other.join()
