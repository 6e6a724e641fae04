# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a session is judged by."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles import session as subject
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.description import normalised
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.module_system import LMOD, ModuleSystem

DESCRIPTION = normalised({
    "name": "t", "version": "1", "prefix": "/p", "setenv": {"A": "${HOME}/a"}, "unsetenv": ["U"],
    "prepend": [{"name": "PATH", "values": ["/p/1", "/p/2"]}], "append": [{"name": "PATH", "values": ["/p/9"]}],
})


def snapshot(names=(), **environment):
    return subject.Snapshot(environment, tuple(names))


def test_what_the_description_declares_has_arrived():
    loaded = {"A": "/h/a", "PATH": "/p/1:/p/2:/usr/bin:/p/9"}
    assert subject.not_arrived(DESCRIPTION, {"HOME": "/h"}, loaded) == []


@pytest.mark.parametrize(("change", "word"), [
    ({"A": "/other"}, "A is '/other' after load"),
    ({"U": ""}, "U is '' after load, not unset"),
    ({"PATH": "/p/2:/p/1:/p/9"}, "PATH is '/p/2:/p/1:/p/9' after load"),
    ({"PATH": "/p/1:/p/2:/p/9:/usr/bin"}, "does not begin"),
])
def test_what_did_not_arrive_is_named(change, word):
    loaded = {"A": "/h/a", "PATH": "/p/1:/p/2:/usr/bin:/p/9", **change}
    found = subject.not_arrived(DESCRIPTION, {"HOME": "/h"}, loaded)
    assert len(found) == 1 and word in found[0]


def test_s41_everything_left_behind_is_named_and_bookkeeping_is_not():
    before = snapshot(["alias ll"], KEPT="1", GONE="2", CHANGED="3", SHLVL="1")
    after = snapshot(["f"], KEPT="1", CHANGED="4", NEW="5", SHLVL="2", LOADEDMODULES="", __LMOD_REF_COUNT_PATH="x")
    assert subject.differences(before, after) == [
        "CHANGED was '3' before load and is '4' after unload.",
        "GONE was '2' before load and is unset after unload.",
        "NEW was unset before load and is '5' after unload.",
        "The alias or function alias ll was taken away by load and unload.",
        "The alias or function f was left behind by load and unload.",
    ]


def test_a_failed_load_is_told_by_the_module_command_s_own_words():
    session = subject.Session((snapshot(),) * 3, (1, 0), "Lmod has detected the following error: no such thing\n\n")
    (found,) = subject.judge(DESCRIPTION, session)
    assert found.startswith("module load failed: no such thing")


def test_a_lived_in_environment_has_a_value_of_everything_that_the_module_changes():
    environment = subject.starting_environment(DESCRIPTION, "lived-in", {"PATH": "/usr/bin"}, "/h", ["/m"])
    assert environment["A"] and environment["U"]
    assert environment["PATH"] == "/usr/bin:/p/9:/lived-in/last"
    clean = subject.starting_environment(DESCRIPTION, "clean", {"PATH": "/usr/bin"}, "/h", ["/m"])
    assert "A" not in clean and "U" not in clean and clean["PATH"] == "/usr/bin" and clean["MODULEPATH"] == "/m"


def test_words_of_a_session_are_quoted_for_the_shell():
    system = ModuleSystem(LMOD, ("/odd path/lmod",))
    text = subject.script("bash", system, [("load", "a b")], "/s")
    assert "'/odd path/lmod' bash load 'a b' > /s/1.code" in text


def test_s33_the_file_that_is_there_is_what_has_to_arrive(tmp_path):
    images = [str(tmp_path / "copy.sif"), str(tmp_path / "site.sif")]
    choice = {"variables": ["SIF"], "candidates": images, "missing": "Gone."}
    description = normalised({"name": "t", "version": "1", "prefix": str(tmp_path), "first_file": [choice]})
    assert subject.chosen_files(description) == {"SIF": ""}
    (tmp_path / "site.sif").write_text("")
    assert subject.not_arrived(description, {}, {"SIF": images[1]}) == []
    (found,) = subject.not_arrived(description, {}, {"SIF": images[0]})
    assert found == "SIF is '%s' after load, not '%s'." % tuple(images)
    assert subject.starting_environment(description, "lived-in", {}, "/h", ["/m"])["SIF"]
