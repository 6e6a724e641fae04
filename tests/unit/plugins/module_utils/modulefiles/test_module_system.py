# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Finding the module system, asking it, and what comes of its answers, with stand-ins for the module command.

Covers module_load, too.
"""

from __future__ import annotations

import fnmatch
import os
import time

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles import module_system
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.module_load import (
    describe,
    failure_message,
    load_modules,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.module_output import ShellParts
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.module_system import (
    EM,
    LMOD,
    NONE,
    ModuleSystem,
    find_system,
    is_bookkeeping,
)


def find(environment=None, files=(), **options):
    return find_system(
        environment or {}, exists=lambda path: path in files, expand=lambda pattern: fnmatch.filter(files, pattern),
        **options,
    )


def stand_in(tmp_path, text, name="lmod"):
    """A module command of our own; ``text`` is shell, its arguments those of a module command."""
    path = tmp_path / name
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return ModuleSystem(LMOD if name == "lmod" else EM, (str(path),))


@pytest.mark.parametrize(
    ("environment", "path", "kind"),
    [
        ({"LMOD_CMD": "/a/lmod"}, "/a/lmod", LMOD),
        ({"LMOD_PKG": "/a"}, "/a/libexec/lmod", LMOD),
        ({"MODULES_CMD": "/a/modulecmd.tcl"}, "/a/modulecmd.tcl", EM),
        ({"MODULESHOME": "/a"}, "/a/libexec/lmod", LMOD),
        ({"MODULESHOME": "/a"}, "/a/libexec/modulecmd.tcl", EM),
        ({"MODULESHOME": "/a"}, "/a/bin/modulecmd", EM),
        ({}, "/opt/cray/pe/lmod/lmod/libexec/lmod", LMOD),
        ({}, "/usr/share/Modules/libexec/modulecmd.tcl", EM),
        ({}, "/usr/lib/x86_64-linux-gnu/modulecmd.tcl", EM),
    ],
)
def test_the_module_command_is_found_by_environment_then_by_known_path(environment, path, kind):
    found = find(environment, [path])
    assert (found.kind, found.command) == (kind, path)


def test_what_the_environment_names_wins_over_what_is_installed():
    files = ["/a/modulecmd.tcl", "/usr/share/lmod/lmod/libexec/lmod"]
    assert find({"MODULES_CMD": "/a/modulecmd.tcl"}, files).kind == EM
    assert find({"MODULES_CMD": "/gone/modulecmd.tcl"}, files).kind == LMOD
    assert find({"MODULES_CMD": "/a/modulecmd.tcl"}, files, system="lmod").kind == LMOD


def test_two_installed_systems_and_no_hint_is_an_error():
    files = ["/usr/share/lmod/lmod/libexec/lmod", "/usr/share/Modules/libexec/modulecmd.tcl"]
    with pytest.raises(StackError, match="Both Lmod"):
        find({}, files)
    assert find({}, files, system="environment-modules").kind == EM


def test_no_module_system_is_an_error_that_says_what_to_set():
    with pytest.raises(StackError) as caught:
        find({})
    assert "No module system was found" in caught.value.message
    assert "system: none" in caught.value.remedy


def test_a_given_command_is_taken_or_refused_by_name():
    assert find({}, ["/x/lmod"], command="/x/lmod").kind == LMOD
    assert find({}, ["/x/modulecmd"], command="/x/modulecmd").kind == EM
    assert find({}, ["/x/mine"], command="/x/mine", system="lmod").kind == LMOD
    with pytest.raises(StackError, match="does not tell"):
        find({}, ["/x/mine"], command="/x/mine")
    with pytest.raises(StackError, match="does not exist"):
        find({}, [], command="/x/lmod")


def test_a_tcl_script_without_execute_bit_goes_through_tclsh(tmp_path, monkeypatch):
    script = tmp_path / "modulecmd.tcl"
    script.write_text("")
    monkeypatch.setattr(module_system.shutil, "which", lambda name: "/bin/" + name)
    assert find_system({}, command=str(script)).words == ("/bin/tclsh", str(script))
    script.chmod(0o755)
    assert find_system({}, command=str(script)).words == (str(script),)


def test_a_machine_without_modules_keeps_its_environment_and_refuses_modules():
    none = find_system({}, "none")
    assert none == ModuleSystem(NONE, ())
    assert load_modules(none, {"A": "1"}, []) == ({"A": "1"}, [], [])
    for asked in ({"modules": ["gcc"]}, {"modules": [], "use": ["/x"]}, {"modules": [], "purge": True}):
        with pytest.raises(StackError, match="system is none"):
            load_modules(none, {}, **asked)


@pytest.mark.parametrize(
    "name",
    [
        "LOADEDMODULES", "_LMFILES_", "_LMFILES_001", "_ModuleTable001_", "_ModuleTable_Sz_", "__LMOD_REF_COUNT_PATH",
        "__LMOD_STACK_CC", "LMOD_CMD", "LMOD_FAMILY_MPI", "MODULES_CMD", "__MODULES_LMPREREQ", "PATH_modshare",
        "MODULESHOME", "BASH_FUNC_module%%",
    ],
)
def test_records_of_the_module_system_are_told_from_variables(name):
    assert is_bookkeeping(name)


@pytest.mark.parametrize("name", ["PATH", "MODULEPATH", "MY_LMOD_CMD", "CRAY_MODULES_X", "LOADEDMODULES_MINE"])
def test_variables_are_told_from_records_of_the_module_system(name):
    assert not is_bookkeeping(name)


def test_the_difference_keeps_records_and_shell_parts_apart():
    before = {"PATH": "/bin", "SAME": "1", "GONE": "1", "LOADEDMODULES": "x"}
    after = {"PATH": "/opt/bin:/bin", "SAME": "1", "NEW": "", "_LMFILES_": "/m/a:/m/b"}
    parts = [
        ShellParts({"old": None}, {"a": None}, [], [], [], False),
        ShellParts({"f": "x"}, {"a": "ls"}, ["cmd"], ["complete x"], ["NEW", "_ModuleTable001_"], False),
    ]
    assert describe(before, after, parts) == {
        "set": {"PATH": "/opt/bin:/bin", "NEW": ""},
        "unset": ["GONE"],
        "bookkeeping": {"_LMFILES_": "/m/a:/m/b", "LOADEDMODULES": None},
        "not_captured": {
            "functions": {"old": None, "f": "x"}, "aliases": {"a": "ls"}, "commands": ["cmd"],
            "completions": ["complete x"], "differing": ["NEW"], "not_text": [],
        },
        "exact": False, "loaded": [], "modulefiles": ["/m/a", "/m/b"], "environment": after,
    }
    assert describe(before, after, [])["exact"] is True


def test_a_value_that_is_no_text_is_left_out_by_name():
    after = {"A": "caf\udce9", "B": "caf\xe9", "C\udcff": ""}
    result = describe({"GONE\udcff": "1"}, after, [ShellParts({}, {}, [], [], ["A", "B"], False)])
    assert result["set"] == result["environment"] == {"B": "caf\xe9"}
    assert result["not_captured"]["not_text"] == ["A", "C\\udcff"]
    assert result["not_captured"]["differing"] == ["B"]
    assert (result["unset"], result["exact"]) == ([], False)


LMOD_UNKNOWN = """Lmod has detected the following error: The following module(s) are unknown:
"nosuch/3"

