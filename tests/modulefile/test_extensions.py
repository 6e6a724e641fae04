# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Whether users find by its packages what a module has inside, in real module systems."""

from __future__ import annotations

import shutil

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.module_system import LMOD

BASH = shutil.which("bash")
PACKAGES = ["numpy/2.1.0", "torch/2.13.0"]
WORDS = {"help": "PyTorch 2.13.0 (CPU)", "whatis": {"Description": "PyTorch 2.13.0 (CPU)"}, "setenv": {"A": "1"}}
RELEASE = {"name": "torchstack", "version": "1", "prefix": "/soft/1", "extensions": PACKAGES, **WORDS}
OTHER = {"name": "torchstack", "version": "2", "prefix": "/soft/2", "extensions": ["numpy/2.4.6"], **WORDS}


@pytest.fixture()
def lmod(system, modulefiles, session):
    """Ask Lmod, with the modulefiles of the two releases; the answer is its text without line breaks."""
    if system.kind != LMOD:
        pytest.skip("Environment Modules have no extensions")
    modulefiles(RELEASE, OTHER)

    def ask(*words):
        return " ".join(session(system, BASH, [words]).messages.split())

    return ask


def test_spider_finds_the_releases_that_have_a_package(lmod):
    found = lmod("spider", "numpy")
    assert "numpy/2.1.0 (E)" in found and "numpy/2.4.6 (E)" in found


@pytest.mark.parametrize(("package", "release", "other"), [
    ("torch/2.13.0", "torchstack/1", "torchstack/2"), ("numpy/2.1.0", "torchstack/1", "torchstack/2"),
    ("numpy/2.4.6", "torchstack/2", "torchstack/1"),
])
def test_spider_names_the_module_to_load_for_a_version(lmod, package, release, other):
    found = lmod("spider", package)
    assert package + " (E)" in found and release in found and other not in found


def test_with_them_it_loads_unloads_and_tells_the_same_everywhere(system, shell, modulefiles, session):
    modulefiles(RELEASE)
    said = session(system, shell, [("help", "torchstack/1"), ("whatis", "torchstack/1")]).messages
    assert said.count("PyTorch 2.13.0 (CPU)") == 2
    _before, loaded, after = session(system, shell, [("load", "torchstack/1"), ("unload", "torchstack/1")]).snapshots
    assert loaded.environment["A"] == "1" and "A" not in after.environment


def test_a_lmod_without_them_loads_it_as_well(system, modulefiles, session):
    if system.kind != LMOD:
        pytest.skip("Environment Modules read no Lua")
    path = modulefiles(RELEASE) / "lmod" / "torchstack" / "1.lua"
    text = path.read_text()
    assert text.count("if extensions then") == 1
    path.write_text("local extensions\n" + text)
    _before, loaded = session(system, BASH, [("load", "torchstack/1")]).snapshots
    assert loaded.environment["A"] == "1"
