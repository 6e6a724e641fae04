# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
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


@pytest.mark.parametrize(
    "change",
    [
        {"chdir": "relative"},
        {"chdir": None},
        {"environment": {"A B": "1"}},
        {"environment": {"A": True}},
        {"environment": {"A": 2.10}},
        {"environment": {"A": None}},
        {"environment": {"A": "x\0y"}},
        {"unset": ["A=1"]},
        {"unset": ["A; rm -rf /"]},
        {"script": "echo \udcff"},
        {"script": "echo \0"},
        {"needs": ["pytorch"]},
        {"needs": ["../x"]},
        {"state_dir": "relative"},
    ],
    ids=ascii,
)
def test_options_that_would_build_the_wrong_thing_are_refused(change):
    with pytest.raises(StackError) as caught:
        check_request(dict(BASE, **change))
    assert caught.value.failed_step == "options"
    assert caught.value.remedy


@pytest.mark.parametrize("change, sentence", [
    ({"environment": {"HF_TOKEN": "abcdefgh"}}, "has the value of a secret in HF_TOKEN"),
    ({"environment": {"INDEX": "https://me:pa55@example.org"}}, "has a password in an address in INDEX"),
    ({"script": "git clone https://me:pa55@example.org/x"}, "has a password in an address in script"),
    ({"script": "curl https://conda.example.org/t/tk-12345/x"}, "has a conda token in script"),
    ({"module_init": "export X=ghp_" + 36 * "a"}, "has a token in module_init"),
    ({"environment": {"HF_TOKEN": "x"}, "secrets": ["HF_TOKEN"]}, "in environment and in secrets"),
    ({"secrets": ["not a name"]}, "is not the name of an environment variable"),
])
def test_what_would_be_a_secret_in_the_script_is_refused(change, sentence):
    with pytest.raises(StackError, match=sentence) as caught:
        check_request(dict(BASE, **change))
    assert "pa55" not in str(caught.value) and "abcdefgh" not in str(caught.value)


@pytest.mark.parametrize("change", [
    {"script": "git clone https://me:$TOKEN@example.org/x; token=$(cat ~/token)"},
    {"script": "python3 -c 'import getpass; password = getpass.getpass()'"},
    {"environment": {"HF_TOKEN": "$HF_TOKEN", "A_KEY_FILE": "/home/me/key", "CI_TOKEN": ""}},
    {"inputs": {"url": "https://me:pa55@example.org/x"}},
])
def test_what_names_a_secret_and_is_none_is_taken(change):
    check_request(dict(BASE, **change))


def test_relative_paths_start_at_chdir():
    assert check_request(dict(BASE, creates=["a/b", "/c"])).created_paths == ["/src/a/b", "/c"]
    assert check_request(dict(BASE, chdir=None, creates=["/c"])).created_paths == ["/c"]
    produced = check_request(dict(BASE, creates=["/c"], produces=["../w.whl", "/c"]))
    assert (produced.produced_paths, produced.created_paths) == (["/w.whl", "/c"], ["/c", "/w.whl"])


@pytest.mark.parametrize("options", [
    {"judged_by": ["b"]}, {"needs": ["a"], "judged_by": ["b"]},
    {"needs": ["a"], "judged_by": ["a"], "produces": ["/w"]},
    {"produces": ["relative"]},
], ids=str)
def test_what_would_be_judged_wrongly_is_refused(options):
    with pytest.raises(StackError) as caught:
        check_request({"name": "s", "state_dir": "/s", "script": "", **options})
    assert caught.value.remedy
