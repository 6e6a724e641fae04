# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The filters that roles apply to a release, as Ansible calls them."""

from __future__ import annotations

import datetime

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.hpcml.torchstack.plugins.filter.release import FilterModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.canonical import digest_of
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import site_jobs

FILTERS = FilterModule().filters()


def test_the_digest_is_the_one_of_the_build_steps():
    data = {"b": [1, 2.5, None, True], "a": "\u00fc"}
    assert FILTERS["canonical_digest"](data) == digest_of(data)
    assert FILTERS["canonical_digest"]({"a": 1, "b": 2}) == FILTERS["canonical_digest"]({"b": 2, "a": 1})
    assert FILTERS["canonical_digest"]([1, 2]) != FILTERS["canonical_digest"]([2, 1])


def test_where_a_step_runs_follows_from_the_context():
    data = {"torchstack_jobs": {"launcher": "slurm", "options": {"cores": 4}, "steps": {"mpi": {"cores": 1}}}}
    context = site_jobs.describe(data)
    assert FILTERS["step_job"](context, "mpi") == {"launcher": "slurm", "options": {"cores": 1}}
    assert FILTERS["step_job"]({}, "mpi") == {"launcher": "local", "options": {}}


def test_in_what_a_step_runs_follows_from_the_context():
    context = {"toolchain": {"modules": ["gcc/12"], "module_init": "/init", "steps": {"nccl": {"modules": []}}}}
    assert FILTERS["step_toolchain"](context, "horovod")["modules"] == ["gcc/12"]
    assert FILTERS["step_toolchain"](context, "nccl")["modules"] == []


def test_facts_of_components_problems_of_settings_and_known_problems_are_handed_on():
    assert FILTERS["component_facts"]({"mpi4py": {}})["left_out"] == ["Horovod"]
    assert FILTERS["runtime_problems"]("x") == ["The run-time settings are not a list."]
    assert FILTERS["known_problems"]({"known_problems": [{"problem": "It hangs"}]})[0]["problem"] == "It hangs"


@pytest.mark.parametrize(("name", "arguments", "said"), [
    ("step_job", ("slurm", "mpi"), "step_job: this is not release_context"),
    ("step_toolchain", ("slurm", "mpi"), "step_toolchain: this is not release_context"),
    ("component_facts", ([],), "component_facts: the release file is no mapping"),
    ("step_subjects", ([],), "step_subjects: the release file is no mapping"),
    ("known_problems", ([],), "known_problems: the definition is no mapping"),
    ("canonical_digest", ({"a": datetime.date(2026, 11, 20)},), "digested"),
])
def test_a_wrong_use_is_an_error_of_the_filter(name, arguments, said):
    with pytest.raises(AnsibleFilterError, match=said):
        FILTERS[name](*arguments)
