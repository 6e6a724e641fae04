# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Compilers as they are typed, tried on a small program."""

from __future__ import annotations

import os
import shutil

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.preflight import compilers

CXX = {"name": "CXX", "language": "c++"}
CC = {"name": "CC", "language": "c"}


@pytest.fixture
def tools(tmp_path):
    """A directory of commands that are looked for, and how to put one there."""
    directory = tmp_path / "bin"
    directory.mkdir()

    def put(name, text="#!/bin/sh\nexit 0\n"):
        command = directory / name
        command.write_text(text)
        command.chmod(0o755)
        return str(command)

    put.path = str(directory)
    return put


def test_the_option_goes_before_the_environment_and_that_before_the_search(tools):
    for name in ("c++", "g++", "icpx"):
        tools(name)
    environment = {"PATH": tools.path, "CXX": "icpx -O1"}
    assert compilers.find(dict(CXX, command="g++ -m64"), environment)["command"] == "g++ -m64"
    found = compilers.find(CXX, environment)
    assert (found["command"], found["origin"], found["path"]) == (
        "icpx -O1", "environment", os.path.join(tools.path, "icpx"))
    assert compilers.find(CXX, {"PATH": tools.path})["command"] == "c++"
    os.unlink(os.path.join(tools.path, "c++"))
    assert compilers.find(CXX, {"PATH": tools.path})["command"] == "g++"
    assert compilers.find(dict(CXX, candidates=["icpx"]), {"PATH": tools.path})["command"] == "icpx"


def test_a_compiler_that_is_named_is_never_exchanged_for_another(tools):
    tools("c++")
    assert compilers.find(CXX, {"PATH": tools.path, "CXX": "icpx"}) == {
        "command": "icpx", "path": "", "origin": "environment", "tried": ["icpx"]}
    assert compilers.find(dict(CXX, command="nvc++"), {"PATH": tools.path})["path"] == ""


def test_a_search_without_result_says_what_it_tried(tools):
    assert compilers.find(CC, {"PATH": tools.path}) == {
        "command": "", "path": "", "origin": "search", "tried": ["cc", "gcc"]}


needs_compiler = pytest.mark.skipif(not shutil.which("c++") or not shutil.which("cc"), reason="no compiler here")


@needs_compiler
@pytest.mark.parametrize("wanted", [CC, CXX], ids=["c", "c++"])
def test_a_compiler_compiles_links_and_its_program_runs(tmp_path, wanted):
    command = compilers.find(wanted, {"PATH": os.environ["PATH"]})["command"]
    facts = compilers.attempt(wanted, command, str(tmp_path), 60)
    assert facts["compiles"] and facts["runs"] is True and facts["complaint"] == "" and facts["banner"]


REDIRECT = """#!/bin/sh
case ${0##*/} in
  gcc) exec cc "$@" ;;
  g++) exec c++ "$@" ;;
  *) echo "redirect: no driver is called ${0##*/}" >&2; exit 1 ;;
esac
"""


@needs_compiler
@pytest.mark.parametrize(("wanted", "name"), [(CC, "gcc"), (CXX, "g++")])
def test_s05_a_compiler_that_looks_at_its_own_name_is_called_by_it(tools, tmp_path, wanted, name):
    tools("redirect", REDIRECT)
    os.symlink("redirect", os.path.join(tools.path, name))
    for command in (name, os.path.join(tools.path, name)):
        found = compilers.find(
            dict(wanted, command=command), {"PATH": tools.path + ":" + os.environ["PATH"]})
        assert found["command"] == command and found["path"] == os.path.join(tools.path, name)
        facts = compilers.attempt(wanted, found["path"], str(tmp_path), 60)
        assert facts["compiles"] and facts["runs"] is True
    resolved = os.path.realpath(os.path.join(tools.path, name))
    facts = compilers.attempt(wanted, resolved, str(tmp_path), 60)
    assert facts["complaint"] == "redirect: no driver is called redirect"


@needs_compiler
def test_a_compiler_without_the_standard_is_told_by_its_own_words(tmp_path):
    facts = compilers.attempt(dict(CXX, standard="c++95"), "c++", str(tmp_path), 60)
    assert facts["compiles"] is False and "c++95" in facts["complaint"]
    facts = compilers.attempt(dict(CXX, standard="c++11"), "c++", str(tmp_path), 60)
    assert facts["compiles"] is False and "error" in facts["complaint"]


def test_a_program_for_other_machines_is_not_run(tools, tmp_path):
    compiler = tools("cross", "#!/bin/sh\n[ \"$1\" = --version ] && { echo cross 1.0; exit 0; }\n"
                              "while [ \"$1\" != -o ]; do shift; done\n"
                              "printf '#!/bin/sh\\nkill -ILL $$\\n' > \"$2\"; chmod +x \"$2\"\n")
    facts = compilers.attempt(dict(CXX, cross=True), compiler, str(tmp_path), 20)
    assert facts["compiles"] and facts["runs"] is None and facts["banner"] == "cross 1.0"
    facts = compilers.attempt(CXX, compiler, str(tmp_path), 20)
    assert facts["compiles"] and facts["runs"] is False and facts["complaint"] == "it ended by signal 4"


def test_a_compiler_that_writes_nothing_has_not_compiled(tools, tmp_path):
    assert compilers.attempt(CC, tools("cc"), str(tmp_path), 20)["compiles"] is False


def test_a_compiler_that_hangs_is_given_up(tools, tmp_path):
    hanging = tools("cc", "#!/bin/sh\n[ \"$1\" = --version ] && exit 0\nsleep 60\n")
    facts = compilers.attempt(CC, hanging, str(tmp_path), 0.3)
    assert facts["compiles"] is False and facts["complaint"] == "it did not finish within 0.3 seconds"
