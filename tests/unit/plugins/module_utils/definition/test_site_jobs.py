# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A site's data about jobs and ranks, and what a build step makes of it."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch.options import KEYS
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import site_jobs

RULES = {
    "torchstack_jobs": {"type": "dict", "options": {
        "launcher": {"type": "str", "choices": ["local", "slurm", "pbs"], "default": "local"},
        "options": {"type": "dict"},
        "steps": {"type": "dict"},
        "node": {"type": "dict", "options": {"cores": {"type": "int"}, "memory": {"type": "str"}}},
    }},
    "torchstack_ranks": {"type": "dict", "options": {
        "launcher": {"type": "list", "elements": "str"},
        "nodes": {"type": "int", "default": 1},
        "per_node": {"type": "int", "default": 2},
        "in_job": {"type": "bool"},
    }},
}
SLURM = {
    "launcher": "slurm",
    "options": {"account": "proj1", "partition": "gpu", "walltime": "02:30:00", "cores": 64, "directives": ["--x"]},
    "steps": {"horovod": {"walltime": "00:40:00", "cores": 16}},
}


def problems(jobs=None, ranks=None):
    data = {"torchstack_jobs": jobs, "torchstack_ranks": ranks}
    return site_jobs.problems({name: value for name, value in data.items() if value is not None}, RULES, "group_vars")


def context(jobs):
    return site_jobs.describe({"torchstack_jobs": jobs})


def test_an_account_that_the_environment_does_not_name_is_left_out():
    jobs = dict(SLURM, options=dict(SLURM["options"], account=""), steps={"acceptance": {"account": "", "cores": 2}})
    assert problems(jobs) == []
    assert "account" not in site_jobs.step_job(context(jobs), "acceptance")["options"]


@pytest.mark.parametrize(("jobs", "ranks"), [
    (None, None),
    ({}, {}),
    (None, {"per_node": 4}),
    ({"launcher": "local"}, None),
    (SLURM, {"launcher": ["srun", "--nodes={nodes}", "--ntasks={ranks}", "--ntasks-per-node={per_node}"]}),
    ({"launcher": "pbs", "options": {"queue": "prod"}}, {"launcher": ["mpiexec", "-n", "{ranks}"], "nodes": 2}),
    (SLURM, {"launcher": ["srun", "-N{nodes}", "--ntasks-per-node={per_node}"]}),
])
def test_good_data_has_no_problems(jobs, ranks):
    assert problems(jobs, ranks) == []


@pytest.mark.parametrize(("jobs", "ranks", "sentence"), [
    ("slurm", None, "'torchstack_jobs' in group_vars must be a mapping of keys to values, but it is the text 'slurm'."),
    ({"launcher": "slrum"}, None, "'torchstack_jobs.launcher' in group_vars is 'slrum', which is none of local, slurm, "
                                  "pbs; did you mean 'slurm'?"),
    ({"lancher": "slurm"}, None, "Unknown key 'torchstack_jobs.lancher' in group_vars; "
                                 "did you mean 'launcher'?"),
    ({"node": {"memory": 240}}, None,
     "'torchstack_jobs.node.memory' in group_vars must be text, but it is the number 240; put it in quotes, as YAML "
     "has turned what was written into something else."),
    (dict(SLURM, steps={"Horovod": {}}), None, "'torchstack_jobs.steps' has the key 'Horovod', which is not the name "
                                               "of a step; names have lower-case letters, digits, dots, dashes and "
                                               "underscores."),
    ({"launcher": "slurm", "options": {"wall_time": "1:00:00"}}, None,
     "'torchstack_jobs.options': there is no option wall_time. Did you mean walltime? Known are %s." % (
         ", ".join(KEYS))),
    ({"launcher": "pbs", "steps": {"horovod": {"partition": "gpu"}}}, None,
     "'torchstack_jobs.steps.horovod': PBS has no partition. Say what is meant with queue."),
    ({"steps": {"horovod": "gpu"}}, None, "'torchstack_jobs.steps.horovod' must be a mapping of options to values."),
    (None, {"launcher": []}, "'torchstack_ranks.launcher' is empty; give the words of a command, such as "
                             "[mpiexec, -n, '{ranks}']."),
    (None, {"launcher": ["srun", "-n{rank}"]}, "'torchstack_ranks.launcher' has the placeholder {rank}; known are "
                                               "{ranks}, {nodes}, {per_node}."),
    (None, {"launcher": ["srun", "-N{nodes}"]}, "'torchstack_ranks.launcher' does not say how many ranks to start; use "
                                                "{ranks}, or {nodes} and {per_node}."),
    (None, {"launcher": ["srun", "-n{ranks}"], "nodes": 0}, "'torchstack_ranks.nodes' is 0, and must be at least 1."),
    (None, {"in_job": True}, "'torchstack_ranks.in_job' is true, and 'torchstack_jobs.launcher' names no batch "
                             "system."),
])
def test_a_problem_is_one_sentence(jobs, ranks, sentence):
    found = problems(jobs, ranks)
    assert found == [sentence]


