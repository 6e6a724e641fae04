# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Every batch system is known by its name, everywhere."""

from __future__ import annotations

import pytest
from ansible.module_utils.common.yaml import yaml_load
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch import registry
from ansible_collections.hpcml.torchstack.plugins.modules import build_step


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
