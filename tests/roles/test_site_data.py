# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A site's data about jobs, as the documentation writes it and as playbooks hand it on."""

from __future__ import annotations

import pathlib
import re

import pytest
import yaml
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch import registry
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import partitions, site_jobs
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import release_file as files

TOP = pathlib.Path(__file__).parents[2]
SPECIFIED = yaml.safe_load((TOP / "roles/release/meta/argument_specs.yml").read_text())["argument_specs"]
RULES = SPECIFIED["site_data"]["options"]
DOCUMENT = "docs/how-to/build-on-compute-nodes.md"
WRITTEN = [
    yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", (TOP / DOCUMENT).read_text(), re.DOTALL)
]
EXAMPLES = [example for example in WRITTEN if "torchstack_jobs" in example]


@pytest.fixture(params=EXAMPLES, ids=lambda example: example["torchstack_jobs"]["launcher"])
def example(request):
    return request.param


def test_documented_site_data_is_accepted(example):
    data = {name: example[name] for name in RULES}
    assert site_jobs.problems(data, RULES, DOCUMENT) == []


@pytest.mark.parametrize("example", [
    example for example in EXAMPLES if example["torchstack_jobs"]["launcher"] != site_jobs.LOCAL],
    ids=lambda example: example["torchstack_jobs"]["launcher"])
def test_documented_site_data_makes_a_batch_script(example):
    job = site_jobs.step_job(site_jobs.describe(example), "horovod")
    options = registry.check_options(job["launcher"], job["options"])
    assert registry.system_of(job["launcher"])().script("ts-horovod", options, "/soft/log", ["/bin/true"])


def test_documented_partitions_go_with_documented_site_data():
    (given,) = [example["torchstack_partitions"] for example in WRITTEN if "torchstack_partitions" in example]
    (slurm,) = [example for example in EXAMPLES if example["torchstack_jobs"]["launcher"] == "slurm"]
    site = {"site": "mysite", "release": "r1", "jobs": slurm["torchstack_jobs"], "ranks": slurm["torchstack_ranks"],
            "acceptance": {}, "partitions": given}
    assert partitions.problems(site, files.specified(), {}, DOCUMENT, True) == []
    l40s = partitions.describe(site)["l40s"]
    job = site_jobs.step_job(l40s, "acceptance")
    assert (job["options"]["partition"], job["options"]["tasks"], l40s["jobs"]["node"]["cores"]) == ("gpu-l40s", 8, 32)


def test_a_site_may_name_every_launcher():
    assert RULES["torchstack_jobs"]["options"]["launcher"]["choices"] == list(registry.LAUNCHERS)


@pytest.mark.parametrize("playbook", ["rollout", "accept"])
def test_every_rollout_hands_on_what_the_site_does_about_steps_that_hang_and_their_logs(playbook):
    (play,) = yaml.safe_load((TOP / "playbooks" / (playbook + ".yml")).read_text())
    defaults = play["module_defaults"]["hpcml.torchstack.build_step"]
    assert defaults["on_hang"] == "{{ torchstack_hang | default({}) }}"
    assert defaults["private_logs"] == "{{ torchstack_private_logs | default(false) }}"
