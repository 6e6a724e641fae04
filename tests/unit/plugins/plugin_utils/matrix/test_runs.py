# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What became of each release of a matrix, and the table of all."""

from __future__ import annotations

import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.matrix import runs

SUMMARY = """\
package-xxhash-wheel  taken over from release a: same inputs, built 2026-11-24T10:12:00Z in 9 s
ok: [torchstack-local] =>
    msg: |-
        Release b of site local: PyTorch
        Steps: tools taken over, base 12 s, package-xxhash-wheel taken over, package-xxhash 2 s
"""
FAILURE = """\
[ERROR]: Task failed: Action failed: Step pytorch-fetch failed.
Origin: x
[ERROR]: Task failed: another one
"""


@pytest.mark.parametrize(("text", "counted"), [
    (SUMMARY, (2, 2)), (SUMMARY.partition("ok:")[0], (0, 1)), ("", (0, 0)),
])
def test_steps_are_counted_as_the_summary_has_them_or_else_as_they_were_told(text, counted):
    assert runs.steps(text) == counted


@pytest.mark.parametrize(("text", "said"), [
    (FAILURE, "Step pytorch-fetch failed."), ("ERROR! no playbook\n", "no playbook"), ("", "without a word"),
])
def test_why_it_failed_is_the_first_thing_that_is_said(text, said):
    assert runs.cause(text).endswith(said)


def test_a_table_has_a_line_for_each_and_below_why_some_failed(tmp_path):
    commands = {"a": "print(%r)" % SUMMARY, "b": "print(%r); exit(2)" % FAILURE}
    rows = [((value,), runs.run(name, [sys.executable, "-c", commands[name]], tmp_path / "logs" / name))
            for name, value in (("a", "3.12"), ("b", "3.13"))]
    lines = list(runs.table(["python"], rows))
    assert lines[0].split() == ["release", "python", "result", "time", "built", "taken", "over"]
    assert lines[2].split() == ["a", "3.12", "done", "0:00", "2", "2"]
    assert lines[3].split() == ["b", "3.13", "failed", "0:00", "0", "0"]
    assert lines[4:] == ["b: Step pytorch-fetch failed. (%s)" % (tmp_path / "logs" / "b")]