Please check the spelling or version number. Also try "module spider ..."
"""
LMOD_CONFLICT = """Lmod has detected the following error: Cannot load module "c/1.0" because
these module(s) are loaded:
   a

While processing the following module(s):
    Module fullname  Module Filename
"""


@pytest.mark.parametrize(
    ("messages", "sentence"),
    [
        (LMOD_UNKNOWN, 'The following module(s) are unknown: "nosuch/3".'),
        (LMOD_CONFLICT, 'Cannot load module "c/1.0" because these module(s) are loaded: a.'),
        ("Loading c/1.0\n  ERROR: Conflicting a is loaded", "Conflicting a is loaded."),
        ("something else\nentirely", "something else entirely."),
        ("", "it gave no message."),
    ],
)
def test_the_tools_own_sentence_is_found_in_its_messages(messages, sentence):
    assert failure_message(messages) == sentence


def test_a_command_without_verdict_is_judged_by_its_marked_errors(tmp_path):
    text = "ModuleCmd_Load.c(244):ERROR:105: Unable to locate a modulefile for 'x'"
    old = stand_in(tmp_path, 'echo "%s" >&2' % text, "modulecmd")
    with pytest.raises(StackError) as caught:
        load_modules(old, {"PATH": os.environ["PATH"]}, ["x"])
    assert caught.value.details["missing"] == ["x"]


def test_a_failure_that_only_the_shell_output_shows_is_a_failure(tmp_path):
    odd = stand_in(tmp_path, '[ "$1" = bash ] && echo "test 0 = 1;" || echo "_mlstatus = True"', "modulecmd")
    with pytest.raises(StackError, match="Environment Modules cannot load x"):
        load_modules(odd, {"PATH": os.environ["PATH"]}, ["x"])


def test_a_missing_prerequisite_is_the_modules_refusal_and_not_its_absence(tmp_path):
    text = 'echo "_mlstatus = False"; echo "ERROR: Unable to locate a modulefile for \'need/1\'" >&2'
    with pytest.raises(StackError) as caught:
        load_modules(stand_in(tmp_path, text, "modulecmd"), {"PATH": os.environ["PATH"]}, ["wants"])
    assert (caught.value.details["missing"], caught.value.details["refused"]) == ([], ["wants"])


def test_a_failing_purge_names_the_step(tmp_path):
    with pytest.raises(StackError) as caught:
        load_modules(stand_in(tmp_path, "echo broken >&2; exit 1"), {"PATH": os.environ["PATH"]}, ["x"], purge=True)
    assert caught.value.failed_step == "purge"
    assert "Lmod failed at module purge: broken." in caught.value.message


def test_the_tool_gets_a_quiet_environment_that_does_not_stay(tmp_path):
    text = 'echo "os.environ[\\"SEEN\\"] = \\"$LMOD_SHORT_TIME $LMOD_PAGER $LMOD_REDIRECT\\";"'
    after, _parts, _messages = load_modules(
        stand_in(tmp_path, text), {"PATH": os.environ["PATH"], "LMOD_PAGER": "less"}, ["x"]
    )
    assert after["SEEN"] == "86400 none no"
    assert (after["LMOD_PAGER"], "LMOD_SHORT_TIME" in after) == ("less", False)


def test_a_module_command_that_hangs_is_stopped(tmp_path):
    began = time.monotonic()
    with pytest.raises(StackError, match="did not finish within"):
        load_modules(stand_in(tmp_path, "exec sleep 60"), {"PATH": os.environ["PATH"]}, ["x"], timeout=0.2)
    assert time.monotonic() - began < 30


def test_a_module_command_that_cannot_run_is_an_error_by_name(tmp_path):
    path = tmp_path / "lmod"
    path.write_text("not a program")
    with pytest.raises(StackError, match=r"Cannot run .*/lmod"):
        load_modules(ModuleSystem(LMOD, (str(path),)), {}, ["x"])


def test_a_module_that_stays_although_it_is_unloaded_by_force_is_an_error(tmp_path):
    lmod = stand_in(tmp_path, 'echo "$*" >> %s\n' % (tmp_path / "asked"))
    with pytest.raises(StackError, match=r"Lmod failed at module --force unload kept:") as error:
        load_modules(lmod, {"LOADEDMODULES": "kept/1", "PATH": "/usr/bin:/bin"}, ["-kept", "-absent"])
    assert error.value.failed_step == "unload" and error.value.details["loaded"] == ["kept/1"]
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [line for line in asked if line.startswith("python")] == ["python unload kept", "python --force unload kept"]
