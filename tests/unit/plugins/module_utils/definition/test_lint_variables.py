# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a site gives to roles, against what these say of it."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import lint_variables

ROLES = {
    "release": {
        "main": {"options": {
            "release_root": {"type": "path"}, "release_count": {"type": "int"}, "release_jobs": {"type": "raw"},
            "release_words": {"type": "list", "elements": "str"}, "release_visible": {"type": "bool"},
            "release_share": {"type": "float"},
            "release_notes": {"type": "dict", "options": {"lines": {"type": "int"}}},
        }},
        "site": {"options": {"torchstack_toolkits": {"type": "list", "elements": "dict"}}},
        "site_data": {"options": {"torchstack_jobs": {"type": "dict"}}},
        "release_file": {"options": {"title": {"type": "str"}}},
    },
    "modulefile": {"main": {"options": {"modulefile_toolkits": {
        "type": "list", "elements": "dict", "default": "{{ torchstack_toolkits | default([]) }}",
        "options": {"version": {"type": "str", "required": True}},
    }}}},
}
OPTIONS = lint_variables.options_of(ROLES)


def problems(**given):
    return lint_variables.problems(given, OPTIONS, "the data")


def test_a_variable_of_the_site_is_what_the_role_says_that_takes_it():
    assert "options" in OPTIONS["torchstack_toolkits"]
    (found,) = problems(torchstack_toolkits=[{"verson": "1"}, {"version": "2"}])[:1]
    assert found == "Unknown key 'torchstack_toolkits[0].verson' in the data; did you mean 'version'?"


def test_keys_of_files_and_what_is_checked_elsewhere_are_no_variables_here():
    assert not {"title", "torchstack_jobs"} & set(OPTIONS)
    assert problems(title=1, torchstack_jobs=1, somebody_elses=1, release_jobs=1) == []


@pytest.mark.parametrize("given", [
    {"release_count": "3"}, {"release_visible": "yes"}, {"release_visible": 0}, {"release_words": "a,b"},
    {"release_words": [1, "b"]}, {"release_root": 7}, {"release_share": "0.5"}, {"release_notes": {"lines": 3}},
])
def test_what_is_typed_is_text_and_is_taken_as_ansible_takes_it(given):
    assert problems(**given) == []


@pytest.mark.parametrize(("given", "says"), [
    ({"release_count": "many"}, "'release_count' in the data must be a whole number, but it is the text 'many'"),
    ({"release_visible": "maybe"}, "must be true or false"), ({"release_words": {"a": 1}}, "must be a list"),
    ({"release_root": ["/x"]}, "must be a path"),
    ({"release_notes": {"lines": "3"}}, "'release_notes.lines' in the data"),
    ({"release_root": None}, "but it is empty; give it a value or remove the key."),
])
def test_what_no_role_takes_is_one_sentence(given, says):
    (found,) = problems(**given)
    assert says in found


def test_what_has_a_password_in_it_is_not_repeated():
    assert problems(release_words=["https://me:hunter2hunter2@example.org/"], release_count="x") == problems(
        release_count="x")


@pytest.mark.parametrize(("variables", "says"), [
    ({"http": "p"}, "'torchstack_proxy.http': no program takes that for a proxy; did you mean 'http_proxy'?"),
    ({"gateway": "p"}, "known are http_proxy, https_proxy"), ({"no_proxy": 1}, "is no text; put it in quotes."),
])
def test_what_no_program_takes_for_a_proxy_is_told(variables, says):
    (found,) = lint_variables.proxy_problems({"torchstack_proxy": variables})
    assert says in found


@pytest.mark.parametrize(("name", "system"), [
    ("modulefile_lmod_command", "environment-modules"), ("modulefile_modulecmd_command", "lmod"),
])
def test_a_module_command_that_is_none_is_answered_with_what_says_that_now(name, system):
    assert lint_variables.command_problems({name: "none"}) == [
        "'%s' is none, which is no path; say torchstack_module_system: %s." % (name, system)]
    assert lint_variables.command_problems({name: "/opt/lmod"}) == lint_variables.command_problems({}) == []


def test_programs_know_these_of_a_proxy():
    known = dict.fromkeys(("http_proxy", "HTTPS_PROXY", "no_proxy", "SSL_CERT_FILE", "GIT_PROXY_COMMAND"), "x")
    assert lint_variables.proxy_problems({"torchstack_proxy": known}) == []
    assert lint_variables.proxy_problems({"torchstack_proxy": "text", "release_proxy": None}) == []
