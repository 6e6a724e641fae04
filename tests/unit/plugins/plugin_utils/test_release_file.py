# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A release file is plain data, and a mistake in it is told with its place."""

from __future__ import annotations

import datetime
import pathlib

import pytest
import yaml
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import release_file

RELEASES = sorted((pathlib.Path(__file__).parents[4] / "inventories").glob("*/releases/*.yml"))
GOOD = """\
# A comment with {{ braces }}
release: "2026-11-20"
title: PyTorch 2.13.0 (CPU)  # {% as well %}
base: &base
  kind: python_overlay
packages:
  - name: einops
    version: "0.8.1"
  - <<: *base
    kind: other
"""


@pytest.mark.parametrize("path", RELEASES, ids=lambda path: "%s-%s" % (path.parents[1].name, path.stem))
def test_every_release_file_is_read_as_yaml_reads_it(path):
    content, lines = release_file.parse(path.read_text())
    assert content == yaml.safe_load(path.read_text())
    assert path.read_text().splitlines()[lines["release"] - 1].startswith("release:")


def test_each_key_and_element_has_its_line():
    content, lines = release_file.parse(GOOD)
    assert content["packages"][1] == {"kind": "other"}
    assert lines == {
        "release": 2, "title": 3, "base": 4, "base.kind": 5, "packages": 6, "packages[0]": 7, "packages[0].name": 7,
        "packages[0].version": 8, "packages[1]": 9, "packages[1].<<": 9, "packages[1].<<.kind": 5,
        "packages[1].kind": 10}


def test_a_day_stays_a_day_for_whoever_judges_it():
    assert release_file.parse("release: 2026-11-20\n")[0] == {"release": datetime.date(2026, 11, 20)}


@pytest.mark.parametrize(("text", "line", "column", "words"), [
    ('release: "1"\ntitle: "PyTorch\nbase:\n  kind: conda\n', 2, 8, "a quote begins there and does not end"),
    ('release: "1"\ntitle: "PyTorch\nbase:\n  python: "3.11"\nmpi: "x"\n', 2, 8, "and ends only in line 4"),
    ('title: PyTorch"\nbase: [a, b\nmpi: 1\n', 3, 4, "while parsing a flow sequence"),
    ("base:\n\tkind: conda\n", 2, 1, "found character '.t'"),
    ("base:\n  kind: conda\n title: x\n", 3, 2, "unindent does not match|did not find expected|expected <block end>"),
    ("a: 1\nb: 2\na: 3\n", 3, 1, "the key 'a' is there twice, first in line 1"),
    ("a:\n  b: {c: 1, d: 2, c: 3}\n", 2, 19, "the key 'a.b.c' is there twice, first in line 2"),
    ("a: {b: 1, b: 2}\nc: [{d: 1,\n  d: 2}]\na: 3\n", 1, 11,
     r"^the key 'a.b' is there twice, first in line 1; in line 3, 'c\[0\].d' is there twice, first in line 2; "
     "in line 4, 'a' is there twice, first in line 1$"),
    ("a: {b: 1}\nc: &c {d: 1}\ne:\n  <<: *c\n  <<: {f: 1, f: 2}\n", 5, 14, "the key 'e.<<.f' is there twice"),
    ("a: 1\nb: '{{ torchstack_root }}'\n", 2, 5, "no template is filled in"),
    ("a: {{ torchstack_root }}\n", 1, 4, "no template is filled in"),
    ("- a\n- b\n", 1, 0, "there are no keys"),
    ("", 1, 0, "there are no keys"),
    ("a: 1\nb: \x07\n", 2, 4, "a character is not allowed there"),
    ("a: 1\nb: !vault x\n", 2, 4, "could not determine a constructor"),
    ("a: 1\nb: {c: 2026-11-31}\n", 2, 8, "^'b.c' is 2026-11-31, which YAML takes for a date, and there is no such one"),
    ("a: 1\nb: !!int x\n", 2, 4, "^'b' is x, which YAML takes for a number, and"),
    ("a: 1\nb: *none\n", 2, 4, "found undefined alias"),
    ("a: 1\n---\nb: 1\n", 2, 1, "expected a single document"),
])
def test_a_mistake_is_told_with_its_place(text, line, column, words):
    with pytest.raises(release_file.MistakeError, match=words) as caught:
        release_file.parse(text)
    assert (caught.value.line, caught.value.column) == (line, column)
