# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.request import check_request
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.script import render_script


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
    request = check_request({"name": "pytorch", "state_dir": "/release/steps", "script": "make"})
    text = render_script(request, "d" * 64, {"nccl": "1" * 64})
    assert text.startswith("#!/bin/bash\n# Build step pytorch, digest %s.\n" % ("d" * 64))
    assert "nccl, result %s" % ("1" * 64) in text


def test_a_secret_is_known_by_its_name():
    request = check_request({"name": "s", "state_dir": "/s", "script": "", "secrets": ["HF_TOKEN"]})
    assert ': "${HF_TOKEN:?is not set}"' in render_script(request, "d", {}).splitlines()
