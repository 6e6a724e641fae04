# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.canonical import digest_of
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.inputs import (
    describe_inputs,
    need_value,
    pending_input,
    result_of,
    step_digest,
    step_facts,
    step_record,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.request import check_request

BASE = {
    "name": "pytorch",
    "state_dir": "/release/steps",
    "script": "make",
    "chdir": "/src",
    "modules": ["gcc", "cuda/12"],
    "module_init": None,
    "environment": {"A": "1", "B": "2"},
    "unset": ["X", "Y"],
    "inputs": {"commit": "abc", "flags": [1, 2]},
    "needs": ["nccl"],
    "creates": ["out"],
}
NEEDS = {"nccl": "1" * 64}


def digest(needs=None, **changes):
    return digest_of(step_facts(check_request(dict(BASE, **changes)), NEEDS if needs is None else needs))


@pytest.mark.parametrize(
    "change",
    [
        {"script": "make all"},
        {"chdir": "/other"},
        {"modules": ["cuda/12", "gcc"]},
        {"module_init": "/init"},
        {"environment": {"A": "1", "B": "3"}},
        {"unset": ["X"]},
        {"inputs": {"commit": "abc", "flags": [2, 1]}},
        {"inputs": {"commit": "abc", "flags": ["1", 2]}},
        {"creates": ["out2"]},
        {"needs": {"nccl": "2" * 64}},
        {"needs": {}},
    ],
    ids=str,
)
def test_whatever_changes_the_result_changes_the_digest(change):
    assert digest(**change) != digest()


@pytest.mark.parametrize(
    "change",
    [
        {"name": "torch"},
        {"state_dir": "/elsewhere"},
        {"needs": {"renamed": "1" * 64}},
        {"unset": ["Y", "X", "X"]},
        {"environment": {"B": 2, "A": 1}},
        {"inputs": {"flags": [1, 2], "commit": "abc"}},
    ],
    ids=str,
)
def test_names_and_the_order_of_what_has_no_order_do_not(change):
    assert digest(**change) == digest()


def test_the_digest_is_the_same_on_every_machine_and_in_every_version():
    assert digest() == "22abb64e48536493f91758d73816e1dfbfb0b380588a4712888ba4b655443ac1"


def test_inputs_that_are_no_plain_data_are_refused():
    with pytest.raises(StackError, match="digested"):
        digest(inputs={"a": float("nan")})


def test_a_value_not_known_yet_is_found_at_any_depth():
    assert pending_input({"a": [1, {"b": {"planned_after": "nccl"}}]}) == "nccl"
    assert pending_input({"a": {"planned_after": "nccl", "other": 1}}) is None
    assert pending_input("planned_after") is None


def test_the_difference_names_the_changed_input():
    before = {"facts": step_facts(check_request(dict(BASE)), NEEDS), "needs": NEEDS}
    after = {"facts": step_facts(check_request(dict(BASE, inputs={"commit": "def"})), NEEDS), "needs": NEEDS}
    old, new = (describe_inputs(record, "make\n").split("\n") for record in (before, after))
    assert any('"commit": "def"' in line for line in set(new) - set(old))
    assert old[-2] == "make"
    assert describe_inputs(None, None) == ""


def test_facts_are_what_the_record_holds():
    facts = step_facts(check_request(dict(BASE)), NEEDS)
    assert json.loads(json.dumps(facts)) == facts


def test_the_record_of_the_inputs_has_no_credentials_and_its_digest_tells_two_of_them_apart():
    def asked(password):
        return check_request(dict(BASE, inputs={"url": "https://me:%s@example.org/x" % password, "commit": "abc"}))

    assert digest_of(step_facts(asked("one"), NEEDS)) != digest_of(step_facts(asked("two"), NEEDS))
    record = step_record(asked("one"), "d", NEEDS)
    assert record["facts"]["inputs"] == {"url": "https://***@example.org/x", "commit": "abc"}
    assert record == step_record(asked("two"), "d", NEEDS)


def test_a_step_with_secrets_has_their_names_in_its_digest_and_one_without_the_digest_that_it_always_had():
    assert digest(secrets=[]) == digest() != digest(secrets=["HF_TOKEN"]) == digest(secrets=["HF_TOKEN", "HF_TOKEN"])
    assert digest() == "22abb64e48536493f91758d73816e1dfbfb0b380588a4712888ba4b655443ac1"


STEPS = "/soft/stacks/%s/.torchstack/steps"


def request(release="one", **options):
    options = {"name": "s", "state_dir": STEPS % release, "script": "make -C /soft/stacks/%s/src" % release, **options}
    return check_request(options)


def test_the_same_step_of_another_release_has_the_same_digest():
    assert step_digest(request("one"), {"a": "1"}) == step_digest(request("two"), {"a": "1"})
    assert step_digest(request("one"), {"a": "1"}) != step_digest(request("one"), {"a": "2"})
    beside = request("two", script="make -C /soft/stacks/one/src")
    assert step_digest(beside, {}) != step_digest(request("two"), {})


@pytest.mark.parametrize("other", [{"produces": ["/w"]}, {"creates": ["/w"]}])
def test_what_is_produced_is_an_input(other):
    assert step_digest(request(**other), {}) != step_digest(request(), {})


def test_a_result_is_known_beforehand_unless_something_is_produced():
    plain, install = request(needs=["a", "b"]), request(needs=["a", "b"], judged_by=["b"])
    assert result_of(request(needs=["a", "b"], produces=["/w"]), {"a": "1", "b": "2"}) is None
    assert result_of(plain, {"a": "1", "b": "2"}) != result_of(plain, {"a": "3", "b": "2"})
    assert result_of(install, {"a": "1", "b": "2"}) == result_of(install, {"a": "3", "b": "2"})
    assert result_of(install, {"a": "1", "b": "2"}) != result_of(install, {"a": "1", "b": "3"})


def test_only_what_is_installed_is_judged_by_the_ground():
    assert need_value(request(), "r", "n1") == "r on n1"
    assert need_value(request(), "r", "") == "r"
    assert need_value(request(produces=["/w"]), "r", "n1") == "r"
