# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""bin/new-site writes, lints, and says what comes next; a refusal is one sentence, and nothing is written."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.new_site import cli

NEXT = [
    "  ansible-galaxy collection install -r requirements.yml -p collections",
    "  ansible-playbook hpcml.torchstack.rollout --check --diff",
]


@pytest.fixture()
def lint(monkeypatch):
    """What lint ends with, instead of it."""
    found = []
    monkeypatch.setattr(cli, "lint", lambda directory: found.pop() if found else 0)
    return found


def test_a_repository_that_lints_clean_ends_with_the_next_two_commands(lint, tmp_path, capsys):
    assert cli.main([str(tmp_path / "new"), "--defaults"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == NEXT and lines[0].startswith("Written: %s, " % (tmp_path / "new"))
    assert " lines are marked unverified: check each, and remove its mark." in lines[1]


def test_one_that_does_not_is_told_and_is_no_success(lint, tmp_path, capsys):
    lint.append(2)
    assert cli.main([str(tmp_path / "new"), "--defaults"]) == 1
    assert "Lint finds mistakes" in capsys.readouterr().out


def test_answers_of_the_command_line_win_over_those_of_the_file(lint, tmp_path):
    (tmp_path / "answers.yml").write_text("site: one\ncores: 64\n")
    words = [str(tmp_path / "new"), "--answers", str(tmp_path / "answers.yml"), "--set", "site=two"]
    assert cli.main(words) == 0
    assert "    cores: 64\n" in (tmp_path / "new/inventory/group_vars/two.yml").read_text()


def test_what_is_not_answered_on_the_command_line_is_asked(lint, tmp_path):
    asked = []
    assert cli.main([str(tmp_path / "new"), "--set", "site=two"], lambda prompt: asked.append(prompt) or "") == 0
    assert "   [mysite]: " not in asked and "   [two]: " in asked


@pytest.mark.parametrize(("words", "sentence"), [
    (["--set", "partition"], "new-site: '--set partition' has no '=': give NAME=ANSWER."),
    (["--set", "batch=slrum"], "new-site: batch: 'slrum' is none of slurm, pbs, none; did you mean 'slurm'?"),
    (["--answers", "/nowhere"], "new-site: The answers /nowhere cannot be read"),
])
def test_a_refusal_is_one_sentence_and_nothing_is_written(lint, words, sentence, tmp_path, capsys):
    assert cli.main([str(tmp_path / "new"), "--defaults", *words]) == 2
    assert capsys.readouterr().err.startswith(sentence)
    assert not (tmp_path / "new").exists()


def test_a_directory_that_is_in_use_is_refused_before_anything_is_asked(lint, tmp_path, capsys):
    (tmp_path / "mine").touch()
    assert cli.main([str(tmp_path)], lambda prompt: pytest.fail("asked")) == 2
    assert "has mine in it" in capsys.readouterr().err


def test_whoever_gives_up_has_written_nothing(lint, tmp_path, capsys):
    def give_up(prompt):
        raise KeyboardInterrupt

    assert cli.main([str(tmp_path / "new")], give_up) == 130
    assert "nothing was written" in capsys.readouterr().err and not (tmp_path / "new").exists()


def test_a_file_of_answers_is_printed_and_nothing_is_written(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["--questions"]) == 0
    assert 'site: "mysite"\n' in capsys.readouterr().out and list(tmp_path.iterdir()) == []


def test_without_a_directory_it_says_so(capsys):
    with pytest.raises(SystemExit) as raised:
        cli.main([])
    assert raised.value.code == 2 and "name the directory of the new repository" in capsys.readouterr().err
