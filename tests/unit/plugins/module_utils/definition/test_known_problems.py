# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Known problems of a release file, which a release does not depend on."""

from __future__ import annotations

from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import known_problems

HANGS = {
    "problem": "It hangs at exit\nof  MPI",
    "workaround": "Call `finalize()` before!",
    "url": "https://example.org/1",
}


def test_each_problem_is_one_line_with_what_to_do_and_where_there_is_more():
    known = known_problems.read({"known_problems": [HANGS, {"problem": "It is slow"}]})
    assert [sorted(entry) for entry in known] == [["problem", "url", "workaround"]] * 2
    assert known_problems.format_sentences(known) == [
        "It hangs at exit of MPI. Call `finalize()` before! See https://example.org/1",
        "It is slow.",
    ]


def test_nothing_that_a_terminal_would_obey_gets_into_the_help_of_a_module():
    known = known_problems.read({"known_problems": [{"problem": "red \x1b[31mtext\x07 here"}]})
    assert known_problems.format_sentences(known) == ["red [31mtext here."]


def test_a_release_file_without_known_problems_has_none():
    assert known_problems.read({"release": "a"}) == [] == known_problems.format_sentences([])
