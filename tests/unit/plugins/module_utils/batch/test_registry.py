# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Every batch system is known by its name, everywhere."""

from __future__ import annotations

import pathlib

import pytest
from ansible.module_utils.common.yaml import yaml_load
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch import registry
from ansible_collections.hpcml.torchstack.plugins.modules import build_step

TOP = pathlib.Path(registry.__file__).resolve().parents[3]


@pytest.mark.parametrize("name", registry.SYSTEMS)
def test_a_batch_system_says_what_everybody_has_to_know_of_it(name):
    system = registry.system_of(name)()
    assert (system.name, registry.title_of(name)) == (name, system.title)
    assert system.job_id_variable and system.job_variables


@pytest.mark.parametrize("name", registry.SYSTEMS)
def test_directives_of_every_batch_system_are_checked(name):
    assert registry.check_options(name, {"directives": ["-x harmless"]})["directives"] == ["-x harmless"]


def test_the_documentation_has_every_launcher():
    described = yaml_load(build_step.DOCUMENTATION)["options"]["launcher"]["choices"]
    assert described == list(registry.LAUNCHERS)


def test_a_site_may_name_every_launcher_and_its_page_has_a_column_for_it():
    specs = yaml_load((TOP / "roles" / "release" / "meta" / "argument_specs.yml").read_text())["argument_specs"]
    launcher = specs["site_data"]["options"]["torchstack_jobs"]["options"]["launcher"]
    assert launcher["choices"] == list(registry.LAUNCHERS)
    page = (TOP / "docs" / "how-to" / "build-on-compute-nodes.md").read_text()
    titles = [registry.title_of(name) for name in registry.SYSTEMS]
    assert "| option | meaning | %s |" % " | ".join(titles) in page


@pytest.mark.parametrize(("name", "key"), [("slurm", "partition"), ("pbs", "queue"), ("flux", "queue")])
def test_where_a_job_waits_is_said_by_the_option_of_its_batch_system(name, key):
    assert registry.queue_key(name) == key
    assert registry.check_options(name, {key: "main"})[key] == "main"
