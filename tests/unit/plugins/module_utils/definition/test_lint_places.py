# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Where a sentence about data belongs: its file, its line and the path of the key."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition.lint_places import (
    Places,
    Problem,
    located,
    names_in,
)

PLACES = Places(
    {"torchstack_jobs": 3, "torchstack_jobs.options": 5, "torchstack_jobs.options.partiton": 6, "packages": 10,
     "packages[0]": 11, "packages[0].name": 11, "packages[0].needs": 14, "module": 20, "module.setenv": 21,
     "module.setenv.MY_FLAGS": 22, "torchstack_cache": 30},
    {"torchstack_jobs": "site.yml", "torchstack_cache": "other.yml", "torchstack_typed": ""}, "release.yml",
    {"einops": "packages[0]"})


@pytest.mark.parametrize(("sentence", "file", "line", "path"), [
    ("'torchstack_jobs.options': there is no option partiton. Did you mean partition?", "site.yml", 6,
     "torchstack_jobs.options.partiton"),
    ("Unknown key 'torchstack_jobs.lancher'; did you mean 'launcher'?", "site.yml", 3, "torchstack_jobs.lancher"),
    ("Package 'einops' needs 'x', which is no entry before it.", "release.yml", 14, "packages[0].needs"),
    ("Package 'einops' is there twice.", "release.yml", 11, "packages[0]"),
    ("'module': MY_FLAGS leaks into every build.", "release.yml", 22, "module.setenv.MY_FLAGS"),
    ("torchstack_cache of site x is 'y'.", "other.yml", 30, "torchstack_cache"),
    ("'torchstack_typed' must be a list.", "", 0, "torchstack_typed"),
    ("'locks' is missing; add it.", "release.yml", 0, "locks"),
    ("Nothing is named here.", "release.yml", 0, ""),
])
def test_a_sentence_belongs_to_the_key_that_it_names(sentence, file, line, path):
    assert located([sentence], PLACES) == [Problem(file, line, path, sentence)]


def test_a_line_in_the_sentence_is_taken_out_of_it():
    (found,) = located(["'packages' (line 13): 'numpy' has no hash."], PLACES)
    assert found == Problem("release.yml", 13, "packages", "'packages': 'numpy' has no hash.")
    (found,) = located(["There is no 'a', and these speak of it: packages[0].name (line 11), b (line 12)."], PLACES)
    assert found.line == 11 and "(line 12)" in found.message
    (found,) = located(["'torchstack_jobs' (parts/site.yml, line 13): no."], PLACES)
    assert found == Problem("site.yml", 13, "torchstack_jobs", "'torchstack_jobs': no.")


@pytest.mark.parametrize(("problem", "text"), [
    (Problem("a.yml", 3, "x", "Wrong."), "a.yml:3: Wrong."), (Problem("a.yml", 0, "", "Wrong."), "a.yml: Wrong."),
    (Problem("", 0, "x", "Wrong."), "Wrong."),
])
def test_a_problem_is_written_as_compilers_do(problem, text):
    assert problem.text == text


def test_entries_are_called_by_their_names_or_by_their_place():
    assert names_in([{"name": "a"}, {}, "b"], "list") == {"a": "list[0]", "2": "list[1]", "3": "list[2]"}
    assert names_in(None, "list") == {}
