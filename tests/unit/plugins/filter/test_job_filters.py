# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The filters over a site's data about jobs, as templates call them."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.hpcml.torchstack.plugins.filter.jobs import FilterModule

FILTERS = FilterModule().filters()
RULES = {"torchstack_jobs": {"type": "dict", "options": {"launcher": {"type": "str", "choices": ["local", "slurm"]}}}}


def test_data_in_full_is_what_a_step_s_job_is_taken_from():
    data = {"torchstack_jobs": {"launcher": "slurm", "options": {"cores": 4}, "steps": {"mpi": {"cores": 1}}}}
    context = FILTERS["described_jobs"](data)
    assert FILTERS["step_job"](context, "mpi") == {"launcher": "slurm", "options": {"cores": 1}}
    assert FILTERS["step_job"]({}, "mpi") == {"launcher": "local", "options": {}}


def test_problems_are_sentences():
    (sentence,) = FILTERS["job_problems"]({"torchstack_jobs": {"launcher": "slrum"}}, RULES, "group_vars")
    assert sentence.endswith("did you mean 'slurm'?")
    assert FILTERS["job_problems"]({}, RULES) == []


@pytest.mark.parametrize(("name", "arguments", "said"), [
    ("job_problems", ({}, {"torchstack_jobs": {"type": "directory"}}), "job_problems: The schema gives"),
    ("described_jobs", ("slurm",), "described_jobs: the data is no mapping"),
    ("step_job", ("slurm", "mpi"), "step_job: this is not release_context"),
])
def test_a_wrong_use_is_an_error_of_the_filter(name, arguments, said):
    with pytest.raises(AnsibleFilterError, match=said):
        FILTERS[name](*arguments)
