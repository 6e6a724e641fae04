# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Words in braces that stand for nothing, and rules that never match; the tests of the filter have the rest."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import verification_rules

CUDA = {"cuda": {"prefix": "${CUDA_HOME}", "libraries": ["${CUDNN_ROOT}/lib"]}}


def release(*paths, **parts):
    rules = [{"name": "lib*", "path": path} for path in paths]
    return {"verification": {"libraries": {"providers": rules}}, "pytorch": {"version": "2.6.0"}, **parts}


@pytest.mark.parametrize("definition", [
    release("{prefix}/x", "{base}/{packages}/{python}/{mpi}"), release("/x/{pytorch.version}"),
    release("{cuda}/**", "{cuda.libraries}/*", **CUDA), release("{nccl}/x"), release("{horovod.version}/x"),
    release("/x{2}"), {"verification": None}, {}, None,
])
def test_words_that_stand_for_something_or_for_what_was_left_over_are_no_problems(definition):
    assert verification_rules.problems(definition) == []


@pytest.mark.parametrize(("definition", "says"), [
    (release("{pakages}/x"), "'verification.libraries.providers[0].path' in a.yml has {pakages}, and nobody knows what "
                             "it stands for. Did you mean {packages}? Known are {base}, {cuda}, "),
    (release("/x", "{pytorch.verson}"), "providers[1].path' in a.yml has {pytorch.verson}"),
    (release("{libfabric}/x", nccl={"version": "1"}), "has {libfabric}"), (release("{pytorch}"), "has {pytorch}"),
])
def test_a_word_that_stands_for_nothing_is_one_sentence(definition, says):
    (found,) = verification_rules.problems(definition, "a.yml")
    assert says in found


def test_the_form_of_rules_is_judged_as_the_verification_does():
    assert verification_rules.form_problems(release("{cuda.libraries}/*", **CUDA)) == []
    (found,) = verification_rules.form_problems(release("lib/*"), "a.yml")
    assert found == ("'verification.libraries' in a.yml: The path 'lib/*' under providers can never match: paths are "
                     "absolute. Begin it with / or **.")
    odd = {"verification": {"imports": {"modules": ["torch"], "expect": [{"value": "1", "matches": "["}]}}}
    (found,) = verification_rules.form_problems(odd)
    assert found.startswith("'verification.imports': '[' under expect is not a regular expression")
