# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The first mistakes of whoever edits a release file, as a rollout tells them before anything is looked at."""

from __future__ import annotations

import pathlib
import re

import pytest
from support import role_plays, sites

RELEASE = pathlib.Path(__file__).parents[2] / "inventories" / "local" / "releases" / "2026-11-20.yml"


def read(written, tasks_from, environment):
    """Play the tasks that read a release file, in check mode as `make plan` does."""
    return role_plays.play_tasks(
        "release", tasks_from, {"release_file": "{{ case.file }}"}, [{"file": str(written)}], environment,
        written.parent, "--check", "-e", "torchstack_release=2026-11-20", "-e", "torchstack_site=local")


@pytest.mark.parametrize("tasks_from", ["definition", "known_problems"])
def test_a_missing_quote_is_one_sentence_with_file_line_and_the_line_itself(tasks_from, tmp_path, ansible_environment):
    lines = RELEASE.read_text().splitlines(keepends=True)
    number = next(number for number, line in enumerate(lines, 1) if line.startswith("title:"))
    lines[number - 1] = 'title: "PyTorch with one quote\n'
    written = tmp_path / "2026-11-20.yml"
    written.write_text("".join(lines))
    process = read(written, tasks_from, ansible_environment)
    said = " ".join(process.stdout.split())
    assert process.returncode == 2
    assert "The release file %s has a mistake in line %d, column 8: a quote begins there and ends only in line " % (
        written, number) in said
    assert 'The line is: title: "PyTorch with one quote' in said


def test_a_component_that_was_dropped_is_told_with_all_rules_that_speak_of_it(tmp_path, ansible_environment):
    written = tmp_path / "2026-11-20.yml"
    text = re.sub(r"(?m)^horovod:\n(?: .*\n|\n)*", "", sites.whole_text(RELEASE))
    sites.write_release(text, written, RELEASE)
    process = read(written, "definition", ansible_environment)
    said = " ".join(process.stdout.split())
    assert process.returncode == 2
    rule = re.compile(r"/horovod/|horovod[._]|{horovod")
    lines = [number for number, line in enumerate(text.splitlines(), 1) if rule.search(line)]
    begin = "There is no 'horovod' in releases/2026-11-20.yml, and these still speak of it: "
    told = said.partition(begin)[2].partition(";")[0]
    assert "verification.libraries.require[0].object" in told
    assert sorted({int(number) for number in re.findall(r"\(line (\d+)\)", told)}) == lines


@pytest.mark.parametrize("tasks_from", ["definition", "known_problems"])
def test_nothing_in_a_release_file_runs(tasks_from, tmp_path, ansible_environment):
    """The text of another release is taken as release_file, before anybody has looked at it."""
    seen = tmp_path / "seen"
    hostile = "title: \"{{ lookup('pipe', 'touch %s; echo x') }}\"" % seen
    written = tmp_path / "2026-11-20.yml"
    sites.write_release(re.sub(r"(?m)^title:.*$", lambda _match: hostile, RELEASE.read_text()), written, RELEASE)
    process = read(written, tasks_from, ansible_environment)
    assert process.returncode == 2 and not seen.exists()
    assert "it is plain data, in which no template is filled in" in " ".join(process.stdout.split())
