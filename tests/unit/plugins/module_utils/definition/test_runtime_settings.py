# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run-time settings as data, and what a modulefile makes of them."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import runtime_settings
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles import description as modulefile_description

GOOD = {"name": "NCCL_CROSS_NIC", "value": "1", "reason": "Two rails for each GPU."}


def test_settings_with_name_value_and_reason_are_accepted():
    assert runtime_settings.problems([GOOD, dict(GOOD, name="MPICH_GPU_SUPPORT_ENABLED", value="")]) == []
    assert runtime_settings.problems([]) == []


@pytest.mark.parametrize("settings, sentence", [
    ("NCCL_CROSS_NIC=1", "The run-time settings are not a list."),
    ({"NCCL_CROSS_NIC": "1"}, "The run-time settings are not a list."),
    (["NCCL_CROSS_NIC=1"], "Run-time setting 1 is not a mapping with name, value, reason."),
    ([dict(GOOD, value=1)], "The value of run-time setting NCCL_CROSS_NIC is no text; put it in quotes."),
    ([dict(GOOD, value=True)], "The value of run-time setting NCCL_CROSS_NIC is no text; put it in quotes."),
    ([dict(GOOD, value="a\0b")], "The value of run-time setting NCCL_CROSS_NIC holds a NUL character"),
    ([{"name": "A", "value": "1"}], "Run-time setting A has no reason."),
    ([{"value": "1", "reason": "x"}], "Run-time setting 1 has no name."),
    ([dict(GOOD, reason=" \n")], "Run-time setting NCCL_CROSS_NIC has an empty reason; say why the site needs it."),
    ([dict(GOOD, why="x")], "Run-time setting NCCL_CROSS_NIC has the unknown key why."),
    ([GOOD, GOOD], "Run-time setting NCCL_CROSS_NIC is there twice."),
    ([dict(GOOD, name="A B")], "'A B' is not the name of a variable."),
    ([dict(GOOD, name="A; id\n")], "'A; id\\n' is not the name of a variable."),
    ([dict(GOOD, name="LDFLAGS")], "Run-time setting LDFLAGS would leak into every build of a user"),
    ([dict(GOOD, name="LD_LIBRARY_PATH")], "Run-time setting LD_LIBRARY_PATH would throw away"),
    ([dict(GOOD, name="HOME")], "Run-time setting HOME belongs to the user, the shell, conda or the module system."),
    ([dict(GOOD, name="CONDA_PREFIX")], "Run-time setting CONDA_PREFIX belongs to the user"),
    ([dict(GOOD, name="LOADEDMODULES")], "Run-time setting LOADEDMODULES belongs to the user"),
    ([dict(GOOD, name="IFS")], "Run-time setting IFS belongs to the user"),
])
def test_a_setting_that_cannot_be_used_is_named(settings, sentence):
    found = runtime_settings.problems(settings)
    assert len(found) == 1 and found[0].startswith(sentence), found


def test_a_line_break_is_for_conda_alone():
    settings = [GOOD, dict(GOOD, name="TOY_TAB", value="a\tb"), dict(GOOD, name="TOY_LINES", value="a\nb")]
    assert runtime_settings.problems(settings) == []
    (found,) = runtime_settings.modulefile_problems(settings)
    assert found.startswith("The value of run-time setting TOY_LINES holds a line break")


def test_a_reason_may_have_lines_and_nothing_that_ends_a_comment():
    settings = [dict(GOOD, reason="one\ntwo\tthree\n"), dict(GOOD, name="TOY", reason="one\rtouch /x")]
    assert runtime_settings.problems(settings) == []
    (found,) = runtime_settings.modulefile_problems(settings)
    assert found.startswith("The reason of run-time setting TOY holds a control character")


def test_s18_a_modulefile_sets_the_same_literal_values():
    values = ["plain", "${HOME}/x", "$HOME $$ ${", "$${A}", "a b 'c' \"d\""]
    settings = [dict(GOOD, name="TOY_%d" % index, value=value) for index, value in enumerate(values)]
    described = runtime_settings.setenv(settings)
    assert list(described) == [setting["name"] for setting in settings]
    assert [modulefile_description.expand(described[setting["name"]], {}) for setting in settings] == values