def test_without_site_data_every_step_runs_on_the_machine_itself():
    local = {"launcher": "local", "options": {}}
    assert site_jobs.step_job({}, "horovod") == local
    assert site_jobs.step_job(context({}), "horovod") == local
    assert site_jobs.step_job(context({"options": {"cores": 4}}), "horovod") == local


def test_a_step_differs_key_by_key_from_what_holds_for_all():
    release_context = context(SLURM)
    assert site_jobs.step_job(release_context, "horovod") == {
        "launcher": "slurm",
        "options": dict(SLURM["options"], walltime="00:40:00", cores=16),
    }
    assert site_jobs.step_job(release_context, "pytorch")["options"] == SLURM["options"]


def test_a_queue_of_a_step_replaces_the_partition_of_all_where_slurm_calls_it_so():
    jobs = {"launcher": "slurm", "options": {"queue": "gpu"}, "steps": {"horovod": {"partition": "short"}}}
    assert site_jobs.step_job(context(jobs), "horovod")["options"] == {"partition": "short"}
    assert site_jobs.step_job(context(jobs), "pytorch")["options"] == {"partition": "gpu"}
    jobs["launcher"] = "pbs"
    assert site_jobs.step_job(context(jobs), "pytorch")["options"] == {"queue": "gpu"}


def test_temporary_files_go_where_the_preflight_looks_unless_the_options_say_otherwise():
    jobs = dict(SLURM, node={"tmpdir": "/local/scratch"}, steps={"horovod": {"tmpdir": "/dev/shm"}})
    assert site_jobs.step_job(context(jobs), "pytorch")["options"] == dict(SLURM["options"], tmpdir="/local/scratch")
    assert site_jobs.step_job(context(jobs), "horovod")["options"]["tmpdir"] == "/dev/shm"


def test_the_look_at_a_node_is_short_unless_the_site_says_how_long():
    assert site_jobs.step_job(context(SLURM), "compute-preflight")["options"]["walltime"] == "00:10:00"
    jobs = dict(SLURM, steps={"compute-preflight": {"walltime": "00:02:00", "cores": 1}})
    options = site_jobs.step_job(context(jobs), "compute-preflight")["options"]
    assert (options["walltime"], options["cores"], options["account"]) == ("00:02:00", 1, "proj1")


def test_the_acceptance_asks_for_the_nodes_and_tasks_of_its_ranks_unless_the_site_says_how_many():
    jobs = dict(SLURM, options=dict(SLURM["options"], nodes=1))
    ranks = {"nodes": 2, "per_node": 4}
    found = site_jobs.describe({"torchstack_jobs": jobs, "torchstack_ranks": ranks})
    options = site_jobs.step_job(found, "acceptance")["options"]
    assert (options["nodes"], options["tasks"], options["walltime"], options["cores"]) == (2, 4, "00:15:00", 64)
    found["jobs"]["steps"]["acceptance"] = {"nodes": 3, "tasks": 1}
    options = site_jobs.step_job(found, "acceptance")["options"]
    assert (options["nodes"], options["tasks"]) == (3, 1)


@pytest.mark.parametrize(("jobs", "ranks", "in_job"), [
    ({}, {}, False), (SLURM, {}, True), (SLURM, {"in_job": False}, False),
], ids=str)
def test_ranks_are_started_in_a_job_where_there_is_a_batch_system(jobs, ranks, in_job):
    found = site_jobs.describe({"torchstack_jobs": jobs, "torchstack_ranks": ranks})
    assert found["ranks"]["in_job"] is in_job


def test_the_context_never_shares_its_mappings_with_the_data():
    jobs = {"launcher": "slurm", "options": {"cores": 1}, "node": {"cores": 1}}
    found = context(jobs)["jobs"]
    found["options"]["cores"] = found["node"]["cores"] = 2
    assert jobs["options"] == jobs["node"] == {"cores": 1}
