# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The faults that `tests/run mutations` plants fit what there is, and each case has one."""

from __future__ import annotations

import ast
import collections
import importlib.util
import pathlib

import pytest

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parents[1]
SPEC = importlib.util.spec_from_file_location("plant_mutations", HERE / "run.py")
program = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(program)
TABLE = program.load()


def functions(tree, prefix=""):
    """Return the tests of a file by the name that pytest gives them."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from functions(node, node.name + "::")
        elif isinstance(node, ast.FunctionDef):
            yield prefix + node.name


@pytest.mark.parametrize("mutation", TABLE, ids=lambda mutation: "%s %s" % (mutation.case, mutation.what))
def test_a_fault_takes_the_place_of_what_is_there_once_and_its_test_exists(mutation):
    text = (TOP / mutation.file).read_text(encoding="utf-8")
    assert mutation.planted(text) != text
    file, _colons, name = mutation.test.partition("::")
    assert name in functions(ast.parse((TOP / file).read_text(encoding="utf-8")))


def test_every_case_has_a_fault_and_no_two_are_the_same():
    assert sorted({mutation.case for mutation in TABLE}) == program.CASES
    twice = collections.Counter((mutation.file, mutation.before, mutation.after) for mutation in TABLE)
    assert max(twice.values()) == 1


def test_a_fault_whose_place_is_gone_or_there_twice_is_refused():
    mutation = TABLE[0]
    for text, words in (("", "no more"), (mutation.before * 2, "2 times")):
        with pytest.raises(ValueError, match=words):
            mutation.planted(text)
