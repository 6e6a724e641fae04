# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What an answer to a question about a site means, and what is said of one that means nothing."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.new_site import questions, repository
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.new_site.questions import AnswerError, Question

ASKED = questions.read(repository.HOME / "questions.yml")
BY_NAME = {question.name: question for question in ASKED}


@pytest.mark.parametrize(("name", "text", "value"), [
    ("site", " examplesite ", "examplesite"),
    ("batch", "pbs", "pbs"),
    ("cores", "64", 64),
    ("account", "Yes", True),
    ("account", "no", False),
    ("toolchain", "gcc/13.2  openmpi/5.0", ["gcc/13.2", "openmpi/5.0"]),
    ("toolchain", "", []),
    ("cudnn", "${CUDNN_ROOT}", "${CUDNN_ROOT}"),
    ("mpi", "/opt/openmpi", "/opt/openmpi"),
    ("launcher", "srun -n {ranks}", ["srun", "-n", "{ranks}"]),
])
def test_an_answer_means(name, text, value):
    assert BY_NAME[name].value(text) == value


@pytest.mark.parametrize(("name", "text", "sentence"), [
    ("site", "Example Site",
     "'Example Site' is not what is meant: give lower-case letters, digits and underscores, a letter first, and no "
     "word of Ansible or YAML."),
    ("site", "all", "'all' is not what is meant"),
    ("site", "no", "'no' is not what is meant"),
    ("root", "software", "'software' is not what is meant: give an absolute path without"),
    ("root", "/a{{ b }}", "give an absolute path without"),
    ("proxy", "http://me:word@proxy:3128", "give an address that begins with http:// or https:// and has no password"),
    ("batch", "slrum", "'slrum' is none of slurm, pbs, flux, none; did you mean 'slurm'?"),
    ("cores", "many", "'many' is no whole number from 0 on."),
    ("nodes", "0", "'0' is no whole number from 1 on."),
    ("account", "perhaps", "'perhaps' is neither yes nor no."),
    ("architectures", "8.0 ninety", "'ninety' is not what is meant: give compute capabilities such as 8.0."),
    ("architectures", "", "At least one is needed: give compute capabilities such as 8.0."),
])
def test_an_answer_that_means_nothing_is_one_sentence(name, text, sentence):
    with pytest.raises(AnswerError) as raised:
        BY_NAME[name].value(text)
    assert sentence in str(raised.value) and "\n" not in str(raised.value)


def test_every_question_is_one_line_with_a_line_of_help_and_says_what_it_wants():
    assert len(BY_NAME) == len(ASKED)
    for question in ASKED:
        assert question.ask.endswith("?") and question.help.endswith("."), question.name
        assert "\n" not in question.ask + question.help and len(question.help) <= 140, question.name
        assert bool(question.pattern) == bool(question.says), question.name
        assert bool(question.choices) == (question.kind == "choice"), question.name


def test_a_default_follows_from_the_answers_before_it():
    assert BY_NAME["launcher"].proposal({"batch": "slurm"}).startswith("srun ")
    assert BY_NAME["launcher"].proposal({"batch": "pbs"}).startswith("mpiexec ")
    assert BY_NAME["launcher"].proposal({"batch": "flux"}).startswith("flux run ")
    assert BY_NAME["per_node"].proposal({"gpus": 8}) == "8"
    assert BY_NAME["per_node"].proposal({"gpus": 0}) == "2"


def test_where_a_question_means_nothing_its_answer_is_empty_or_said():
    assert not BY_NAME["base"].applies({"pytorch": "source"}) and BY_NAME["base"].applies({"pytorch": "cpu"})
    assert BY_NAME["base"].without == "conda"
    assert BY_NAME["toolchain"].without == [] and BY_NAME["partition"].without == ""
    assert BY_NAME["nodes"].without == 1 and BY_NAME["account"].without is False


def test_a_kind_of_answer_that_is_not_known_is_an_error():
    with pytest.raises(KeyError):
        Question("a", "A?", "A.", "", kind="colour").value("red")
