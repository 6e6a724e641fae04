# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Open directories, work for threads, and a chmod that follows no link."""

from __future__ import annotations

import os
import stat
import threading

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import dir_handles as directories
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees.dir_handles import (
    OPEN_DIRECTORY,
    Directory,
    Handles,
    Work,
)

WAYS = {
    "chosen": directories.choose_chmod(),
    "direct": directories._chmod_direct(),
    "library": directories._chmod_library,
    "by hand": directories._chmod_by_hand,
}


@pytest.fixture(params=sorted(WAYS))
def chmod(request):
    if WAYS[request.param] is None:
        pytest.skip("this kernel has no fchmodat2")
    return WAYS[request.param]


@pytest.fixture()
def top(tmp_path):
    descriptor = os.open(str(tmp_path), OPEN_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def mode(path):
    return stat.S_IMODE(os.lstat(str(path)).st_mode)


def test_every_way_to_change_a_mode_changes_it(chmod, tmp_path, top):
    (tmp_path / "file").write_text("")
    os.mkfifo(str(tmp_path / "pipe"))
    (tmp_path / "with space \n").mkdir()
    for name, bits in (("file", 0o400), ("pipe", 0o444), ("with space \n", 0o2555)):
        chmod(top, name, bits)
        assert mode(tmp_path / name) == bits


def test_no_way_to_change_a_mode_follows_a_link(chmod, tmp_path, top):
    (tmp_path / "file").write_text("")
    (tmp_path / "file").chmod(0o644)
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(OSError):
        chmod(top, "link", 0o400)
    assert mode(tmp_path / "file") == 0o644


def test_every_way_to_change_a_mode_says_when_the_name_is_gone(chmod, top):
    with pytest.raises(FileNotFoundError):
        chmod(top, "nothing", 0o400)


def test_a_file_that_its_owner_cannot_read_can_be_changed(chmod, tmp_path, top):
    (tmp_path / "file").write_text("")
    (tmp_path / "file").chmod(0)
    chmod(top, "file", 0o444)
    assert mode(tmp_path / "file") == 0o444


def test_an_older_system_falls_back_to_what_it_has(monkeypatch):
    monkeypatch.setattr(directories, "_chmod_direct", lambda: None)
    assert directories.choose_chmod() in (directories._chmod_library, directories._chmod_by_hand)

    def without(*_arguments, **_options):
        raise NotImplementedError("chmod: follow_symlinks unavailable on this platform")

    monkeypatch.setattr(directories.os, "chmod", without)
    assert directories.choose_chmod() is directories._chmod_by_hand


@pytest.fixture()
def chain(tmp_path, top):
    """Handles for a chain of directories below tmp_path, handed over as a walk would."""
    made = []

    def make(depth, capacity):
        handles = Handles(Directory(None, "top"), top, capacity)
        made.append(handles)
        at, path, nodes = handles.top, tmp_path, []
        for level in range(depth):
            at, path = Directory(at, "d%d" % level), path / ("d%d" % level)
            path.mkdir()
            found = os.stat(str(path))
            at.identity = (found.st_dev, found.st_ino)
            handles.keep(at, os.open(str(path), OPEN_DIRECTORY))
            nodes.append(at)
            assert len(handles.open) <= capacity
        return handles, nodes

    yield make
    for handles in made:
        handles.close()


def test_directories_closed_for_others_are_opened_again_and_recognised(chain):
    handles, nodes = chain(40, 8)
    for node in reversed(nodes):
        with handles.use(node) as descriptor:
            found = os.fstat(descriptor)
            assert (found.st_dev, found.st_ino) == node.identity
        assert len(handles.open) <= 8


def test_a_directory_replaced_meanwhile_is_not_taken_for_the_old_one(chain, tmp_path):
    handles, nodes = chain(12, 4)
    (tmp_path / "d0" / "d1").rename(tmp_path / "d0" / "elsewhere")
    (tmp_path / "d0" / "d1").mkdir()
    with pytest.raises(OSError, match="replaced"), handles.use(nodes[1]):
        pass


def test_a_directory_replaced_by_a_link_is_not_entered(chain, tmp_path):
    handles, nodes = chain(12, 4)
    (tmp_path / "d0" / "d1").rename(tmp_path / "elsewhere")
    (tmp_path / "d0" / "d1").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError), handles.use(nodes[1]):
        pass


def test_a_directory_closes_when_nothing_needs_it_any_more(chain):
    handles, nodes = chain(1, 4)
    handles.expect(nodes[0])
    handles.release(nodes[0])
    assert nodes[0] in handles.open
    handles.release(nodes[0])
    assert nodes[0] not in handles.open


def test_a_directory_that_another_thread_passes_through_is_not_closed(chain):
    handles, nodes = chain(1, 4)
    with handles.use(nodes[0]) as descriptor:
        handles.release(nodes[0])
        os.fstat(descriptor)
    assert nodes[0] in handles.open


def test_every_item_is_worked_off_once_by_any_number_of_threads():
    work, done, lock = Work(), [], threading.Lock()

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
    work = Work()
    work.put("never finished")
    assert work.get() == "never finished"
    waiting = threading.Thread(target=work.get)
    waiting.start()
    work.fail(ValueError("first"))
    work.fail(ValueError("second"))
    waiting.join(30)
    assert not waiting.is_alive()
    assert str(work.failure) == "first"
