# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A component that was dropped from a release file: which rules still speak of it, before anything is built."""

from __future__ import annotations

import copy
import pathlib

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import component_problems, left_over
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition.lock_lines import Places
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import release_file as files

RELEASES = sorted((pathlib.Path(__file__).parents[5] / "inventories").glob("*/releases/*.yml"))
LOCAL = files.read(next(path for path in RELEASES if path.match("local/releases/2026-11-20.yml"))).content


def without(*keys):
    definition = copy.deepcopy(LOCAL)
    for key in keys:
        del definition[key]
    return definition


def texts(definition, paths):
    """What stands at dotted paths."""
    found = []
    for path in paths:
        value = definition
        for part in path.replace("[", ".").replace("]", "").split("."):
            value = value[int(part)] if part.isdigit() else value[part]
        found.append(value)
    return found


@pytest.mark.parametrize("path", RELEASES, ids=lambda path: "%s-%s" % (path.parents[2].name, path.stem))
def test_no_release_file_has_anything_left_over(path):
    definition = files.read(path).content
    assert component_problems.problems(definition) == []
    assert left_over.unknown_modules(definition) == {}


def test_all_rules_that_speak_of_horovod_are_found_at_once():
    definition = without("horovod")
    found = left_over.left_over(definition)
    assert set(found) == {"horovod"}
    assert texts(definition, found["horovod"]) == [
        "{packages}/horovod/torch/mpi_lib_v2*.so", "{packages}/horovod/torch/mpi_lib_v2*.so", "horovod.torch",
        "horovod.__version__", "{horovod.version}", "bool(horovod.torch.mpi_built())"]


def test_without_mpi4py_and_horovod_nothing_loads_the_mpi_that_a_rule_requires():
    definition = without("horovod", "mpi4py")
    found = left_over.left_over(definition)
    assert "verification.imports.providers[3].name" in found["mpi4py"]
    assert texts(definition, ["verification.imports.providers[3].name"]) == ["libmpi.so*"]
    assert "verification.imports.providers[3].name" not in left_over.left_over(without("mpi4py"))["mpi4py"]


@pytest.mark.parametrize("rule", [
    {"providers": [{"name": "libnccl*", "path": "{nccl}/lib/*"}]},
    {"embedded": [{"name": "NCCL", "pattern": "{3}", "provider": "{nccl}/lib/*"}]},
    {"providers": [{"name": "libfabric.so*", "path": "{libfabric}/lib*/*"}]},
])
def test_a_place_of_nccl_is_none_without_it(rule):
    definition = {**LOCAL, "verification": {"libraries": rule}}
    assert list(left_over.left_over(definition)) == ["nccl"], "though the wheel's lock has a distribution of that name"
    assert left_over.left_over({**definition, "nccl": {}}) == {}


def test_what_the_acceptance_is_asked_for_counts_too():
    definition = {**without("horovod"), "verification": {}, "acceptance": {
        "imports": ["torch", "horovod.torch"], "checks": ["imports", "horovod", "torch_gloo"]}}
    assert left_over.left_over(definition) == {"horovod": ["acceptance.imports[1]", "acceptance.checks[1]"]}


@pytest.mark.parametrize("key, value", [
    ("packages", [{"name": "mpi4py", "version": "4.1.0"}]),
    ("base", {"kind": "conda", "specs": ["python", "mpi4py >=4"]}),
    ("locks", {"base": "numpy==2.4.6 \\\n    --hash=sha256:00\nmpi4py==4.1.0 \\\n    --hash=sha256:00\n"}),
])
def test_what_comes_from_elsewhere_is_there(key, value):
    definition = {**without("mpi4py"), key: value, "verification": {"imports": {"modules": ["mpi4py.MPI"]}}}
    assert left_over.left_over(definition) == {}


def test_words_for_people_and_patterns_are_not_rules():
    definition = {**without("horovod"), "verification": {"libraries": {"embedded": [
        {"name": "x", "pattern": "/horovod/{2}", "provider": "{packages}/x", "reason": "as /horovod/ {horovod}"}]}}}
    assert left_over.left_over(definition) == {}


@pytest.mark.parametrize(("parts", "where"), [({}, "line 7"), ({"verification": "a/rules.yml"}, "a/rules.yml, line 7")])
def test_the_sentence_names_the_lines(parts, where):
    definition = {**without("horovod"), "verification": {"imports": {"modules": ["torch", "horovod.torch"]}}}
    places = Places({}, {"verification.imports.modules[1]": 7}, parts)
    assert component_problems.problems(definition, "releases/a.yml", places) == [
        "There is no 'horovod' in releases/a.yml, and these still speak of it: "
        "verification.imports.modules[1] (%s); remove them, or add it." % where]


def test_a_module_of_a_dropped_package_is_told_where_nothing_installs_one_by_that_name():
    definition = copy.deepcopy(LOCAL)
    definition["verification"]["imports"]["modules"] = ["torch", "numpy", "einops", "tree_math.x"]
    assert left_over.unknown_modules(definition) == {"verification.imports.modules[3]": "tree_math"}
    definition["packages"] = [package for package in definition["packages"] if package["name"] != "einops"]
    assert left_over.unknown_modules(definition) == {
        "verification.imports.modules[2]": "einops", "verification.imports.modules[3]": "tree_math"}
    definition["packages"].append({"name": "Tree-Math", "version": "1"})
    assert list(left_over.unknown_modules(definition).values()) == ["einops"]
    assert left_over.unknown_modules({**definition, "base": {"kind": "conda", "specs": []}}) == {}


@pytest.mark.parametrize("odd", ["x", None, 3, ["x", None], {"libraries": "x", "imports": [None]}])
def test_what_has_the_wrong_type_is_passed_over(odd):
    definition = {
        "base": {"kind": "python_overlay"}, "verification": odd, "acceptance": odd, "packages": odd, "pytorch": odd}
    assert left_over.left_over(definition) in ({}, {"mpi4py": []})
    left_over.unknown_modules(definition)
