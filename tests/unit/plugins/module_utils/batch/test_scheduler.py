# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest
from ansible.module_utils.common.yaml import yaml_load
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch import options as job_options
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch import outcomes as batch_words
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch import scheduler as schedulers
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import launch_command as rank_launcher
from ansible_collections.hpcml.torchstack.plugins.modules import build_step

BATCH = [name for name in job_options.LAUNCHERS if name != "local"]


@pytest.mark.parametrize("name", BATCH)
def test_a_batch_system_is_called_alike_everywhere(name):
    scheduler = schedulers.scheduler_of(name)
    assert (scheduler.name, scheduler.title) == (name, batch_words.TITLES[name])


@pytest.mark.parametrize("name", BATCH)
def test_directives_of_every_batch_system_are_looked_at(name):
    assert job_options.check_options(name, {"directives": ["-x harmless"]})["directives"] == ["-x harmless"]


def test_documentation_and_tables_have_every_launcher():
    described = yaml_load(build_step.DOCUMENTATION)["options"]["launcher"]["choices"]
    assert described == list(job_options.LAUNCHERS)
    assert sorted(batch_words.TITLES) == sorted(job_options.LAUNCHERS)
    assert sorted(rank_launcher.JOB_VARIABLES) == sorted(BATCH)
