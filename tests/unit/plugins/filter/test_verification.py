# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The words in braces of a verification's rules."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.hpcml.torchstack.plugins.filter.verification import filled_rules, module_process

WORDS = {"prefix": "/soft/pytorch/2026-11-20", "mpi": "/opt/mpich"}
DEFINITION = {"pytorch": {"version": "2.13.0", "cpu": {"timeout": 10}}, "prefix": "not this one"}


def filled(rules):
    return filled_rules(rules, WORDS, DEFINITION)


def test_words_are_replaced_at_every_depth():
    rules = {"providers": [{"name": "libmpi*", "path": "{mpi}/lib/*"}], "exclude": ["a", "{prefix}/b"]}
    assert filled(rules) == {
        "providers": [{"name": "libmpi*", "path": "/opt/mpich/lib/*"}],
        "exclude": ["a", "/soft/pytorch/2026-11-20/b"],
    }


def test_versions_come_from_the_release_file():
    assert filled([{"equals": "{pytorch.version}"}]) == [{"equals": "2.13.0"}]
    assert filled("{pytorch.cpu.timeout} s") == "10 s"


def test_what_is_no_text_stays_what_it_is():
    assert filled({"equals": True, "count": 3, "nothing": None}) == {"equals": True, "count": 3, "nothing": None}


def test_expressions_and_reasons_mean_themselves():
    rule = {"pattern": "NCCL {prefix}", "value": "{prefix}", "reason": "see {prefix}"}
    assert filled(rule) == rule


def test_counts_of_a_regular_expression_are_no_words():
    assert filled({"matches": "[0-9]{2}[a-f]{2,3}"}) == {"matches": "[0-9]{2}[a-f]{2,3}"}


@pytest.mark.parametrize("word", ["{prefx}", "{pytorch}", "{pytorch.version.major}", "{pytorch.release}"])
def test_a_word_that_nobody_knows_is_refused_with_the_known_ones(word):
    with pytest.raises(AnsibleFilterError) as caught:
        filled({"forbid": [{"path": word + "/stubs"}]})
    assert word in str(caught.value)
    assert "{mpi}, {prefix}" in str(caught.value)


def test_a_word_for_several_directories_makes_a_rule_for_each():
    definition = {"cuda": {"libraries": ["/opt/cudnn/lib", "/opt/trt/lib"]}}
    rules = [{"name": "libcud*", "path": "{cuda.libraries}/*", "reason": "see {cuda.libraries}"}, {"path": "/x"}]
    assert [rule["path"] for rule in filled_rules(rules, WORDS, definition)] == [
        "/opt/cudnn/lib/*", "/opt/trt/lib/*", "/x",
    ]


def test_a_word_for_a_part_that_the_release_does_not_have_is_refused():
    with pytest.raises(AnsibleFilterError, match="nobody knows what \\{nccl\\}"):
        filled_rules([{"path": "{nccl}/lib/*"}], {"nccl": ""}, {})


def test_directories_of_modules_come_behind_the_releases_own():
    module = {
        "prepend": [
            {"name": "PATH", "values": ["/r/bin", "${HOME}/bin"]}, {"name": "LD_LIBRARY_PATH", "values": ["/r/lib"]},
        ],
        "setenv": {"A": "1", "PYTHONUSERBASE": "${HOME}/.local"},
    }
    loaded = {"LD_LIBRARY_PATH": "/cray/lib:/cuda/lib64", "A": "0", "CRAY": "x"}
    assert module_process(module, loaded) == {
        "PATH": "/r/bin", "LD_LIBRARY_PATH": "/r/lib:/cray/lib:/cuda/lib64", "A": "1", "CRAY": "x",
    }
    assert module_process(module) == {"PATH": "/r/bin", "LD_LIBRARY_PATH": "/r/lib", "A": "1"}
