# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Work that threads share: every item once, and an end for all."""

from __future__ import annotations

import threading

from ansible_collections.hpcml.torchstack.plugins.module_utils.trees.work_queue import WorkQueue


def test_every_item_is_worked_off_once_by_any_number_of_threads():
    work, done, lock = WorkQueue(), [], threading.Lock()

    def serve():
        for item in iter(work.get, None):
            with lock:
                done.append(item)
            if item < 500:
                work.put(item + 1000)
            work.done()

    for number in range(500):
        work.put(number)
    threads = [threading.Thread(target=serve) for _number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(done) == [*range(500), *range(1000, 1500)]


def test_a_failure_lets_every_thread_go():
    work = WorkQueue()
    work.put("never finished")
    assert work.get() == "never finished"
    waiting = threading.Thread(target=work.get)
    waiting.start()
    work.fail(ValueError("first"))
    work.fail(ValueError("second"))
    waiting.join(30)
    assert not waiting.is_alive()
    assert str(work.failure) == "first"
