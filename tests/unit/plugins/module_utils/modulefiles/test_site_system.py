# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What follows from the module system of a site."""

from __future__ import annotations

import json
import subprocess

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles import module_system, site_system, verify
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.module_system import EM, LMOD

LMOD_S = 'module() { eval "$($LMOD_CMD bash "$@")"; }\n'
EM_S = (
    'module() { _module_raw "$@"; }\n'
    '_module_raw() { eval "$(/usr/bin/tclsh \'/x/modulecmd.tcl\' bash "$@")"; }\n')
OLD_EM_S = "module() { eval `/usr/bin/modulecmd bash $*`; }\n"
WRAPPED = "module() { original_module \"$@\"; }\n"


def through(*parts):
    """Run shell text in front of the lines that look for the command, and return what these found."""
    lines = [*parts, *site_system.finding_lines(), 'echo "$through"']
    done = subprocess.run(
        ["/bin/bash", "--noprofile", "--norc"], input="\n".join(lines), stdout=subprocess.PIPE, text=True, check=True,
        env={"PATH": "/usr/bin:/bin", "LMOD_CMD": "/of/the/login", "LMOD_VERSION": "8.6"})
    return done.stdout.strip()


@pytest.mark.parametrize(("system", "kinds"), [("auto", ("tcl", "lmod")), (LMOD, ("lmod",)), (EM, ("tcl",))])
def test_a_site_has_the_files_that_its_module_system_reads(system, kinds):
    assert site_system.syntaxes_of(system) == kinds


@pytest.mark.parametrize(("functions", "found"), [
    (LMOD_S, LMOD), (EM_S, EM), (OLD_EM_S, EM), (WRAPPED, LMOD), ("unset LMOD_CMD LMOD_VERSION\n" + WRAPPED, EM),
    ("unset LMOD_CMD LMOD_VERSION\n" + LMOD_S, LMOD),
    ("", "environment"),
])
def test_the_command_says_whose_it_is_whatever_the_login_s_variables_say(functions, found):
    assert through(functions) == found


def test_the_site_s_own_definition_is_taken_where_the_login_s_is_of_the_other_one():
    lines = site_system.finding_lines(), site_system.defining_lines(EM, EM_S)
    assert through(LMOD_S, *lines[0], *lines[1]) == EM
    assert through(LMOD_S, *lines[0], *lines[1], "through=${LMOD_CMD:-gone}; echo $through; exit") == "gone"
    # That of the login is the users' own.
    assert through(EM_S, *lines[0], *site_system.defining_lines(EM, "exit 3")) == EM
    assert site_system.defining_lines("auto", EM_S) == site_system.defining_lines(EM, "") == []


def test_a_frozen_release_keeps_the_files_that_it_was_verified_with(tmp_path):
    stage = tmp_path / ".torchstack" / "1"
    stage.mkdir(parents=True)
    (stage / "modulefile.json").write_text(json.dumps({"files": {"lmod": {}, "tcl": {}}}))
    assert site_system.release_syntaxes(str(tmp_path), "1", EM) == ("tcl",)
    (stage / "frozen.json").write_text("{}")
    assert site_system.release_syntaxes(str(tmp_path), "1", EM) == ("tcl", "lmod")
    (stage / "modulefile.json").write_text("torn")
    assert site_system.release_syntaxes(str(tmp_path), "1", EM) == ("tcl",)


def test_a_machine_without_modules_says_what_could_not_be_checked(monkeypatch):
    def nothing(*_arguments, **_options):
        raise StackError("nothing", "find the module system", "")

    monkeypatch.setattr(module_system, "find_system", nothing)
    assert verify.find_commands({}, {}) == {
        "tcl": "Environment Modules was not found on this machine.", "lmod": "Lmod was not found on this machine."}
    assert verify.find_commands({}, {}, EM) == {"tcl": "Environment Modules was not found on this machine."}
    with pytest.raises(StackError):
        verify.find_commands({"lmod": "/not/there"}, {})
