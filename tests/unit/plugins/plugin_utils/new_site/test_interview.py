# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Answers come from a file, from the command line or from the terminal, where a bad one is asked for again."""

from __future__ import annotations

import pytest
import yaml
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.new_site import interview, questions, repository
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.new_site.questions import AnswerError

ASKED = questions.read(repository.HOME / "questions.yml")


def collect(given=(), ask=None, tell=print):
    return interview.collect(ASKED, dict(given), repository.further_context, ask, tell)


class Terminal:
    """Somebody who types lines, and then only Return; or nobody, after them."""

    def __init__(self, *lines, leaves=False):
        self.lines, self.leaves, self.shown = list(lines), leaves, []

    def ask(self, prompt):
        self.shown.append(prompt)
        if not self.lines and self.leaves:
            raise EOFError
        return self.lines.pop(0) if self.lines else ""

    def tell(self, line):
        self.shown.append(line)


def test_whoever_only_presses_return_has_the_defaults():
    assert collect(ask=Terminal().ask) == collect()
    assert collect().said == frozenset()


@pytest.mark.parametrize("path", sorted((repository.HOME / "like").iterdir()), ids=lambda path: path.stem)
def test_every_answer_of_a_kind_of_site_is_one_to_a_question_that_is_asked_after_the_others(path):
    usual = interview.from_file(path)
    found = interview.collect(ASKED, {}, repository.further_context, usual=usual)
    asked = {question.name: question for question in ASKED if question.applies(found.values)}
    assert usual and set(usual) <= set(asked) and found.said == frozenset()
    assert {name: found.values[name] for name in usual} == {name: asked[name].value(usual[name]) for name in usual}


def test_a_bad_answer_gets_one_sentence_and_is_asked_again():
    terminal = Terminal("Example Site", "examplesite")
    found = collect(ask=terminal.ask, tell=terminal.tell)
    assert found.values["site"] == found.values["title"] == "examplesite"
    prompts = [line for line in terminal.shown if line == "   [mysite]: "]
    assert len(prompts) == 2 and len([line for line in terminal.shown if "is not what is meant" in line]) == 1


def test_every_question_is_shown_with_its_help_its_choices_and_its_default():
    terminal = Terminal()
    collect(ask=terminal.ask, tell=terminal.tell)
    # As nobody gave ssh, the question for its host is left out, and has no number.
    shown = terminal.shown.index(
        "\n8. Which batch system runs the jobs?\n"
        "   Builds and acceptances are its jobs; none: both run where Ansible does its work.")
    assert terminal.shown[shown + 1] == "   slurm, pbs, flux, none [slurm]: "


def test_what_means_nothing_after_an_answer_is_not_asked():
    terminal = Terminal()
    found = collect({"batch": "none"}, terminal.ask, terminal.tell)
    assert not [line for line in terminal.shown if "partition" in line]
    assert found.values["nodes"] == 1 and found.values["launcher"] == []


def test_without_anybody_to_answer_the_options_are_named():
    terminal = Terminal("examplesite", leaves=True)
    with pytest.raises(AnswerError, match="Nobody answers 'title'; without a terminal give --answers or --defaults"):
        collect(ask=terminal.ask, tell=terminal.tell)


@pytest.mark.parametrize(("given", "sentence"), [
    ({"partiton": "gpu"}, "There is no question 'partiton'; did you mean 'partition'?"),
    ({"batch": "none", "partition": "gpu"}, "'partition' is answered, and means nothing here: it is asked where batch "
                                            "!= 'none'."),
    ({"cores": "many"}, "cores: 'many' is no whole number from 0 on."),
])
def test_an_answer_that_cannot_be_used_is_refused_with_its_name(given, sentence):
    with pytest.raises(AnswerError) as raised:
        collect(given)
    assert str(raised.value) == sentence


def test_what_differs_from_the_default_was_said_by_somebody():
    found = collect({"batch": "slurm", "cores": "64", "walltime": "01:00:00"})
    assert found.said == {"cores"}


def test_a_file_has_texts_and_lists_and_nothing_of_them_becomes_a_number(tmp_path):
    path = tmp_path / "answers.yml"
    path.write_text("cuda_version: 12.10\naccount: yes\ntoolchain: [gcc/13.2, openmpi/5.0]\n")
    assert interview.from_file(path) == {"cuda_version": "12.10", "account": "yes", "toolchain": "gcc/13.2 openmpi/5.0"}


@pytest.mark.parametrize(("text", "sentence"), [
    ("- a\n", "have no names with values"), ("a: [", "are no YAML"), ("a: {b: c}\n", "'a' has to be a text or a list"),
    (None, "cannot be read"),
])
def test_a_file_without_answers_is_one_sentence(tmp_path, text, sentence):
    path = tmp_path / "answers.yml"
    if text:
        path.write_text(text)
    with pytest.raises(AnswerError, match=sentence) as raised:
        interview.from_file(path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("given", [{}, {"batch": "none", "modules": "none"}, {"pytorch": "source", "cores": "64"}])
def test_the_file_that_is_written_has_every_answer_and_answers_the_same(tmp_path, given):
    found = collect(given)
    text = interview.to_file(ASKED, found.values)
    (tmp_path / "answers.yml").write_text(text)
    assert collect(interview.from_file(tmp_path / "answers.yml")) == found
    assert {line.lstrip("# ").partition(":")[0] for line in text.splitlines() if ": \"" in line} == set(found.values)
    assert yaml.safe_load(text)
