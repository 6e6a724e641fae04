# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps import hang_actions
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.records import Limits

FACTS = {"step": "horovod", "host": "nid001", "log": "/steps/horovod/log", "pid": "7", "job_id": "4711"}


@pytest.fixture(name="act")
def actor(tmp_path):
    """Run actions; what they print and what is noted is in one file."""
    path = tmp_path / "log"

    def act(actions):
        with open(str(path), "ab", buffering=0) as log:
            return hang_actions.run_actions(
                hang_actions.check_actions(actions), FACTS, log.fileno(), lambda text: log.write(text.encode() + b"\n"),
                {"PATH": os.environ["PATH"]},
            )

    act.log = path
    return act


def test_a_command_gets_the_steps_name_host_and_log(act):
    assert act({"kill": ["echo", "second"], "notify": ["echo", "{step} on {host}: {log}, job {job_id}, {pid}"]}) == []
    lines = act.log.read_text().splitlines()
    assert lines[1] == "horovod on nid001: /steps/horovod/log, job 4711, 7"
    assert lines[-1] == "second"


@pytest.mark.parametrize("words, said", [
    (["false"], "ended with status 1"), (["/does/not/exist"], "cannot be run: No such file or directory"),
    (["a\0b"], "cannot be run"),
])
def test_a_command_that_fails_is_told_and_hinders_nobody(act, words, said):
    problems = act({"notify": words, "kill": ["echo", "reached"]})
    assert len(problems) == 1
    assert said in problems[0] and "notify" in problems[0]
    assert act.log.read_text().endswith("reached\n")


def test_a_command_that_does_not_end_is_given_up(act, monkeypatch):
    monkeypatch.setattr(hang_actions, "ACTION_SECONDS", 0.1)
    assert "did not end" in act({"notify": ["sleep", "600"]})[0]


def test_a_word_that_stands_for_nothing_is_refused():
    with pytest.raises(StackError, match=r"notify has \{name\}"):
        hang_actions.check_actions({"notify": ["mail", "{name}"]})


@pytest.mark.parametrize("nothing", [None, {}, {"notify": None, "kill": []}])
def test_no_action_is_none(nothing):
    assert hang_actions.check_actions(nothing) == {}


def test_a_credential_in_a_command_of_the_site_is_refused():
    with pytest.raises(StackError, match="on_hang: notify has a password in an address") as caught:
        hang_actions.check_actions({"notify": ["curl", "https://me:pa55word@example.org/hook"]})
    assert "pa55word" not in caught.value.message


def test_what_a_command_prints_is_masked_and_there_when_it_has_ended(act):
    assert act({"notify": ["/bin/sh", "-c", "printf 'HF_%s=0123456789' TOKEN"]}) == []
    assert act.log.read_text().endswith("\nHF_TOKEN=***")


def test_a_variable_that_is_set_is_left_alone():
    environment = {}
    hang_actions.prepare(environment, Limits(no_output_timeout=60))
    assert environment == {"PYTHONFAULTHANDLER": "1"}
    chosen = {"PYTHONFAULTHANDLER": ""}
    hang_actions.prepare(chosen, Limits(no_output_timeout=60))
    assert chosen == {"PYTHONFAULTHANDLER": ""}
