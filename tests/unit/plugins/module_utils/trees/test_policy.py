# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Permission rules and policies."""

from __future__ import annotations

import stat

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees.policy import Policy, apply_rule

FILE, DIRECTORY, FIFO = stat.S_IFREG, stat.S_IFDIR, stat.S_IFIFO


@pytest.mark.parametrize(
    ("state", "mode", "expected"),
    [
        ("frozen", FILE | 0o644, 0o444),
        ("frozen", FILE | 0o600, 0o444),
        ("frozen", FILE | 0o000, 0o444),
        ("frozen", FILE | 0o755, 0o555),
        ("frozen", FILE | 0o100, 0o555),
        ("frozen", FILE | 0o001, 0o555),
        ("frozen", FILE | 0o4755, 0o4555),
        ("frozen", FILE | 0o2644, 0o2444),
        ("frozen", DIRECTORY | 0o700, 0o555),
        ("frozen", DIRECTORY | 0o2500, 0o2555),
        ("frozen", DIRECTORY | 0o1777, 0o1555),
        ("frozen", FIFO | 0o666, 0o444),
        ("writable", FILE | 0o444, 0o644),
        ("writable", FILE | 0o555, 0o755),
        ("writable", FILE | 0o640, 0o640),
        ("writable", DIRECTORY | 0o2555, 0o2755),
    ],
)
def test_each_state_makes_of_a_mode_what_it_promises(state, mode, expected):
    assert Policy(state).target(mode) == expected


def test_the_default_frozen_policy_equals_the_symbolic_rule_it_is_described_by():
    policy = Policy("frozen")
    for mode in [*range(0o1000), *range(0o1777, 0o10000, 0o111)]:
        for kind in (FILE, DIRECTORY):
            assert policy.target(kind | mode) == apply_rule("a-w,a+rX", mode, kind == DIRECTORY), oct(kind | mode)


@pytest.mark.parametrize(
    ("rule", "mode", "directory", "expected"),
    [
        ("444", 0o644, False, 0o444),
        ("2555", 0o700, True, 0o2555),
        ("0555", 0o2700, True, 0o2555),
        ("a-w,a+rX", 0o640, False, 0o444),
        ("a-w,a+rX", 0o710, False, 0o555),
        ("u=rwX,go=rX", 0o400, False, 0o644),
        ("u=rwX,go=rX", 0o400, True, 0o755),
        ("ug+w-x", 0o555, False, 0o665),
        ("o=", 0o777, False, 0o770),
        ("g-w+r", 0o720, False, 0o740),
    ],
)
def test_rules_mean_what_they_mean_to_chmod(rule, mode, directory, expected):
    assert apply_rule(rule, mode, directory) == expected


@pytest.mark.parametrize(
    ("state", "rules", "words"),
    [
        ("frozen", {"files": "644"}, "leaves a write bit"),
        ("frozen", {"executables": "go-w"}, "leaves a write bit"),
        ("frozen", {"files": "4444"}, "setuid, setgid or sticky on files"),
        ("frozen", {"directories": "4555"}, "setuid on directories"),
        ("frozen", {"directories": "0333"}, "leaves a write bit"),
        ("frozen", {"directories": "0111"}, "takes r or x"),
        ("frozen", {"directories": "a-wx"}, "takes r or x"),
        ("frozen", {"files": "-w"}, "explicit u, g, o or a"),
        ("frozen", {"files": "u+s"}, "explicit u, g, o or a"),
        ("frozen", {"files": ""}, "explicit u, g, o or a"),
        ("frozen", {"files": "888"}, "explicit u, g, o or a"),
        ("writable", {"files": "444"}, "without a write bit"),
        ("writable", {"directories": "g+w"}, "without a write bit"),
    ],
)
def test_a_rule_that_does_not_bring_about_its_state_is_refused(state, rules, words):
    with pytest.raises(StackError) as caught:
        Policy(state, rules)
    assert words in caught.value.message
    assert caught.value.remedy == "Correct policy.%s." % next(iter(rules))


def test_a_rule_left_out_is_the_states_own():
    policy = Policy("frozen", {"files": "440", "executables": None})
    assert policy.target(FILE | 0o644) == 0o440
    assert policy.target(FILE | 0o755) == 0o555
