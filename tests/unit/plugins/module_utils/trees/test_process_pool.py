# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Processes that share out work: everything is done once, all of them end, and a death is noticed."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees.manifest_helpers import Helpers
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees.process_pool import LONGEST, Crew, may_fork


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


def work_off(crew, pile):
    """Do what is in the pile and what comes; a number makes two smaller ones."""
    done = []
    while True:
        while pile:
            number = pile.pop()
            done.append(number)
            for below in (2 * number, 2 * number + 1):
                if below < 4000 and not (crew.hungry and crew.put(below)):
                    pile.append(below)
        item = crew.take()
        if item is None:
            return done
        pile.append(item)


@pytest.mark.parametrize("size", [2, 4])
def test_every_item_is_done_once_by_one_of_them_and_all_end(size, forked):
    before = os.listdir("/proc/self/fd")
    for _time in range(5):
        crew = Crew(size)
        try:
            crew.recruit(lambda crew=crew: work_off(crew, []))
            done = work_off(crew, [1])
            for others in crew.results():
                done += others
        finally:
            crew.dismiss()
        assert sorted(done) == list(range(1, 4000))
    assert os.listdir("/proc/self/fd") == before
    none_is_left(forked)


def test_a_killed_copy_is_an_error_and_not_a_wait_for_ever():
    crew = Crew(2)
    try:
        crew.recruit(lambda: os.kill(os.getpid(), signal.SIGKILL))
        with pytest.raises(StackError, match="was killed"):
            crew.take()
        with pytest.raises(StackError, match="was killed"):
            crew.results()
    finally:
        crew.dismiss()


def test_who_gives_up_lets_the_others_go():
    crew = Crew(2)
    try:
        crew.recruit(crew.take)
        crew.give_up()
        assert crew.given_up and crew.take() is None and crew.results() == [None]
    finally:
        crew.dismiss()


def test_what_is_too_long_and_what_finds_no_room_stays_where_it_is():
    crew = Crew(1)
    try:
        assert not crew.put("x" * LONGEST)
        sent = 0
        while crew.put("x" * (LONGEST // 2)):
            sent += 1
        assert 0 < sent < 1000
    finally:
        crew.dismiss()


def test_without_further_processes_the_first_one_works_alone(monkeypatch):
    crew = Crew(3)

    def refused():
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refused)
    try:
        with pytest.raises(OSError, match="unavailable"):
            crew.recruit(list)
        assert sorted(work_off(crew, [1])) == list(range(1, 4000)) and crew.results() == []
    finally:
        crew.dismiss()


def test_nobody_is_forked_next_to_a_thread():
    assert may_fork()
    stop = threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()
    assert not may_fork()
    stop.set()
    other.join()


def test_questions_are_answered_in_any_order(forked):
    helpers = Helpers(2, "/tree", lambda number: number * 2)
    try:
        tickets = [helpers.ask(number) for number in range(4)]
        assert helpers.ask(4) is None or helpers.copies, "no more than two each"
        assert [helpers.wait(ticket) for ticket in reversed(tickets)] == [6, 4, 2, 0]
    finally:
        helpers.dismiss()
    none_is_left(forked)


def test_a_killed_helper_is_an_error_that_names_the_tree():
    helpers = Helpers(1, "/tree", lambda _question: os.kill(os.getpid(), signal.SIGKILL))
    try:
        ticket = helpers.ask("anything")
        with pytest.raises(StackError, match="read /tree was killed") as caught:
            helpers.wait(ticket)
        assert caught.value.path == "/tree"
    finally:
        helpers.dismiss()
