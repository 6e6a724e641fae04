# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What is looked for on the machine, for each kind of base and state of a release."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import machine_request
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import release_file as files

SITE = {
    "python": "python3.11", "compilers": [{"name": "CC", "language": "c"}], "jobs": {}, "ranks": {},
    "images": "/images", "container": {"command": "apptainer"}, "topology": {},
}
OVERLAY = {
    "base": {"kind": "python_overlay", "minimum": "3.11"}, "mpi": {"prefix": "${MPI}", "allow_path": False},
    "pytorch": {"source": {"repository": "https://example.org/p"}},
    "toolchain": {"modules": ["gcc"], "compilers": {"CC": "gcc-12"}},
}
EXPANDED = dict(OVERLAY, mpi={"prefix": "/opt/mpi", "allow_path": False})
CONTAINER = {"base": {"kind": "container", "venv": {"name": "own"}}}


def request(definition, expanded=None, record=None, frozen=False, **site):
    return machine_request.request(
        {**SITE, **site}, files.specified(), definition, expanded or definition, record or {}, frozen)


def test_an_overlay_is_built_with_what_site_release_file_and_modules_say_together():
    assert request(OVERLAY, EXPANDED) == {
        "commands": ["git"], "compilers": [{"name": "CC", "language": "c", "command": "gcc-12"}],
        "mpi": {"prefix": "/opt/mpi", "cc": "", "cxx": "", "launcher": "", "allow_path": False, "wheel": False,
                "start": True},
        "python": {"command": "python3.11", "minimum": "3.11", "headers": True}, "installs": True,
    }
    assert request(OVERLAY, EXPANDED, jobs={"launcher": "pbs"})["mpi"]["start"] is False
    assert request(OVERLAY, EXPANDED, ranks={"launcher": ["srun"]})["mpi"]["start"] is False


def test_of_a_frozen_release_with_modules_only_its_python_is_looked_for():
    found = request(OVERLAY, {}, {"python": {"executable": "/opt/python"}}, frozen=True)
    assert (found["commands"], found["compilers"], found["mpi"]) == ([], [], {})
    assert found["python"]["command"] == "/opt/python"
    without = {key: value for key, value in OVERLAY.items() if key != "toolchain"}
    found = request(without, {}, {"python": {"executable": "/opt/python"}}, frozen=True)
    assert found["mpi"]["prefix"] == "${MPI}" and found["python"]["command"] == "python3.11"


@pytest.mark.parametrize("lock, installs", [("", False), ("numpy==1", True)])
def test_of_a_container_what_starts_it_is_looked_for_and_no_compiler(lock, installs):
    definition = {"base": dict(CONTAINER["base"], venv={"name": "own", "lock": lock})}
    assert request(definition) == {
        "commands": ["apptainer"], "compilers": [], "mpi": {}, "installs": installs,
        "python": {"command": "python3.11", "minimum": "3.8", "headers": False},
    }


def test_the_release_files_python_wins_and_a_conda_base_takes_that_of_the_site():
    named = dict(OVERLAY, base=dict(OVERLAY["base"], python="/usr/bin/python3.12"))
    assert request(named)["python"]["command"] == "/usr/bin/python3.12"
    conda = dict(OVERLAY, base={"kind": "conda", "python": "3.11"})
    assert request(conda)["python"] == {"command": "python3.11", "minimum": "3.10", "headers": False}
