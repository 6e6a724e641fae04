# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Which names nobody reads, and what was probably meant."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import variable_names

ROLES = ["publish", "node_health", "horovod"]
KNOWN = {"torchstack_release", "publish_to", "publish_reason", "node_health_nodes", "compare_with"}


def unknown(*typed, inventory=()):
    return variable_names.unknown(typed, inventory, KNOWN, ROLES)


@pytest.mark.parametrize(("name", "sentence"), [
    ("torchstack_relase", "torchstack_relase: there is no such variable; did you mean torchstack_release?"),
    ("publish_too", "publish_too: there is no such variable; did you mean publish_to?"),
    ("node_health_nods", "node_health_nods: there is no such variable; did you mean node_health_nodes?"),
    ("torchstak_release", "torchstak_release: there is no such variable; did you mean torchstack_release?"),
    ("compare_wth", "compare_wth: there is no such variable; did you mean compare_with?"),
    ("horovod_qqqqqqqqqq",
     "horovod_qqqqqqqqqq: there is no such variable; roles/horovod/README.md has those that there are."),
    ("torchstack_qqqqqqqqqqqqqqqq",
     "torchstack_qqqqqqqqqqqqqqqq: there is no such variable; docs/how-to/add-a-site.md has those that there are."),
])
def test_a_slip_is_named_with_what_was_meant(name, sentence):
    assert unknown(name) == [sentence]


def test_all_are_named_at_once_and_those_of_the_inventory_as_such():
    assert unknown("publish_too", inventory=["publish_too", "torchstack_relase"]) == [
        "publish_too: there is no such variable; did you mean publish_to?",
        "In the inventory, torchstack_relase: there is no such variable; did you mean torchstack_release?"]


def test_known_names_and_those_of_others_are_nobodys_business():
    assert unknown(*KNOWN, "ansible_user", "tests", inventory=["ansible_host", "torchstak_release", "releases"]) == []


def test_what_other_variables_of_the_site_use_is_its_own():
    values = {"torchstack_filesystems": "home", "torchstack_jobs": {"directives": ["-l {{ torchstack_filesystems }}"]},
              "torchstack_own": "torchstack_own"}
    assert variable_names.used(values) == {"torchstack_filesystems"}


def test_keys_of_a_release_file_are_no_variables():
    role = {"main": {"options": {"release_root": {}}}, "context": {}, "release_file": {"options": {"release_x": {}}}}
    assert variable_names.declared([role]) == {"release_root"}


@pytest.mark.parametrize(("names", "expected"), [
    (["TORCHSTACK_RELASE"],
     ["TORCHSTACK_RELASE in the environment: there is no such variable; did you mean TORCHSTACK_RELEASE?"]),
    (["TORCHSTACK_RELEASE", "TORCHSTACK_EXAMPLES", "TORCHSTACK_TEST_ROOT", "RELASE", "TORCHSTACK_"], []),
])
def test_of_the_environment_only_slips_are_refused(names, expected):
    known = ["TORCHSTACK_RELEASE", "TORCHSTACK_ROOT"]
    assert variable_names.unknown_in_environment(names, known) == expected
