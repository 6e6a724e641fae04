# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a Python interpreter says of itself."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import interpreter as interpreters

BASE = os.path.join(sys.base_prefix, "bin", "python%d.%d" % sys.version_info[:2])


def test_an_interpreter_tells_what_it_is():
    facts = interpreters.describe(sys.executable, 20)
    assert facts["problem"] == "" and facts["command"] == sys.executable
    assert facts["version"] == ".".join(str(part) for part in sys.version_info[:3])
    assert facts["minor"] == "%d.%d" % sys.version_info[:2]
    assert facts["tag"] == "cp%d%d" % sys.version_info[:2]
    assert facts["include_dir"] == sysconfig.get_path("include")
    assert facts["headers"] == os.path.exists(os.path.join(facts["include_dir"], "Python.h"))
    assert facts["in_venv"] == (sys.prefix != sys.base_prefix)
    assert facts["platform"] == sysconfig.get_platform().replace("-", "_").replace(".", "_")


@pytest.fixture
def virtual(tmp_path):
    """A virtual environment's interpreter."""
    if not os.access(BASE, os.X_OK):
        pytest.skip("this Python has no %s" % BASE)
    subprocess.run([BASE, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    return str(tmp_path / "venv" / "bin" / "python")


def test_a_virtual_environment_is_recognised_with_its_base(virtual):
    facts = interpreters.describe(virtual, 20)
    assert facts["in_venv"] is True and facts["executable"] == virtual
    assert os.path.realpath(facts["base_executable"]) == os.path.realpath(BASE)
    assert not facts["base_executable"].startswith(os.path.dirname(os.path.dirname(virtual)))


def test_the_base_answers_for_a_virtual_environment(virtual):
    facts = interpreters.outside(virtual, 20)
    assert facts["in_venv"] is False and os.path.realpath(facts["executable"]) == os.path.realpath(BASE)
    assert interpreters.outside(BASE, 20) == interpreters.describe(BASE, 20)


def test_variables_of_the_caller_do_not_colour_the_answer(monkeypatch, tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit(9)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert interpreters.describe(sys.executable, 20)["problem"] == ""


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("#!/bin/sh\nexit 4\n", "it ended with exit code 4"),
        ("#!/bin/sh\necho hello\n", "it did not answer as a Python does"),
        ("#!/bin/sh\n", "it did not answer as a Python does"),
        ("#!/bin/sh\necho 'error while loading shared libraries: libpython3.so' >&2; exit 127\n",
         "error while loading shared libraries: libpython3.so"),
    ],
)
def test_what_is_no_python_is_a_problem_and_no_crash(tmp_path, script, problem):
    command = tmp_path / "python"
    command.write_text(script)
    command.chmod(0o755)
    assert interpreters.describe(str(command), 20) == {"command": str(command), "problem": problem}


def test_a_python_that_is_not_there_is_a_problem():
    assert "No such file" in interpreters.describe("/no/such/python", 20)["problem"]


@pytest.mark.parametrize(
    ("version", "minimum", "answer"),
    [("3.11.2", "3.8", True), ("3.9.1", "3.10", False), ("3.10", "3.10", True), ("3.10", "3.10.1", False),
     ("2.7.18", "3.8", False), ("3.8.0", "", True)],
)
def test_versions_are_compared_as_numbers(version, minimum, answer):
    assert interpreters.at_least(version, minimum) is answer
