# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The releases of a matrix, made of its axes."""

from __future__ import annotations

import pytest
import yaml
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import derived_release
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.matrix import cells

ASKED = """\
extends: "2026-11-20"
release: "{python}-{pytorch}"
title: PyTorch {pytorch} on Python {python}
change: {horovod: null, pytorch: {cpu: null}}
axes:
  python:
    "3.12": {base: {python: python3.12}}
    "3.13": {base: {python: python3.13}}
  pytorch:
    "2.13": {pytorch: {version: "2.13"}}
    "2.14": {pytorch: {version: "2.14", cuda_lock: null}}
leave_out:
  - {python: "3.13", pytorch: "2.13", reason: there is no wheel}
"""


def asked(**changed):
    return {key: value for key, value in {**yaml.safe_load(ASKED), **changed}.items() if value is not None}


def test_every_combination_is_a_release_that_says_what_it_has_otherwise():
    found = cells.matrix(asked())
    assert found.axes == ("python", "pytorch") and found.left_out == (("3.13-2.13", "there is no wheel"),)
    assert [cell.release for cell in found.cells] == ["3.12-2.13", "3.12-2.14", "3.13-2.14"]
    last = found.cells[-1]
    assert last.values == ("3.13", "2.14") and last.content == {
        "extends": "2026-11-20", "release": "3.13-2.14", "title": "PyTorch 2.14 on Python 3.13", "horovod": None,
        "pytorch": {"cpu": None, "version": "2.14", "cuda_lock": None}, "base": {"python": "python3.13"}}


def test_its_file_is_read_back_as_it_is_and_takes_out_what_the_matrix_takes_out():
    text = cells.matrix(asked()).cells[1].text("cpu.yml")
    assert text.startswith("---\n# Made by bin/matrix of cpu.yml: correct that file")
    content = yaml.safe_load(text)
    content.pop(derived_release.KEY)
    parent = {"horovod": {}, "pytorch": {"cpu": {}, "cuda_lock": "x", "lock": "y"}, "base": {"kind": "conda"}}
    assert derived_release.merge(parent, content) == {
        "release": "3.12-2.14", "title": "PyTorch 2.14 on Python 3.12", "pytorch": {"version": "2.14", "lock": "y"},
        "base": {"kind": "conda", "python": "python3.12"}}


def test_releases_that_there_are_may_be_named():
    found = cells.matrix({"releases": ["b", "a"]})
    assert [(cell.release, cell.content) for cell in found.cells] == [("b", None), ("a", None)]


@pytest.mark.parametrize(("changed", "said"), [
    ({"axis": {}}, "'axis' is no key of a matrix; did you mean 'axes'?"),
    ({"releases": ["a"]}, "'extends' is no key of a matrix with releases; there are releases"),
    ({"extends": None}, "'extends' and 'release' are texts that a matrix has to have"),
    ({"release": "{python}"}, "'release' is {python}, without {pytorch}, so that several releases would have one name"),
    ({"release": "{python}-{pytorch}-{pithon}"}, "'{pithon}' names no axis; did you mean 'python'?"),
    ({"title": "{cuda}"}, "'{cuda}' names no axis; there are python, pytorch"),
    ({"axes": {}}, "'axes' is empty; name at least one"),
    ({"axes": {"python": {3.12: {}}}}, "'axes.python' has the value 3.12, which YAML takes for a number"),
    ({"axes": {"Py-thon": {}}}, "'axes.Py-thon' is no name of lower-case letters"),
    ({"axes": {"python": {"a": {"title": "x"}}}}, "'axes.python.a' has 'title', which is one for the whole matrix"),
    ({"axes": {"python": ["a"]}}, "'axes.python' is no mapping of keys to values"),
    ({"leave_out": [{"pyton": "3.12", "reason": "x"}]}, "'leave_out' names the axis 'pyton'; did you mean 'python'?"),
    ({"leave_out": [{"python": "3.1", "reason": "x"}]}, "'leave_out' names python '3.1'; did you mean"),
    ({"leave_out": [{"python": "3.12"}]}, "has values of axes and a 'reason'; one of them is missing"),
    ({"leave_out": [{"python": "3.12", "reason": "x"}, {"python": "3.13", "reason": "x"}]}, "leaves no release"),
])
def test_a_mistake_is_one_sentence_with_the_key_and_the_nearest_name(changed, said):
    with pytest.raises(cells.MatrixError) as raised:
        cells.matrix(asked(**changed))
    assert said in str(raised.value)


def test_a_list_is_one_of_names_each_of_them_once():
    for names, said in (("a", "is no list of names"), ([], "is no list of names"), ([2.1], "is no list of names"),
                        (["a", "a"], "release a is there twice")):
        with pytest.raises(cells.MatrixError, match=said):
            cells.matrix({"releases": names})
