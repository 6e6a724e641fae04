# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What `make test` says on a machine that lacks something, and what it takes from the account that starts it."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess

import pytest
from index_settings import configuration
from support.link_programs import COMPILERS, link_programs

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
MACHINE = CHECKOUT / "tests" / "machine"
LINES = [line for line in MACHINE.with_suffix(".txt").read_text().splitlines() if line and not line.startswith("#")]


def ask(*words, path=os.environ["PATH"], before=(), **variables):
    """Run a program with a PATH; its exit code and what it said."""
    done = subprocess.run(
        [*before, *words], env={**os.environ, "PATH": str(path), **variables}, cwd=CHECKOUT,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )
    return done.returncode, done.stdout


def path_without(place, names):
    """A PATH of this machine's programs but for some."""
    link_programs(place, ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin"), re.compile(names))
    return place


def test_links_that_are_no_programs_stand_in_nobodys_way(tmp_path):
    directories = [tmp_path / "first", tmp_path / "second"]
    for directory in directories:
        directory.mkdir()
        (directory / "X11").symlink_to("X11")
        (directory / "bin").symlink_to(".")
        (directory / "cc").touch()
        (directory / "ls").write_text(directory.name)
    link_programs(tmp_path / "commands", directories, COMPILERS)
    assert [(path.name, path.read_text()) for path in (tmp_path / "commands").iterdir()] == [("ls", "first")]


@pytest.mark.skipif(os.geteuid() == 0, reason="root is told something else first")
def test_all_that_is_needed_and_missing_is_named_at_once_with_the_command_that_installs_it(tmp_path):
    path = path_without(tmp_path / "bin", COMPILERS.pattern + "|^git$")
    code, said = ask("tests/run", "all", path=path, TORCHSTACK_PYTHON=shutil.which("python3") or "")
    assert code == 1
    assert said == (
        "No test runs without what is missing here: compilers for C and C++, git; "
        "on Debian and Ubuntu install it with: sudo apt-get install g++ git ca-certificates\n"
    )


def test_a_python_without_headers_is_not_enough(tmp_path):
    path = path_without(tmp_path / "bin", "^$")
    python = tmp_path / "python"
    program = 'import sysconfig as s; s.get_path = lambda name: "/nowhere"\nexec(__import__("sys").argv[1])'
    python.write_text("#!/bin/sh\nexec %s -c '%s' \"$2\"\n" % (shutil.which("python3"), program))
    python.chmod(0o755)
    code, said = ask(MACHINE, "check", path=path, TORCHSTACK_PYTHON=str(python))
    assert code == 1
    assert "here: Python's headers; on Debian and Ubuntu install it with: sudo apt-get install python3-dev\n" in said


def test_root_is_told_what_to_run_instead():
    code, said = ask("tests/run", "all", before=("unshare", "--user", "--map-root-user"))
    if "unshare:" in said:
        pytest.skip("no user name spaces: " + said)
    assert code == 1
    assert said.startswith("The tests run as an ordinary account") and ".ci/run" in said and said.count("\n") == 1


def test_what_is_missing_is_named_with_its_tests_and_one_command(tmp_path):
    path = path_without(tmp_path / "bin", "^(sbatch|shellcheck|apptainer)$")
    code, said = ask(MACHINE, "missing", path=path)
    assert code == 0
    lines = said.splitlines()
    assert lines[0] == "Not tested, for want of"
    assert "  ShellCheck: the lint of shell scripts" in lines
    assert any(line.startswith("  Slurm, MUNGE: build steps and acceptances as jobs") for line in lines)
    assert "  compilers" not in said
    assert lines[-1] == "On Debian and Ubuntu this installs what is missing: sudo tests/machine install"


def test_a_scenario_is_left_out_for_want_of_a_program_and_not_otherwise(tmp_path):
    path = path_without(tmp_path / "bin", "^apptainer$")
    code, said = ask(MACHINE, "lacks", "molecule/container", path=path)
    assert (code, said.split()[-1]) == (0, "Apptainer")
    assert ask(MACHINE, "lacks", "molecule/containe", path=path) == (1, "")
    assert ask(MACHINE, "lacks", "molecule/horovod", path=path) == (1, "")


@pytest.mark.parametrize("line", LINES)
def test_each_line_has_four_columns_and_names_tests_that_are_there(line):
    what, seen, packages, tests = (column.strip() for column in line.split("|"))
    assert what and seen and packages and (tests or what.startswith("!"))
    for path in re.findall(r"\b(?:tests|molecule)/[\w/*.]*[\w*]", tests):
        assert list(CHECKOUT.glob(path)), path


def test_only_the_way_to_an_index_is_handed_on():
    listed = (
        ":env:.cert='/ca.pem'\n:env:.find-links='/wheels'\nglobal.cert='/other.pem'\nglobal.index-url='https://i.example/simple'\n"
        "global.extra-index-url='file:///more'\ninstall.no-binary='torch'\n"
    )
    assert configuration(listed) == "[global]\ncert = /ca.pem\nindex-url = https://i.example/simple\n"
