# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles import module_ranges
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.description import normalise
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.description_checks import find_faults
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.layout import render

VERSIONS = ("8.9", "9", "9.0", "9.1", "9.1.1", "9.1.3-12", "9.10", "10.0", "9.1-rc1")


@pytest.mark.parametrize(("text", "inside"), [
    ("cudnn@9.1:", ["9.1", "9.1.1", "9.1.3-12", "9.10", "10.0"]),
    ("cudnn@:9", ["8.9", "9", "9.0", "9.1", "9.1.1", "9.1.3-12", "9.10", "9.1-rc1"]),
    ("cudnn@9.1:9.1", ["9.1", "9.1.1", "9.1.3-12"]),
    ("cudnn@9.0.0:9.1.1", ["9", "9.0", "9.1", "9.1.1", "9.1-rc1"]),
])
def test_a_range_holds_versions_by_their_numbers_and_what_begins_with_its_upper_bound(text, inside):
    wanted = module_ranges.parse(text)
    assert [version for version in VERSIONS if wanted.holds(version)] == inside


@pytest.mark.parametrize("text", ["cudnn", "cudnn/9.1", "cudnn@9.1", "cudnn@:", "cudnn@9:8:7", "@9:"])
def test_what_is_no_range(text):
    assert module_ranges.parse(text) is None


@pytest.mark.parametrize(("loaded", "listed", "default", "chosen"), [
    (["gcc/12", "cudnn/9.1"], "cudnn/9.1\ncudnn/9.10\n", "cudnn/9.10\n", "cudnn/9.1"),
    (["cudnn/8.9"], "/site:\ncudnn/9.1\ncudnn/9.10\ncudnn/9.9\n", "", "cudnn/9.10"),
    ([], "cudnn/9.1(default)\ncudnn/9.10\n", "", "cudnn/9.1"),
    ([], "cudnn/9.1\ncudnn/9.10\n", "/site:\ncudnn/9.1\n", "cudnn/9.1"),
    ([], "cudnn/8.9(default)\ncudnn/9.10\ncudnn-other/9.20\n", "cudnn/8.9\n", "cudnn/9.10"),
    ([], "cudnn/8.9\n", "", ""),
])
def test_of_a_range_the_loaded_module_comes_first_then_the_default_then_the_highest(loaded, listed, default, chosen):
    assert module_ranges.choose(module_ranges.parse("cudnn@9.1:9"), loaded, listed, default) == chosen


def described(*depends_on):
    return normalise({"name": "torchstack", "version": "1", "prefix": "/soft", "depends_on": depends_on})


def test_a_modulefile_asks_for_a_range_in_the_words_of_its_module_system():
    description = described("PrgEnv-gnu", "cudnn@9.1:", "cuda@12.4:12.9", "fabric@:2")
    assert find_faults(description) == []
    made = render(description, "1")
    for line in ('depends_on("PrgEnv-gnu")', 'depends_on(atleast("cudnn", "9.1"))',
                 'depends_on(between("cuda", "12.4", "12.9.999999999"))',
                 'depends_on(between("fabric", "0", "2.999999999"))'):
        assert line in made["lmod"].splitlines()
    for line in ('module load "PrgEnv-gnu"', 'module load [in_range cudnn "9.1" ""]',
                 'module load [in_range cuda "12.4" "12.9"]', 'module load [in_range fabric "" "2"]'):
        assert line in made["tcl"].splitlines()
    assert "in_range" not in render(described("cudnn/9.1"), "1")["tcl"]


@pytest.mark.parametrize(("name", "said"), [
    ("cudnn@9.1", "a range of versions is written as cudnn@9.1: (9.1 or newer) or cudnn@9.1:9"),
    ("cudnn>=9.1", "a range of versions is written as cudnn@9.1:"),
    ("cudnn@9.1:8.9", "'cudnn@9.1:8.9' in depends_on is a range in which no version lies: 8.9 comes before 9.1."),
    ("-cudnn", "what a user must not have loaded stands under conflicts"),
])
def test_what_is_neither_a_module_nor_a_range_is_refused_with_the_form_of_one(name, said):
    (fault,) = find_faults(described(name))
    assert said in fault


def test_a_conflict_is_no_range():
    (fault,) = find_faults(normalise({"name": "t", "version": "1", "prefix": "/soft", "conflicts": ["cudnn@9:"]}))
    assert fault == "'cudnn@9:' in conflicts is not the name of a module."


@pytest.mark.parametrize(("text", "name"), [("cudnn@9.1:", "cudnn"), ("python/3.11", "python"), ("gcc", "gcc")])
def test_the_name_of_a_dependency(text, name):
    assert module_ranges.name_of(text) == name
