# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How the function of a module ends."""

from __future__ import annotations

import errno

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import run_module


class Exit(Exception):
    """As AnsibleModule ends its process."""


class Module:
    """Keeps what an AnsibleModule would print."""

    made = None

    def __init__(self, options, supports_check_mode, **rules):
        Module.made, self.options, self.supports_check_mode, self.rules = self, options, supports_check_mode, rules
        self.params, self.result, self.failed = {"name": "gloo"}, None, None

    def exit_json(self, **result):
        self.result = result
        raise Exit

    def fail_json(self, **failed):
        self.failed = failed
        raise Exit


@pytest.fixture(autouse=True)
def _no_process(monkeypatch):
    monkeypatch.setattr("ansible.module_utils.basic.AnsibleModule", Module)


def end_of(function, **options):
    with pytest.raises(Exit):
        run_module(function, {"name": {"type": "str"}}, **options)
    return Module.made


def raising(error):
    def function(_module):
        raise error

    return function


def test_the_function_takes_the_module_and_returns_its_result():
    module = end_of(lambda module: {"changed": True, "step": module.params["name"]})
    assert module.result == {"changed": True, "step": "gloo"} and module.failed is None


def test_a_failure_says_what_failed_and_what_to_do():
    module = end_of(raising(StackError("It is full.", "write", "Make room.", "/soft", bytes=7)))
    assert module.result is None
    assert module.failed == {
        "msg": "It is full. Make room.", "failed_step": "write", "remedy": "Make room.", "path": "/soft", "bytes": 7}


def test_a_path_is_left_out_where_ansible_would_add_the_state_of_that_file():
    module = end_of(raising(StackError("It is full.", "write", "Make room.", "/soft")), with_path=False)
    assert "path" not in module.failed and module.failed["remedy"] == "Make room."


def test_an_error_of_the_system_names_the_file_and_a_remedy():
    module = end_of(raising(PermissionError(errno.EACCES, "Permission denied", "/soft/x")), failed_step="write")
    assert module.failed["msg"] == (
        "/soft/x: Permission denied. Check that this account may write there and that there is space.")
    assert module.failed["failed_step"] == "write"


def test_a_full_file_system_has_a_remedy_of_its_own():
    module = end_of(raising(OSError(errno.ENOSPC, "No space left on device", "/soft/x")))
    assert module.failed["remedy"] == "Make room on the file system."
    assert module.failed["failed_step"] == "files"


def test_an_error_of_the_system_without_a_file_is_told_too():
    assert end_of(raising(OSError("timed out"))).failed["msg"].startswith("timed out. Check")


def test_a_module_may_describe_its_failure():
    module = end_of(
        raising(StackError("It is full.", "write", "Make room.")),
        describe=lambda made, failed: dict(failed, step=made.params["name"]))
    assert module.failed["step"] == "gloo" and module.failed["msg"] == "It is full. Make room."


def test_other_errors_are_faults_of_the_program_and_stay_as_they_are():
    with pytest.raises(KeyError):
        run_module(raising(KeyError("x")), {})


def test_the_module_has_the_options_and_their_rules_and_supports_check_mode():
    module = end_of(lambda module: {}, required_by={"name": ["path"]})
    assert module.options == {"name": {"type": "str"}} and module.supports_check_mode
    assert module.rules == {"required_by": {"name": ["path"]}}
