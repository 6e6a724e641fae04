# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""S45: a release on a system that moved under it, with real objects and a real module tree."""

from __future__ import annotations

import json
import os
import shutil

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import system_drift
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles import module_system as systems
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify import library_record
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify.libraries import verify
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify.library_rules import parse_rules
from support.elf_objects import shared

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc to build small libraries")
RELEASE = "2026-11-20"


class World:
    """A release with a plugin for a libfabric of the system, and the verification before its freeze."""

    def __init__(self, top):
        self.root, self.cray = top / "root", top / "opt" / "cray"
        self.prefix = self.root / RELEASE
        self.fabric = shared(
            self.cray / "libfabric" / "1.15.2.0" / "lib64" / "libfabric.so.1", "int fi(void) { return 1; }",
            soname="libfabric.so.1")
        for name in ("libnccl-net.so", "libother.so"):
            shared(self.prefix / "plugin" / name, "int fi(void); int net(void) { return fi(); }", self.fabric)
        (self.prefix / ".torchstack").mkdir()
        (self.prefix / ".torchstack" / "release.yml").write_text("release: '%s'\n" % RELEASE)
        (self.root / ".torchstack" / RELEASE).mkdir(parents=True)
        (self.root / ".torchstack" / RELEASE / "frozen.json").write_text("{}")
        rules, paths = parse_rules({}), [str(self.prefix)]
        record = library_record.build(rules, paths, verify(rules, paths), os.fsencode(self.prefix))
        (self.prefix / library_record.NAME).write_text(json.dumps(record))

    def libraries(self, **rules):
        """What ldd_verify returns today."""
        outcome = verify(parse_rules(rules), [str(self.prefix)])
        return dict(outcome.as_result(100), failed=bool(outcome.findings))

    def judge(self, moved_fails=True, **looks):
        return system_drift.judge(str(self.prefix), looks, moved_fails, "login1")


@pytest.fixture()
def world(tmp_path):
    return World(tmp_path)


def test_s45_a_system_that_did_not_move_carries_the_release(world):
    outcome = world.judge(libraries=world.libraries())
    assert (outcome["passed"], outcome["findings"], outcome["objects"]) == (True, [], 2)
    assert outcome["not_looked_at"] == ["modules", "modulefile", "imports"]


def test_s45_a_moved_libfabric_is_one_finding_that_names_both_places_and_what_needs_it(world):
    (world.cray / "libfabric" / "1.15.2.0").rename(world.cray / "libfabric" / "1.22.0")
    outcome = world.judge(libraries=world.libraries())
    finding, = outcome["findings"]
    now = world.cray / "libfabric" / "1.22.0" / "lib64" / "libfabric.so.1"
    assert not outcome["passed"] and finding["kind"] == "missing"
    assert (finding["before"], finding["now"]) == ([str(world.fabric)], [str(now)])
    assert finding["objects"] == ["plugin/libnccl-net.so", "plugin/libother.so"]
    text = "\n".join(system_drift.sentences(RELEASE, outcome))
    assert RELEASE in text and "2 of its objects need it" in text and str(now) in text
    assert "roll out a release for today's system" in text


def test_s45_a_library_found_elsewhere_than_at_the_freeze_fails_or_warns_as_the_site_has_it(world):
    other = world.cray / "default"
    other.mkdir()
    world.fabric.rename(other / world.fabric.name)
    looked = world.libraries(environment={"LD_LIBRARY_PATH": str(other)})
    # Without LD_LIBRARY_PATH it is not found at all; what is asked here is what the rest amounts to.
    looked["missing"] = []
    for fails in (True, False):
        outcome = world.judge(fails, libraries=looked)
        finding, = outcome["findings"]
        assert finding["kind"] == "moved" and outcome["passed"] is not fails
        assert finding["message"] == "libfabric.so.1 comes from %s today, and the freeze found it as %s." % (
            other / "libfabric.so.1", world.fabric)


def test_s45_a_removed_module_is_named(world, tmp_path):
    try:
        system = systems.find_system(dict(os.environ))
    except StackError as error:
        pytest.skip(error.message)
    directory = tmp_path / "modulefiles" / "fabric"
    directory.mkdir(parents=True)
    (directory / "1.15").write_text("#%Module1.0\nsetenv FABRIC_VERSION 1.15\n")

    def load():
        try:
            reached = systems.load_modules(system, dict(os.environ), ["fabric/1.15"], [str(directory.parent)])[0]
            return {"loaded": systems.loaded(reached)}
        except StackError as error:
            return dict(error.as_result(), failed=True)

    assert world.judge(modules=load())["passed"]
    (directory / "1.15").rename(directory / "1.22")
    outcome = world.judge(modules=load())
    finding, = outcome["findings"]
    assert (finding["kind"], finding["module"], outcome["passed"]) == ("module_missing", "fabric/1.15", False)
    assert "The module fabric/1.15, which it loads, is not there any more." in finding["message"]


def test_s45_what_failed_without_saying_what_is_a_finding_all_the_same(world):
    outcome = world.judge(imports={"failed": True, "msg": "Cannot run python3: No such file or directory."})
    assert [finding["message"] for finding in outcome["findings"]] == ["Cannot run python3: No such file or directory."]


def test_check_do_check_again_do_again(run_module, world):
    (world.cray / "libfabric" / "1.15.2.0").rename(world.cray / "libfabric" / "1.22.0")
    arguments = {"root": str(world.root), "release": RELEASE, "looks": {"libraries": world.libraries()}}
    record = world.root / ".torchstack" / RELEASE / "drift.json"
    planned = run_module("system_drift", arguments, check=True, diff=True)
    assert planned.changed and not planned["passed"] and not record.exists()
    done = run_module("system_drift", arguments, diff=True)
    assert done.changed and done.shown_difference == planned.shown_difference != []
    assert done["findings"] == planned["findings"] and len(json.loads(record.read_text())["looks"]) == 1
    again = run_module("system_drift", arguments, diff=True)
    assert not again.changed and again["summary"] == done["summary"]
