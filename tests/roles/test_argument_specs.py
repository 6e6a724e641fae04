# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a role's specification promises is what its defaults do."""

from __future__ import annotations

import pathlib

import pytest
import yaml

ROLES = sorted(path for path in (pathlib.Path(__file__).parents[2] / "roles").iterdir() if path.is_dir())


def load(role, name):
    return yaml.safe_load((role / name).read_text())


@pytest.fixture(params=ROLES, ids=lambda role: role.name)
def role(request):
    return request.param


def test_every_default_is_specified_and_every_option_has_a_default(role):
    options = load(role, "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    assert set(load(role, "defaults/main.yml")) == set(options)


def test_specified_defaults_are_the_real_ones(role):
    options = load(role, "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    assert load(role, "defaults/main.yml") == {name: option.get("default") for name, option in options.items()}


def test_a_release_file_may_ask_for_the_checks_that_the_role_acceptance_has():
    (acceptance,) = [role for role in ROLES if role.name == "acceptance"]
    (release,) = [role for role in ROLES if role.name == "release"]
    known = load(acceptance, "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    asked = load(release, "meta/argument_specs.yml")["argument_specs"]["release_file"]["options"]["acceptance"]
    for key in ("checks", "where_possible"):
        assert asked["options"][key]["choices"] == known["acceptance_" + key]["choices"]


def test_every_role_has_a_readme_and_a_scenario_of_its_name(role):
    assert (role / "README.md").is_file()
    assert (role.parents[1] / "molecule" / role.name / "converge.yml").is_file()
