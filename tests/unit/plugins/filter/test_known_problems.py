# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Known problems of a release file, which a release does not depend on."""

from __future__ import annotations

from ansible_collections.hpcml.torchstack.plugins.filter.known_problems import FilterModule as ProblemFilters
from ansible_collections.hpcml.torchstack.plugins.filter.release_schema import FilterModule as SchemaFilters
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import known_problems

SCHEMA = {
    "release": {"type": "str", "required": True},
    "base": {"type": "dict", "options": {"kind": {"type": "str", "default": "conda"}}},
    "known_problems": {"type": "list", "elements": "dict", "options": {"problem": {"type": "str", "required": True}}},
}
WRITTEN = {"release": "2026-11-20", "base": {"kind": "conda"}}
HANGS = {
    "problem": "It hangs at exit\nof  MPI",
    "workaround": "Call `finalize()` before!",
    "url": "https://example.org/1",
}


def test_a_known_problem_that_comes_up_after_the_freeze_leaves_the_digest_of_the_release_as_it_is():
    filters = SchemaFilters().filters()
    digests = {
        filters["canonical_digest"](filters["resolved_release"](dict(WRITTEN, **more), SCHEMA))
        for more in ({}, {"known_problems": []}, {"known_problems": [HANGS]})
    }
    assert len(digests) == 1
    other = filters["resolved_release"](dict(WRITTEN, release="2026-11-21"), SCHEMA)
    assert filters["canonical_digest"](other) not in digests


def test_each_problem_is_one_line_with_what_to_do_and_where_there_is_more():
    known = ProblemFilters().filters()["known_problems"]({"known_problems": [HANGS, {"problem": "It is slow"}]})
    assert [sorted(entry) for entry in known] == [["problem", "url", "workaround"]] * 2
    assert known_problems.sentences(known) == [
        "It hangs at exit of MPI. Call `finalize()` before! See https://example.org/1",
        "It is slow.",
    ]


def test_nothing_that_a_terminal_would_obey_gets_into_the_help_of_a_module():
    known = known_problems.of_definition({"known_problems": [{"problem": "red \x1b[31mtext\x07 here"}]})
    assert known_problems.sentences(known) == ["red [31mtext here."]


def test_a_release_file_without_known_problems_has_none():
    assert known_problems.of_definition(WRITTEN) == [] == known_problems.sentences([])
