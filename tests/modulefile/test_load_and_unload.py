# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Modulefiles in real module systems and real shells: what arrives, and that nothing stays.

Covers lua, lua_helpers, tcl, tcl_helpers and verify of module_utils/modulefiles, too.
"""

from __future__ import annotations

import os

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.description import normalise
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.module_system import EM
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.session import (
    leftovers,
    missing_settings,
    run_session,
)

LOAD, UNLOAD = ("load", "torchstack/1"), ("unload", "torchstack/1")


def describe(version="1", **changes):
    prefix = "/soft/%s" % version
    return {
        "name": "torchstack", "version": version, "prefix": prefix, "external": ["${HOME}"],
        "help": "help [with] $odd {things} \\ and \"quotes\"\n]] ]=] too", "whatis": {"Description": "d"},
        "family": "python", "load_message": "Hello [x] $y {\nsecond line",
        "prepend": [
            {"name": "PATH", "values": [prefix + "/bin", prefix + "/tools"]},
            {"name": "PYTHONPATH", "values": [prefix + "/lib"]},
            {"name": "LD_LIBRARY_PATH", "values": [prefix + "/nccl/lib"]},
            {"name": "PATH", "values": ["${HOME}/.local/torchstack/site/%s/bin" % version]},
        ],
        "append": [{"name": "MANPATH", "values": [prefix + "/man"]}, {"name": "PATH", "values": ["${HOME}/bin"]}],
        "setenv": {"PYTHONUSERBASE": "${HOME}/.local/torchstack/site/" + version, "NCCL_NET": "AWS Libfabric",
                   "PROXY": "http://proxy:3128", "EMPTY": "", "LITERAL": "$${HOME} $x"},
        "reasons": {"NCCL_NET": "[exec false] {odd $(false) \"\n[[one ]] --[[\\\nends in \\", "PATH": "}\\"},
        "unsetenv": ["PYTHONSTARTUP"], "aliases": {"ts-where": "echo $PYTHONUSERBASE"},
        "functions": {"ts_hello": {"sh": "echo 'hello' \"$1\";", "csh": "echo hello"}}, **changes,
    }


USERS = {
    "nothing": {},
    "values": {"NCCL_NET": "Socket", "PROXY": "http://user:secret@other:8080/?", "EMPTY": "full",
               "PYTHONSTARTUP": "/home/u/.pythonrc", "PYTHONUSERBASE": "/home/u/base"},
    "odd values": {
        "NCCL_NET": "it's \"odd\" $HOME `x` \\ {a} & | ; < > # % ^ * ? \u00e9", "PROXY": "ab?", "LITERAL": "b\u00e9?",
        "PYTHONSTARTUP": " "},
    "same values": {"NCCL_NET": "AWS Libfabric", "PROXY": "http://proxy:3128"},
    "other entries": {"PYTHONPATH": "/home/u/a:/home/u/b", "LD_LIBRARY_PATH": "/opt/x", "MANPATH": "/home/u/man"},
    "own entries at other places": {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/soft/1/bin:/home/u/bin", "PYTHONPATH": "/home/u/a:/soft/1/lib:/home/u/b",
        "LD_LIBRARY_PATH": "/opt/x:/soft/1/nccl/lib", "MANPATH": "/soft/1/man:/home/u/man"},
    "odd entries": {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/bin:", "PYTHONPATH": ":/home/u/a::/home/u/a/", "MANPATH": ":",
        "LD_LIBRARY_PATH": "relative:/opt//x:/opt/y/.:/opt/z/"},
}
EMPTY = {"NCCL_NET": "", "PYTHONSTARTUP": "", "PYTHONPATH": "", "LD_LIBRARY_PATH": ""}


@pytest.mark.parametrize("user", USERS)
def test_s41_load_and_unload_leave_every_environment_as_it_was(system, shell, modulefiles, session, user):
    modulefiles(describe())
    before, loaded, after = session(system, shell, [LOAD, UNLOAD], **USERS[user]).snapshots
    assert missing_settings(normalise(describe()), before.environment, loaded.environment) == []
    assert leftovers(before, after) == []


def test_s41_empty_variables_of_the_user_stay_empty(system, shell, modulefiles, session, request):
    if "tcl-4" in request.node.name:
        pytest.skip("Environment Modules 4 has no way to set a variable to nothing on unload; it is a documented limit")
    modulefiles(describe())
    before, loaded, after = session(system, shell, [LOAD, UNLOAD], **EMPTY).snapshots
    assert missing_settings(normalise(describe()), before.environment, loaded.environment) == []
    assert leftovers(before, after) == []


@pytest.mark.parametrize("user", USERS)
def test_s41_swapping_two_releases_leaves_the_second_one_and_then_nothing(system, shell, modulefiles, session, user):
    second = describe("2", setenv={"NCCL_NET": "second", "PYTHONUSERBASE": "${HOME}/.local/x/2"}, unsetenv=[])
    modulefiles(describe(), second)
    commands = [LOAD, ("switch", "torchstack/1", "torchstack/2"), ("unload", "torchstack/2")]
    before, _first, swapped, after = session(system, shell, commands, **USERS[user]).snapshots
    assert missing_settings(normalise(second), before.environment, swapped.environment) == []
    for name in ("PROXY", "EMPTY", "LITERAL", "PYTHONSTARTUP"):
        assert swapped.environment.get(name) == before.environment.get(name)
    assert not any("/soft/1" in value for name, value in swapped.environment.items() if name in ("PATH", "PYTHONPATH")
                   and "/soft/1" not in before.environment.get(name, ""))
    assert leftovers(before, after) == []


def test_s41_aliases_and_functions_are_there_while_the_module_is_loaded(system, shell, modulefiles, session, request):
    if "tcl-4" in request.node.name and shell.endswith("zsh"):
        pytest.skip("Environment Modules 4 would leave a variable behind in zsh; functions are left out there")
    modulefiles(describe())
    _before, loaded, after = session(system, shell, [LOAD, UNLOAD]).snapshots
    for name in ("ts-where", "ts_hello"):
        assert any(name in line for line in loaded.names)
        assert not any(name in line for line in after.names)


def test_s41_a_module_loaded_in_between_keeps_what_it_brought(system, shell, modulefiles, session):
    other = {"name": "other", "version": "1", "prefix": "/other", "setenv": {"OTHER": "1"},
             "prepend": [{"name": "PATH", "values": ["/other/bin"]}, {"name": "PYTHONPATH", "values": ["/other/lib"]}]}
    modulefiles(describe(), other)
    commands = [LOAD, ("load", "other/1"), UNLOAD, ("unload", "other/1")]
    user = {"PYTHONPATH": "/home/u/a:/soft/1/lib:/home/u/b"}
    before, _loaded, _both, without, after = session(system, shell, commands, **user).snapshots
    assert without.environment["OTHER"] == "1"
    assert without.environment["PATH"] == "/other/bin:" + before.environment["PATH"]
    entries = without.environment["PYTHONPATH"].split(":")
    assert entries[0] == "/other/lib" and {"/home/u/a", "/home/u/b"} <= set(entries)
    assert not [name for name in after.environment if "SAVED" in name or name.startswith("__LMOD_STACK_")]
    assert after.environment["PATH"] == before.environment["PATH"]


@pytest.mark.parametrize("user", ["nothing", "own entries at other places", "odd entries"])
@pytest.mark.parametrize("loaded_before", [False, True])
def test_a_dependency_is_loaded_and_goes_unless_the_user_had_loaded_it(
    system, shell, modulefiles, session, loaded_before, user
):
    gcc = {"name": "gcc", "version": "12", "prefix": "/gcc", "setenv": {"GCC": "12"},
           "prepend": [{"name": "PATH", "values": ["/gcc/bin"]}, {"name": "PYTHONPATH", "values": ["/gcc/lib"]}],
           "append": [{"name": "MANPATH", "values": ["/gcc/man"]}]}
    modulefiles(describe(depends_on=["gcc/12"]), gcc)
    commands = [*([("load", "gcc/12")] if loaded_before else []), LOAD, UNLOAD]
    result = session(system, shell, commands, **USERS[user])
    assert result.snapshots[-2].environment["GCC"] == "12"
    assert leftovers(result.snapshots[-3], result.snapshots[-1]) == []


def test_s14_each_release_has_its_own_user_base_below_the_home_of_whoever_loads_it(system, shell, modulefiles, session):
    modulefiles(describe())
    _before, loaded = session(system, shell, [LOAD], HOME="/home/someone else").snapshots
    base = "/home/someone else/.local/torchstack/site/1"
    assert loaded.environment["PYTHONUSERBASE"] == base
    entries = loaded.environment["PATH"].split(":")
    assert entries[:3] == ["/soft/1/bin", "/soft/1/tools", base + "/bin"]


def test_a_user_without_the_variable_is_told_and_gets_nothing(system, shell, modulefiles, tmp_path):
    modulefiles({"name": "torchstack", "version": "1", "prefix": "/soft/1", "setenv": {"X": "${SCRATCH_OF_MINE}/x"}})
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    syntax = "tcl" if system.kind == EM else "lmod"
    environment = {"HOME": str(scratch), "PATH": "/usr/bin:/bin", "MODULEPATH": str(tmp_path / "modulefiles" / syntax)}
    result = run_session(shell, system, [LOAD], environment, str(scratch))
    assert result.statuses[0] != 0 and "SCRATCH_OF_MINE" in result.messages
    assert "X" not in result.snapshots[1].environment


def test_a_line_break_in_a_value_of_the_user_is_never_run_as_a_command(system, shell, modulefiles, tmp_path, session):
    modulefiles(describe())
    mark = tmp_path / "ran"
    bomb = "one\ntouch %s\n" % mark
    before, _loaded, after = session(
        system, shell, [LOAD, UNLOAD], NCCL_NET=bomb, PYTHONSTARTUP=bomb, PYTHONPATH="/a:/b\ntouch %s" % mark,
    ).snapshots
    assert not mark.exists()
    kept = {name: after.environment[name] for name in before.environment if name in after.environment}
    changed = {name for name, value in kept.items() if value != before.environment[name]}
    assert changed <= {"_", "SHLVL", "PYTHONPATH", "LOADEDMODULES"}


def test_a_staged_modulefile_is_in_no_listing_and_loads_by_its_full_name(system, modulefiles, session, tmp_path):
    tree = modulefiles(describe())
    stage = tmp_path / "stage"
    stage.mkdir()
    os.rename(tree, stage / "modulefiles")
    visible = tmp_path / "modulefiles" / "lmod"
    visible.mkdir(parents=True)
    (tmp_path / "modulefiles" / "tcl").mkdir()
    listing = session(system, "/bin/bash", [("avail",)])
    assert "torchstack" not in listing.messages
    staged = stage / "modulefiles" / ("tcl" if system.kind == EM else "lmod")
    loaded = session(system, "/bin/bash", [("use", str(staged)), LOAD]).snapshots[-1]
    assert loaded.environment["NCCL_NET"] == "AWS Libfabric"
