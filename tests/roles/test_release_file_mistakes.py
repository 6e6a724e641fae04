# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The first mistake of whoever edits a release file: a missing quote, as a rollout and a publication tell it."""

from __future__ import annotations

import pathlib

import pytest
import role_plays

RELEASE = pathlib.Path(__file__).parents[2] / "inventories" / "local" / "releases" / "2026-11-20.yml"


@pytest.mark.parametrize("tasks_from", ["definition", "known_problems"])
def test_a_missing_quote_is_one_sentence_with_file_line_and_the_line_itself(tasks_from, tmp_path, ansible_environment):
    lines = RELEASE.read_text().splitlines(keepends=True)
    number = next(number for number, line in enumerate(lines, 1) if line.startswith("title:"))
    lines[number - 1] = 'title: "PyTorch with one quote\n'
    written = tmp_path / "2026-11-20.yml"
    written.write_text("".join(lines))
    process = role_plays.play_tasks(
        "release", tasks_from, {"release_file": "{{ case.file }}"}, [{"file": str(written)}], ansible_environment,
        tmp_path, "--check", "-e", "torchstack_release=2026-11-20", "-e", "torchstack_site=local")
    said = " ".join(process.stdout.split())
    assert process.returncode == 2
    assert "The release file %s has a mistake in line %d, column 8: a quote begins there and ends only in line " % (
        written, number) in said
    assert 'The line is: title: "PyTorch with one quote' in said
