# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import subprocess

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.canonical import digest_of
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.step import (
    check_request,
    created_paths,
    describe_inputs,
    describe_outcome,
    pending_input,
    render_script,
    resume_reason,
    seconds_of,
    step_facts,
    step_files,
    step_record,
    utc,
)

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


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "A", "a b", ".hidden", "-a", "a\n", "\u00e4"], ids=ascii)
def test_a_name_that_cannot_be_a_directory_is_refused(name):
    with pytest.raises(StackError) as caught:
        step_files("/s", name)
    assert caught.value.failed_step == "options"


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


def test_a_value_not_known_yet_is_found_at_any_depth():
    assert pending_input({"a": [1, {"b": {"planned_after": "nccl"}}]}) == "nccl"
    assert pending_input({"a": {"planned_after": "nccl", "other": 1}}) is None
    assert pending_input("planned_after") is None


def run_script(tmp_path, caller=None, **options):
    """The output and exit code of a step's script, run by hand with the caller's environment."""
    request = check_request(dict({"name": "s", "state_dir": str(tmp_path), "script": ""}, **options))
    script = tmp_path / "script.sh"
    script.write_bytes(render_script(request, "0" * 64, {"need": "1" * 64}).encode("utf-8"))
    process = subprocess.run(
        ["bash", str(script)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        env=dict(os.environ, **(caller or {})),
    )
    return process.stdout.decode("utf-8"), process.returncode


NASTY = ["", " ", "it's", '"', "$HOME `id` $(id)", "a\nb\n", "\\", "!", "*", "\u00e4\u20ac\U0001f642", "-n", "~"]


@pytest.mark.parametrize("value", NASTY, ids=ascii)
def test_values_reach_the_commands_literally(tmp_path, value):
    output, code = run_script(tmp_path, environment={"V": value}, script='printf "<%s>" "$V"')
    assert (output, code) == ("<%s>" % value, 0)


@pytest.mark.parametrize("name", ["a b", "it's", 'a"b', "$x", "-a", "*", "\u00e4"], ids=ascii)
def test_any_directory_can_be_the_working_directory(tmp_path, name):
    directory = tmp_path / name
    directory.mkdir()
    assert run_script(tmp_path, chdir=str(directory), script='printf %s "$PWD"') == (str(directory), 0)


def test_without_chdir_the_commands_start_beside_the_script(tmp_path):
    assert run_script(tmp_path, script='printf %s "$PWD"') == (str(tmp_path), 0)


def test_a_variable_of_the_caller_that_is_unset_is_not_seen(tmp_path):
    script = 'echo "${LDFLAGS-none} ${KEPT-none}"'
    assert run_script(tmp_path, {"LDFLAGS": "x", "KEPT": "y"}, unset=["LDFLAGS"], script=script) == ("none y\n", 0)


@pytest.mark.parametrize(
    "script, code",
    [("false | cat", 1), ("exit 7", 7), ("false\ntrue", 1), ("echo $not_set", 1), ("true", 0), ("(exit 3) | tee x", 3)],
)
def test_the_exit_code_is_the_scripts_own(tmp_path, script, code):
    assert run_script(tmp_path, chdir=str(tmp_path), script=script)[1] == code


def test_the_script_runs_under_umask_022(tmp_path):
    previous = os.umask(0o077)
    try:
        assert run_script(tmp_path, script="umask") == ("0022\n", 0)
    finally:
        os.umask(previous)


MODULES = """
loaded=
module() {
    case "$1" in
        purge) unset LEAKED; loaded=;;
        load) unbound=$NEVER_SET; case "$2" in bad*) return 1;; esac; loaded="$loaded$2;";;
    esac
}
"""


def test_modules_are_purged_and_loaded_in_order_although_they_are_not_written_for_set_u(tmp_path):
    init = tmp_path / "it's init"
    init.write_text(MODULES)
    output, code = run_script(
        tmp_path, {"LEAKED": "1"}, modules=["gcc/12", "a b"], module_init=str(init),
        script='echo "$loaded ${LEAKED-gone}"; case $- in *e*u*|*u*e*) echo strict;; esac',
    )
    assert (output, code) == ("gcc/12;a b; gone\nstrict\n", 0)


def test_shell_text_can_define_the_module_command(tmp_path):
    assert run_script(tmp_path, modules=["x"], module_init=MODULES, script="echo $loaded") == ("x;\n", 0)


def test_a_module_that_does_not_load_ends_the_step(tmp_path):
    output, code = run_script(tmp_path, modules=["bad/1"], module_init=MODULES, script="echo not reached")
    assert (output, code) == ("module load bad/1 failed\n", 1)


@pytest.mark.parametrize("init", ["/nowhere/init", "unset -f module"])
def test_a_missing_module_command_ends_the_step(tmp_path, init):
    output, code = run_script(tmp_path, modules=["x"], module_init=init, script="echo reached")
    assert code == 1
    assert "module_init" in output
    assert "reached" not in output


def test_startup_files_do_not_reach_the_commands_children(tmp_path):
    startup = tmp_path / "startup"
    startup.write_text("export FROM_STARTUP=1\n")
    output, _code = run_script(
        tmp_path, {"BASH_ENV": str(startup)}, script="unset FROM_STARTUP; bash -c 'echo ${FROM_STARTUP-clean}'"
    )
    assert output == "clean\n"


def test_the_script_says_what_it_is_and_names_its_needs():
    text = render_script(check_request(dict(BASE)), "d" * 64, NEEDS)
    assert text.startswith("#!/bin/bash\n# Build step pytorch, digest %s.\n" % ("d" * 64))
    assert "nccl, result %s" % ("1" * 64) in text


def test_relative_creates_start_at_chdir():
    assert created_paths(check_request(dict(BASE, creates=["a/b", "/c"]))) == ["/src/a/b", "/c"]
    assert created_paths({"chdir": None, "creates": ["/c"]}) == ["/c"]


def test_times_survive_the_record():
    assert seconds_of(utc(1700000000.9)) == 1700000000
    assert utc(0) == "1970-01-01T00:00:00Z"


def test_the_difference_names_the_changed_input():
    before = {"facts": step_facts(check_request(dict(BASE)), NEEDS), "needs": NEEDS}
    after = {"facts": step_facts(check_request(dict(BASE, inputs={"commit": "def"})), NEEDS), "needs": NEEDS}
    old, new = (describe_inputs(record, "make\n").split("\n") for record in (before, after))
    assert any('"commit": "def"' in line for line in set(new) - set(old))
    assert old[-2] == "make"
    assert describe_inputs(None, None) == ""


JOB = {"host": "login01", "pid": 7, "started": "2026-11-20T00:00:00Z"}


@pytest.mark.parametrize(
    "standing, job, outcome, missing, expected",
    [
        ("none", None, None, [], None),
        ("finished", JOB, {"reason": "done"}, [], None),
        ("finished", JOB, {"reason": "exit", "code": 2}, [], "the last attempt failed: step s failed with exit code 2"),
        ("killed", JOB, None, [], "s was killed (host login01, pid 7, started 2026-11-20T00:00:00Z); resumed"),
        ("finished", JOB, {"reason": "done"}, ["/a"], "s was complete, but /a is gone"),
    ],
)
def test_a_resumed_step_says_why(standing, job, outcome, missing, expected):
    assert resume_reason("s", standing, job, outcome, missing) == expected


def test_a_reboot_is_told_from_a_kill():
    assert resume_reason("s", "rebooted", JOB, None, []).startswith("the machine rebooted while s was running")
    assert "what was left of it was stopped" in resume_reason("s", "leftover", JOB, None, [])


@pytest.mark.parametrize(
    "outcome, words",
    [
        ({"reason": "signal", "signal": 9}, "signal 9"),
        ({"reason": "timeout", "limit": 2.5}, "after 2.5 s (timeout)"),
        ({"reason": "no_output_timeout", "limit": 60.0}, "nothing for 60 s"),
        ({"reason": "stopped", "signal": 15}, "asked to by signal 15"),
        ({"reason": "creates", "missing": ["/a", "/b"]}, "did not create /a, /b"),
        ({"reason": "error", "error": "disk full"}, "disk full"),
    ],
    ids=str,
)
def test_every_end_has_its_words(outcome, words):
    assert words in describe_outcome("s", outcome)


def test_facts_are_what_the_record_holds():
    facts = step_facts(check_request(dict(BASE)), NEEDS)
    assert json.loads(json.dumps(facts)) == facts


def test_secrets_are_known_by_name_and_a_step_without_them_has_the_digest_that_it_always_had():
    assert digest(secrets=[]) == digest() != digest(secrets=["HF_TOKEN"]) == digest(secrets=["HF_TOKEN", "HF_TOKEN"])
    assert digest() == "22abb64e48536493f91758d73816e1dfbfb0b380588a4712888ba4b655443ac1"
    request = check_request(dict(BASE, secrets=["HF_TOKEN"]))
    assert ': "${HF_TOKEN:?is not set}"' in render_script(request, "d", NEEDS).splitlines()


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


def test_the_record_of_the_inputs_has_no_credentials_and_its_digest_tells_two_of_them_apart():
    def asked(password):
        return check_request(dict(BASE, inputs={"url": "https://me:%s@example.org/x" % password, "commit": "abc"}))

    assert digest_of(step_facts(asked("one"), NEEDS)) != digest_of(step_facts(asked("two"), NEEDS))
    record = step_record(asked("one"), "d", NEEDS)
    assert record["facts"]["inputs"] == {"url": "https://***@example.org/x", "commit": "abc"}
    assert record == step_record(asked("two"), "d", NEEDS)
