# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""release_thaw in real processes that die, or whose calls fail, at every change of the file system.

``TORCHSTACK_THAW_FAULTS=all`` lets every call fail, and tear, where otherwise every eighth does; processes die at each.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import thaw
from support import faults
from support.fault_server import FaultServer
from support.frozen_release import FIX, OTHER, SHARED, SITE, World

# A process that dies before it flushes leaves what one leaves that dies at its next change.
CALLS = tuple(group for group in faults.CHANGES if group != "sync")
ALL = os.environ.get("TORCHSTACK_THAW_FAULTS") == "all"
PROGRAM = """
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import thaw
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
def work(requests):
    try:
        for request in requests:
            thaw.carry_out(thaw.Request(**request), True)
    except StackError as error:
        return error.message
    return "done"
"""


@pytest.fixture()
def place(tmp_path):
    """Where the roots are: in memory, where a flush takes no time, if there is room."""
    memory = pathlib.Path("/dev/shm")
    place = pathlib.Path(tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else tmp_path))
    yield place
    subprocess.run(["chmod", "-R", "u+rwX", str(place)], check=True)
    shutil.rmtree(str(place))


def a_world(place, number):
    root = place / ("%03d" % number) / "root"
    root.mkdir(parents=True)
    return World(root)


def fix(world):
    """A fix of a file by itself, of one that is shared with a sibling, and of a directory that gets a new file."""
    files = [world.send(FIX, "ANSWER = 42\n"), world.send(SITE + "/package/new.py", "NEW = 1\n")]
    paths = [FIX, SHARED, SITE + "/package"]
    return [world.request(paths=paths, files=files, only_for_files=True), world.request("refrozen", files=files)]


def as_data(requests):
    return [request._asdict() for request in requests]


def shape(world):
    """What the release is: mode, names and content of each path, wherever its root is."""
    found = {}
    for name, (mode, links, content) in world.snapshot().items():
        if name.startswith(world.prefix.name + os.sep) and not name.endswith("manifest.json"):
            found[name] = (mode, links, content.replace(str(world.root).encode(), b"ROOT"))
    return found


def verify(world, expected):
    assert shape(world) == expected
    assert world.compared()["matches"] and world.compared()["digest"] == world.read("frozen.json")["manifest"]["digest"]
    assert world.sibling.read_text() == "SHARED = 1\n"
    assert [entry["action"] for entry in world.journal()] == ["thawed", "refrozen"]
    changed = [entry["path"] for entry in world.journal()[1]["difference"]]
    assert FIX in changed and SITE + "/package/new.py" in changed and OTHER not in changed
    assert world.read("frozen.json")["thawed"] == 1 and world.read("thawed.json") is None
    assert sorted(os.listdir(str(world.afterwards))) == ["frozen.json", "thaw.jsonl"]


@pytest.mark.parametrize("action", ["kill", "torn", "error:ENOSPC"])
def test_s10_a_fix_that_dies_at_any_write_is_completed_by_the_next_run(fault_library, tmp_path, place, action):
    whole = a_world(place, 0)
    with_faults = FaultServer(fault_library, PROGRAM, tmp_path, place, action, CALLS)
    try:
        requests = as_data(fix(whole))
        assert with_faults.run(None, requests=requests) == "done"
        changes = int.from_bytes((tmp_path / ("counter-" + action)).read_bytes(), sys.byteorder) % 1000000
        expected = shape(whole)
        verify(whole, expected)
        assert whole.imported() == "42" and whole.imported("package.new", "NEW") == "1" and changes > 40
        for number in range(1, changes + 1, 1 if ALL or action == "kill" else 8):
            world = a_world(place, number)
            assert with_faults.run(number, requests=as_data(fix(world))) != ("done" if action == "kill" else "")
            again = fix(world)
            for request in again:
                thaw.carry_out(request, True)
            verify(world, expected)
            before = world.snapshot()
            assert not any(thaw.carry_out(request, True)["changed"] for request in again), number
            assert world.snapshot() == before
            shutil.rmtree(str(world.afterwards))
    finally:
        with_faults.close()
