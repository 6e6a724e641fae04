# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a site says of single partitions, laid over what it says of all; tests/roles/test_site_lint.py has mistakes."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import partitions, site_jobs
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import release_file as files

SPECIFIED = files.specified()
JOBS = {
    "launcher": "slurm", "options": {"partition": "all", "account": "p1", "directives": ["--exclusive"]},
    "steps": {"acceptance": {"queue": "debug", "walltime": "00:20:00"}}, "node": {"cores": 64, "cuda": "12.4"}}
RANKS = {"launcher": ["srun", "-n{ranks}"], "nodes": 2, "per_node": 4}
FLOOR = {"backend": "nccl", "operation": "all_reduce", "bytes": "1 GiB", "source": "ours"}
MEASURE = {"largest": "1 GiB", "floors": {"bandwidth": [{**FLOOR, "busbw": 9}]}}
A100 = {"node_health_expected": {"gpu_model": "*A100*"}}


def site(given, **changed):
    return {"site": "mysite", "release": "r1", "jobs": JOBS, "ranks": RANKS, "acceptance": {"measure": MEASURE},
            "partitions": given, **changed}


def problems(given, sound=True, **changed):
    return partitions.problems(site(given, **changed), SPECIFIED, {}, "here", sound)


def test_what_a_partition_says_takes_the_place_of_what_the_site_says_key_by_key():
    given = {"l40s": {
        "jobs": {"options": {"queue": "l40s"}, "node": {"cores": 32}}, "ranks": {"per_node": 8},
        "acceptance": {"measure": {"floors": {"bandwidth": [{**FLOOR, "busbw": 3}]}}},
        "node_health_expected": {"gpus": 8}}}
    found = partitions.describe(site(given))["l40s"]
    assert found["jobs"]["options"] == {"partition": "l40s", "account": "p1", "directives": ["--exclusive"]}
    assert found["jobs"]["node"] == {"cores": 32, "cuda": "12.4"}
    assert found["ranks"] == {"launcher": ["srun", "-n{ranks}"], "nodes": 2, "per_node": 8, "in_job": True}
    assert found["acceptance"]["measure"] == {"largest": "1 GiB", "floors": {"bandwidth": [{**FLOOR, "busbw": 3}]}}
    assert found["node_health_expected"] == {"gpus": 8}
    assert partitions.describe({"release": "r1"}) == {}


def test_a_step_of_the_site_does_not_lead_the_acceptance_of_a_partition_to_other_nodes():
    own = {"options": {"partition": "l40s"}, "steps": {"acceptance": {"walltime": "01:00:00"}}}
    found = partitions.describe(site({"l40s": {"jobs": own}}))["l40s"]
    asked = site_jobs.step_job(found, "acceptance")["options"]
    assert (asked["partition"], asked["walltime"], asked["nodes"], asked["tasks"]) == ("l40s", "01:00:00", 2, 4)
    assert site_jobs.step_job(site_jobs.describe({"torchstack_jobs": JOBS}), "acceptance")["options"][
        "partition"] == "debug"


def test_options_of_another_batch_system_are_not_carried_over():
    found = partitions.describe(site({"old": {"jobs": {"launcher": "pbs", "options": {"queue": "old"}}}}))["old"]
    assert found["jobs"] == {"launcher": "pbs", "options": {"queue": "old"}, "steps": {}, "node": JOBS["node"]}


def test_why_a_partition_is_optional_or_left_out_belongs_to_the_release():
    given = {"a": {"optional": "It is new."}, "b": {"left_out": {"r1": "It is being moved."}}}
    found = partitions.describe(site(given))
    assert (found["a"]["optional"], found["a"]["left_out"]) == ("It is new.", "")
    assert (found["b"]["optional"], found["b"]["left_out"]) == ("", "It is being moved.")
    assert partitions.describe(site(given, release="r2"))["b"]["left_out"] == ""


def test_partitions_in_which_nothing_is_wrong_have_no_problems():
    assert problems({}) == problems(None) == []
    l40s = {"jobs": {"options": {"partition": "l40s"}}, "optional": "It is new."}
    assert problems({"a100": A100, "l40s": l40s}) == []


@pytest.mark.parametrize("given, says", [
    (["a100"], "'torchstack_partitions' in here must be a mapping"), ({1: {}}, "has the key 1, which is not the name"),
    ({"a": {"ranks": {"nodes": 0}}}, "'torchstack_partitions.a.ranks.nodes' is 0, and must be at least 1."),
    ({"a": {"jobs": {"options": {"queue": "a", "partition": "b"}}}},
     "'torchstack_partitions.a.jobs.options': partition and queue are both given."),
    ({"a": {"jobs": {"launcher": "local"}, "ranks": {"in_job": True}}},
     "'torchstack_partitions.a.ranks.in_job' is true, and 'torchstack_partitions.a.jobs.launcher' names no batch"),
    ({"a": {"jobs": {"node": {"memory": "much"}}}}, "'torchstack_partitions.a.jobs.node.memory' in here is the text"),
    ({"a": {"left_out": {20.5: "Why."}}}, "has the key 20.5, which YAML reads as no text"),
    ({"a": {"left_out": {"r1": ""}}}, "'torchstack_partitions.a.left_out.r1' is no sentence"),
    ({"a": {"optional": " "}}, "'torchstack_partitions.a.optional' is empty"),
    ({"a": {"left_out": {"r1": "Why."}}, "b": {"optional": "Why."}}, "or left out for release r1, which no node would"),
])
def test_what_is_wrong_with_a_partition_is_one_sentence(given, says):
    (found,) = problems(given)
    assert says in found


def test_over_data_that_are_wrong_only_the_own_keys_of_a_partition_are_judged():
    assert problems({"a": {"ranks": {"nodes": 0}}}, sound=False) == []
    (found,) = problems({"a": {"rnaks": {}}}, sound=False)
    assert "did you mean 'ranks'?" in found


def test_a_partition_that_is_asked_for_and_is_not_there_is_answered_with_the_nearest():
    assert problems({"a100": {}, "l40s": {}}, partition="l40s") == []
    (found,) = problems({"a100": {}, "l40s": {}}, partition="l40")
    assert found == "torchstack_partition is l40, which is no partition of site mysite; did you mean 'l40s'?"
    (found,) = problems({}, partition="l40s")
    assert found == "torchstack_partition is l40s, and site mysite names no partitions under torchstack_partitions; " \
        "leave it out."


@pytest.mark.parametrize("own, architectures, missing", [
    (A100, ["8.0"], False), (A100, ["9.0"], True), (A100, [], False), ({}, ["9.0"], False),
    ({"compute_capability": "9.0"}, ["8.0"], True), ({"compute_capability": "9.0"}, ["8.0+PTX"], False),
    ({**A100, "left_out": {"r1": "Why."}}, ["9.0"], False),
])
def test_a_partition_for_whose_gpus_a_release_has_no_code_is_named(own, architectures, missing):
    found = partitions.release_problems(site({"a": own}), {"cuda": {"architectures": architectures}})
    assert len(found) == missing and all("partition a" in sentence for sentence in found)


def test_a_release_that_is_left_out_has_to_be_there():
    given = {"a": {"left_out": {"r2": "Why."}}, "b": "no mapping"}
    assert partitions.left_out_problems(given, {"r1", "r2"}) == partitions.left_out_problems(given, ()) == []
    (found,) = partitions.left_out_problems(given, {"r21", "2026"})
    assert found == "'torchstack_partitions.a.left_out.r2': the site has no release file for r2; did you mean 'r21'?"
