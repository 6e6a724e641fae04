# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Names of steps that nothing has."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import step_names

WHEEL = {"pytorch": {"lock": "x"}, "horovod": {}}
SOURCE = {"pytorch": {"source": {"tag": "v1"}}, "nccl": {}, "packages": [{"name": "Flash_Attn"}]}


@pytest.mark.parametrize("name", [
    "compute-preflight", "acceptance", "sweep", "node_health", "bytecode", "pytorch", "horovod", "nccl-plugin",
    "package-flash-attn",
])
def test_a_step_of_any_release_of_the_site_may_have_its_own_job(name):
    assert step_names.job_problems({"steps": {name: {}}}, [WHEEL, SOURCE]) == []


@pytest.mark.parametrize(("name", "near"), [
    ("aceptance", "did you mean 'acceptance'?"), ("package-flash-atn", "did you mean 'package-flash-attn'?"),
    ("nccl-source", "; there are "), ("mpi4py", "there are acceptance, bytecode, compute-preflight, "),
])
def test_what_no_release_runs_in_a_job_is_told_with_what_was_meant(name, near):
    (found,) = step_names.job_problems({"steps": {name: {}}}, [WHEEL, SOURCE])
    assert found.startswith("'torchstack_jobs.steps.%s': no release of the site has a step '%s'" % (name, name))
    assert near in found


@pytest.mark.parametrize("jobs", [None, {}, {"steps": None}, {"steps": {"x": {}}}])
def test_without_releases_or_steps_nothing_is_told(jobs):
    assert step_names.job_problems(jobs, []) == []


def test_a_toolchain_may_speak_of_a_component_that_is_not_there_and_of_no_other_step():
    definition = {**WHEEL, "toolchain": {"steps": {"nccl": {}, "compute-preflight": {}, "pytroch": {}}}}
    (found,) = step_names.toolchain_problems(definition, "a.yml")
    assert found == "'toolchain.steps.pytroch' in a.yml: there is no step 'pytroch'; did you mean 'pytorch'?"
    assert step_names.toolchain_problems({"toolchain": {"steps": []}}) == []
