# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""modulefile_publish and module_cache killed at every change of the file system, through a release's whole life.

Whatever a killed run leaves, users see only whole files and a default that loads; the next run completes the step, and
the one after that changes nothing.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import tempfile

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.layout import SYNTAXES, default_version
from support.fault_server import FaultServer
from support.published_release import NAME, change, stage
from support.root_operations import PUBLISH

PROGRAM = """
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.modules import module_cache, modulefile_publish

class Module:
    check_mode = False

    def __init__(self, params):
        self.params, self.warnings = params, []

    def warn(self, text):
        self.warnings.append(text)

def work(**params):
    try:
        if "command" in params:
            return module_cache.run(Module(params))
        return modulefile_publish.run(Module(params))
    except StackError as error:
        return dict(error.as_result(), failed=True, changed=False)
"""
TOLD = "torchstack/2 goes."
LIFE = [
    {"state": "hidden"},
    {"visible": True, "known_problems": ["It is slow."]},
    {"default": True},
    {"state": "rolled_back", "release": ""},
    {"default": True},
    {"release": "1", "default": True},
    {"release": "3", "visible": True, "default": True, "first_only": True},
    {"state": "rolled_back", "release": ""},
    {"state": "deprecated", "notice": TOLD},
    {"state": "hidden", "notice": TOLD},
    {"state": "gone", "notice": "torchstack/2 is gone."},
    {"visible": True, "revive": True},
    {"state": "withdrawn"},
]


@pytest.fixture()
def server(fault_library, collections_path, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(collections_path))
    started = []

    def start(*arguments, **options):
        started.append(FaultServer(fault_library, PROGRAM, tmp_path, *arguments, **options))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture()
def root(tmp_path):
    """Three releases, the first of which is the default; in memory, where a flush takes no time, if there is room."""
    memory = pathlib.Path("/dev/shm")
    place = pathlib.Path(tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else tmp_path))
    yield make(place / "root")
    shutil.rmtree(place)


def make(top):
    for version in ("1", "2"):
        stage(top, version)
    # After whatever this test does to the default.
    stage(top, "3", frozen_at="2999-01-01T00:00:00Z")
    change(top, "1", default=True)
    return top


def seen(root):
    """What users and operators have, by path; neither the journal nor the lock counts."""
    found = {}
    for directory, _directories, names in os.walk(root):
        for name in names:
            path = os.path.join(directory, name)
            if not name.startswith(("publish.", ".publish.lock.json.")):
                with open(path, "rb") as stream:
                    found[os.path.relpath(path, root)] = stream.read()
    return found


def visible(root):
    """The module tree as module systems read it: what a killed run had begun to write begins with a dot and is not
    read."""
    return {path: content for path, content in seen(root).items() if path.startswith("modulefiles/") and (
        not os.path.basename(path).startswith(".") or os.path.basename(path) in (
            ".version", ".modulerc", ".modulerc.lua"))}


@pytest.mark.parametrize(("action", "calls"), [
    ("kill", ("create", "write", "rename", "remove", "sync", "mode")), ("torn", ("write",)),
])
def test_s10_a_life_that_is_killed_at_every_write_is_completed_by_the_next_runs(server, root, action, calls):
    process, saved = server(root, action=action, calls=calls), root.parent / "saved"
    kills = []
    for number, desired in enumerate(LIFE):
        options = {**PUBLISH, **desired, "root": str(root)}
        before = visible(root)
        shutil.copytree(root, saved)
        first = process.run(**options)
        assert first["changed"], (number, first)
        assert not process.run(**options)["changed"]
        after, complete = visible(root), seen(root)
        possible = {path: {before.get(path), after.get(path)} for path in {*before, *after}}
        for at in range(1, 1000):
            shutil.rmtree(root)
            shutil.copytree(saved, root)
            if process.run(at, **options) is not None:
                break
            now = visible(root)
            assert set(now) <= set(possible)
            # .modulerc.lua holds two things, and one after the other changes.
            assert all(now.get(path) in contents for path, contents in possible.items() if "modulerc.lua" not in path)
            for syntax in SYNTAXES:
                default = default_of(now, syntax)
                assert default and modulefile(now, syntax, default), (number, at)
            again = process.run(**options)
            assert not again.get("failed"), (number, at, again)
            assert seen(root) == complete, (number, at)
            assert not process.run(**options)["changed"]
        kills.append(at - 1)
        shutil.rmtree(saved)
    assert min(kills) >= (2 if action == "torn" else 19), kills


def default_of(tree, syntax):
    """The default version of a module tree."""
    path = "modulefiles/%s/%s/%s" % (syntax, NAME, {"tcl": ".version", "lmod": ".modulerc.lua"}[syntax])
    return default_version(syntax, tree.get(path, b"").decode())


def modulefile(tree, syntax, version):
    """The bytes of a modulefile."""
    return tree.get("modulefiles/%s/%s/%s%s" % (syntax, NAME, version, {"tcl": "", "lmod": ".lua"}[syntax]))


def test_a_cache_whose_renewal_was_killed_or_never_begun_is_renewed_once(server, root, tmp_path):
    process = server(root)
    counted = tmp_path / "counted"
    options = {"root": str(root), "command": ["sh", "-c", "echo >> %s" % counted], "timeout": 60}
    for at in range(1, 100):
        if process.run(at, **options) is not None:
            break
        done = (root / ".torchstack" / "module_cache.json").exists()
        # Killed when all was done, it is not renewed again.
        assert process.run(**options)["changed"] != done
        assert not process.run(**options)["changed"]
        os.unlink(root / ".torchstack" / "module_cache.json")
    assert at > 4
    runs = counted.read_text()
    change(root, "2")
    assert process.run(**options)["changed"] and not process.run(**options)["changed"]
    assert counted.read_text() == runs + "\n"
