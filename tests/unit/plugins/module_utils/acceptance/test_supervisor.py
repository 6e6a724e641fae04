# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How the ranks of an acceptance that hangs are asked for their stacks."""

from __future__ import annotations

import os
import signal

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import supervisor
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.processes import read_process


@pytest.fixture()
def job(monkeypatch):
    """A job that is its launcher, process 1, and some ranks; what it does to them is written down in ``done``."""
    made, done = supervisor.Job.__new__(supervisor.Job), []
    monkeypatch.setattr(supervisor.os, "kill", lambda pid, signum: done.append((pid, signum)))
    monkeypatch.setattr(supervisor.time, "sleep", done.append)
    made.child, made.done = 1, done
    return made


def listening(job, monkeypatch, *pids):
    known = read_process(os.getpid())
    job.members = lambda: [known._replace(pid=pid) for pid in (1, 2, 3)]
    monkeypatch.setattr(supervisor, "catches", lambda pid, signum: pid in pids)


def test_s32_one_rank_is_asked_after_the_other(job, monkeypatch):
    listening(job, monkeypatch, 2, 3)
    job.dump_stacks()
    apart = supervisor.APART_SECONDS
    assert job.done == [(2, signal.SIGUSR1), apart, (3, signal.SIGUSR1), apart, supervisor.DUMP_SECONDS]


def test_s32_a_launcher_that_listens_passes_the_signal_on_by_itself(job, monkeypatch):
    listening(job, monkeypatch, 1, 2, 3)
    job.dump_stacks()
    assert [step for step in job.done if isinstance(step, tuple)] == [(1, signal.SIGUSR1)]


def test_s32_many_ranks_are_asked_before_anybody_takes_the_supervisor_for_lost(job, monkeypatch):
    known = read_process(os.getpid())
    job.members = lambda: [known._replace(pid=pid) for pid in range(2, 514)]
    monkeypatch.setattr(supervisor, "catches", lambda pid, signum: True)
    job.dump_stacks()
    assert sum(step for step in job.done if not isinstance(step, tuple)) < 20
