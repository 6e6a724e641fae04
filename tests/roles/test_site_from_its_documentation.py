# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""docs/how-to/site-from-its-documentation.md, followed to the letter: its site lints clean, with few lines by hand."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess

import pytest
import yaml
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.new_site import interview, questions, repository
from support import linting

PAGE = (linting.TOP / "docs" / "how-to" / "site-from-its-documentation.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"^```(yaml|sh)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
"""The answers, and the last of the blocks of commands, which is the patch."""

ASKED = questions.read(repository.HOME / "questions.yml")
BY_HAND = 150
OF_OUR_CHOICE = {"site", "title", "nodes", "per_node", "mpi", "pytorch", "release"}
"""What no page of a centre can say."""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The repository that the page makes, and how many lines of YAML were written by hand."""
    if not shutil.which("patch"):
        pytest.skip("not installed: GNU patch")
    directory = tmp_path_factory.mktemp("page")
    (directory / "answers.yml").write_text(BLOCKS["yaml"])
    answers = interview.collect(ASKED, interview.from_file(directory / "answers.yml"), repository.further_context)
    name = pathlib.Path(answers.values["site"])
    repository.write(directory / name, repository.render(answers))
    done = subprocess.run(
        ["bash", "-euc", BLOCKS["sh"]], cwd=directory, text=True, check=False, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT)
    assert done.returncode == 0 and "offset" not in done.stdout and "fuzz" not in done.stdout, done.stdout
    changed = re.findall(r"(?m)^\+(?!\+\+)", BLOCKS["sh"])
    return directory / name, len(BLOCKS["yaml"].splitlines()) + len(changed)


def test_the_site_of_the_page_and_its_rehearsal_lint_clean(site, ansible_environment):
    clean = {name: value for name, value in ansible_environment.items() if not name.startswith("TORCHSTACK_")}
    own = site[0] / "inventory" / "hosts.yml"
    alone, rehearsed = linting.lint_all(
        [{"sources": [own]}, {"sources": [own, site[0] / "rehearsal" / "hosts.yml"]}], clean)
    assert alone["problems"] == rehearsed["problems"] == [] and alone["warnings"] == rehearsed["warnings"] == []
    release = yaml.safe_load(BLOCKS["yaml"])["release"]
    assert sorted(alone["releases"]) == [release, release + "-rehearsal"]


def test_what_is_written_by_hand_is_short(site):
    assert 20 < site[1] <= BY_HAND


def test_every_answer_of_the_page_that_a_centre_can_give_has_its_source():
    answers = re.findall(r"(?m)^(\w+):(.*)$", BLOCKS["yaml"])
    without = {name for name, rest in answers if not re.search(r"  # .*[.]md|^  # .*[.]md", rest)}
    assert len(answers) > 20 and without <= OF_OUR_CHOICE
