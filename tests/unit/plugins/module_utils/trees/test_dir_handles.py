# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Keep directories open, and find those again that were closed."""

from __future__ import annotations

import os

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees.dir_handles import (
    OPEN_DIRECTORY,
    Directory,
    Handles,
)


@pytest.fixture()
def top(tmp_path):
    descriptor = os.open(str(tmp_path), OPEN_DIRECTORY)
    yield descriptor
    os.close(descriptor)


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
