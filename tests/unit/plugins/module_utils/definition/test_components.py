# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The table of components, and what follows from which of them a release has."""

from __future__ import annotations

import json
import pathlib
import shutil

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import (
    component_problems,
    components,
    module_variables,
    patterns,
    release_file,
    step_options,
    toolchain,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition.acceptance_plan import plan_acceptance
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition.component_facts import component_facts
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import release_file as files

CHECKOUT = pathlib.Path(__file__).parents[5]
WHEEL = {"version": "2.6.0", "lock": "torch==2.6.0", "cpu": {}, "cuda_lock": ""}
SOURCE = {"version": "2.6.0", "source": {"repository": "https://example.org/p"}}
CONTAINER = {"base": {"kind": "container"}, "pytorch": {"version": "2.2.0"}}


def test_nothing_is_said_of_what_an_image_is_without():
    assert component_problems.problems(CONTAINER) == []
    assert components.left_out(CONTAINER) == components.commands(CONTAINER) == []
    assert plan_acceptance(CONTAINER)["imports"] == ["torch"]


def test_what_a_release_does_without_is_known_by_name():
    assert components.left_out({"mpi4py": {}}) == ["Horovod"]
    assert components.left_out({"mpi4py": {}, "cuda": {}}) == ["NCCL", "Horovod"]
    assert components.left_out({"mpi4py": {}, "cuda": {}, "horovod": {"nccl": "wheel"}}) == []


def test_what_is_built_on_torch_waits_for_its_installation():
    assert components.package_needs({"pytorch": SOURCE, "mpi4py": {}}) == ["base", "pytorch-install", "mpi4py-install"]
    assert components.package_needs({"pytorch": WHEEL}) == ["base", "pytorch"]
    assert components.package_needs({"pytorch": WHEEL, "nccl": {}}) == ["base", "pytorch", "nccl"]
    assert components.package_needs({}) == ["base", "pytorch", "mpi4py-install"]


@pytest.mark.parametrize("definition, expected", [
    ({"pytorch": WHEEL, "packages": [{"name": "a", "lock": "a==1"}]}, []),
    ({"pytorch": SOURCE}, ["git"]),
    ({"packages": [{"name": "a", "repository": "https://example.org/a"}]}, ["git"]),
    ({"nccl": {"repository": "https://example.org/n", "plugin": {}}}, ["git", "make"]),
    ({"nccl": {"repository": "https://example.org/n", "plugin": {"version": "1"}}},
     ["git", "make", "autoreconf", "automake", "libtoolize"]),
])
def test_preflight_looks_for_the_commands_of_the_parts_that_are_there(definition, expected):
    assert components.commands(definition) == expected


# --- a new component -------------------------------------------------------------------------------------------------

TOY = components.Component(
    "apex", "Apex", "apex", ("apex-source", "apex"), distribution="apex", words=("apex",), before_packages="apex",
    imports=("apex",), checks=("apex",), series={"apex": ("apex",)}, sources=(("apex",),),
    commands={("apex", "fast"): ("ninja",)}, places=(("apex", "prefix"),), environments=(("apex", "environment", "*"),),
    patterns={"apex.commit": patterns.COMMIT},
    check=lambda section, _definition: iter([("apex", "is slow")] if section.get("slow") else []),
)
SPECIFIED = """
argument_specs:
  release_file:
    options:
      apex:
        type: dict
        options:
          repository: {type: str}
          commit: {type: str}
          series: {type: str, default: ""}
          fast: {type: bool, default: false}
          slow: {type: bool, default: false}
          prefix: {type: str, default: ""}
          environment: {type: dict, default: {}}
"""


@pytest.fixture()
def toy(monkeypatch, tmp_path):
    """A component in the two places that docs name: a row of the table, and the folder of its role."""
    roles = tmp_path / "roles"
    roles.mkdir()
    for path in files.ROLES.iterdir():
        (roles / path.name).symlink_to(path)
    (roles / "apex" / "files" / "series" / "1.0").mkdir(parents=True)
    (roles / "apex" / "files" / "series" / "1.0" / "0001-a.patch").write_text("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n")
    (roles / "apex" / "meta").mkdir()
    (roles / "apex" / "meta" / "argument_specs.yml").write_text(SPECIFIED)
    monkeypatch.setattr(components, "COMPONENTS", (*components.COMPONENTS, TOY))
    monkeypatch.setattr(files, "ROLES", roles)
    files.specified.cache_clear()
    yield roles
    files.specified.cache_clear()


def written(**apex):
    path = files.ROLES.parents[0] / "toy.yml"
    original = CHECKOUT / "inventories/local/releases/2026-11-20.yml"
    path.write_text(original.read_text() + "\napex: %s\n" % json.dumps(apex))
    shutil.copytree(original.with_suffix(""), path.parent / original.stem, dirs_exist_ok=True)
    return files.read(path)[:2]


def test_a_new_component_is_one_row_and_the_folder_of_its_role(toy):
    keys = files.specified()["release_file"]["options"]
    content, lines = written(
        repository="https://example.org/a", commit="0" * 40, series="1.0", fast=True, prefix="${APEX_HOME}")
    assert release_file.problems(content, keys, "a.yml", lines) == []
    found = release_file.define(content, keys, str(toy))
    assert sorted(found.series) == ["apex", "horovod"] and found.definition["apex"]["slow"] is False
    facts = component_facts(found.definition)
    assert facts["package_needs"][-1] == "apex" and facts["commands"] == ["git", "ninja"]
    assert "apex" in facts["acceptance"]["checks"] and "apex" in facts["acceptance"]["imports"]
    assert module_variables.expand(found.definition, {"APEX_HOME": "/a"}).definition["apex"]["prefix"] == "/a"
    assert toolchain.unknown_steps(dict(found.definition, toolchain={"steps": {"apex-source": {}}})) == []
    assert [step_options.toolchain_key(found.definition, step) for step in ("apex-source", "apex")] == ["", "apex"]
    assert component_facts(dict(CONTAINER))["left_out"] == []
    assert component_facts({"mpi4py": {}, "horovod": {}})["left_out"] == ["Apex"]


@pytest.mark.parametrize("change, said", [
    ({"apex": {"commit": "1"}}, "'apex.commit' in a.yml is the text '1'; it must be 40 hexadecimal digits."),
    ({"apex": {"comit": "1"}}, "Unknown key 'apex.comit' in a.yml; did you mean 'commit'?"),
    ({"apex": {"slow": True}}, "'apex' in a.yml is slow."),
    ({"apex": {}, "packages": [{"name": "apex", "version": "1"}]}, "would replace apex, which apex installs;"),
    ({"apex": {}, "base": {"kind": "container"}}, "'apex' in a.yml means nothing to a container"),
    ({"verification": {"libraries": {"require": [{"object": "{apex}/a.so"}]}}}, "There is no 'apex' in a.yml"),
    ({"acceptance": {"imports": ["apex.x"]}}, "There is no 'apex' in a.yml"),
])
def test_every_check_knows_a_new_component_by_its_row(toy, change, said):
    content, lines = files.read(CHECKOUT / "inventories/local/releases/2026-11-20.yml")[:2]
    keys = files.specified()["release_file"]["options"]
    assert any(said in one for one in release_file.problems({**content, **change}, keys, "a.yml", lines))


@pytest.mark.parametrize("row", components.COMPONENTS, ids=lambda row: row.key)
def test_every_component_has_its_role_and_a_rollout_calls_it(row):
    assert (files.ROLES / row.role / "tasks").is_dir()
    called = (CHECKOUT / "playbooks" / "rollout.yml").read_text()
    assert "hpcml.torchstack.%s\n" % row.role in called
