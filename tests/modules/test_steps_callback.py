# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The callback steps: a line for each step and event, a failure that ends with its message, -v as ever."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess

import pytest
from support.polling import eventually

CALLBACK = {"ANSIBLE_STDOUT_CALLBACK": "hpcml.torchstack.steps"}
RECAP = "localhost : ok=%d changed=%d unreachable=0 failed=%d"


@pytest.fixture()
def played(ansible_environment, tmp_path):
    """Play tasks on this machine; the exit code, and the lines that were printed."""
    def play(tasks, *words, callback=True, name="Toy", **more):
        path = tmp_path / "play.yml"
        path.write_text(json.dumps([{"name": name, "hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
        environment = {
            **ansible_environment, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml",
            "ANSIBLE_LOCALHOST_WARNING": "false", "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false",
            **(CALLBACK if callback else {}), **more}
        done = subprocess.run(
            ["ansible-playbook", *words, str(path)], env=environment, text=True, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout.splitlines()
    return play


def step(tmp_path, script="true"):
    return {"name": "Build it", "hpcml.torchstack.build_step": {
        "name": "toy", "state_dir": str(tmp_path / "steps"), "script": script}}


def command(text, **more):
    return {"name": "Run it", "ansible.builtin.command": text, **more}


def test_a_step_and_a_change_are_a_line_each_and_what_is_done_already_is_none(played, tmp_path):
    tasks = [
        {"name": "Look", "ansible.builtin.stat": {"path": "/"}}, step(tmp_path),
        {"name": "Skip", "ansible.builtin.command": "false", "when": False},
        {"name": "Make a place", "ansible.builtin.file": {"path": str(tmp_path / "a"), "state": "directory"}},
        {"name": "Say", "ansible.builtin.debug": {"msg": ["one", "two"]}}]
    code, lines = played(tasks)
    assert code == 0 and re.fullmatch(r"toy  done in [0-9.]+ s", lines[1]), lines
    assert [lines[0], *lines[2:]] == ["Toy", "Make a place", "one", "two", RECAP % (4, 2, 0)]
    assert played(tasks) == (0, ["Toy", "one", "two", RECAP % (4, 0, 0)])


def test_a_summary_has_its_details_only_where_something_was_changed(played, tmp_path):
    summary = {"name": "Sum", "ansible.builtin.debug": {"msg": "one\n  two"}, "vars": {"__summary_has_details": True}}
    tasks = [step(tmp_path), summary]
    assert played(tasks)[1][2:4] == ["one", "  two"]
    assert played(tasks) == (0, ["Toy", "one", RECAP % (2, 0, 0)])


def test_a_plan_leaves_the_steps_to_its_summary(played, tmp_path):
    code, lines = played([step(tmp_path)], "--check")
    assert (code, lines) == (0, ["Toy (check mode: nothing is changed)", RECAP % (1, 1, 0)])
    code, lines = played([step(tmp_path)], "--check", "--diff")
    assert code == 0 and "Build it" in lines and any("+true" in line for line in lines)


def test_a_failed_step_ends_with_its_message_and_not_with_yaml(played, tmp_path):
    tasks = [step(tmp_path, "echo 'a.c:1:1: error: unknown type name' >&2; exit 3"),
             {"name": "Never", "ansible.builtin.command": "true"}]
    code, lines = played(tasks)
    assert code == 2 and len(lines) <= 12, lines
    assert lines[1:3] == ["Failed: Build it", "  Step toy failed with exit code 3:"]
    assert "  log line 4: a.c:1:1: error: unknown type name" in lines or any(
        "error: unknown type name" in line for line in lines), lines
    assert not any(re.match(r" *(invocation|log_tail|errors|changed):", line) for line in lines), lines
    assert any(line.startswith("  The log is ") for line in lines) and lines[-1] == RECAP % (0, 0, 1)


def test_whatever_follows_a_failure_the_cause_stands_in_the_last_ten_lines(played):
    tasks = [{"block": [{"name": "Look", "ansible.builtin.fail": {"msg": "There is no compiler.\nInstall one."}}],
              "always": [{"name": "Report", "ansible.builtin.debug": {"msg": ["line %d" % one for one in range(30)]}}]}]
    code, lines = played(tasks)
    assert code == 2 and lines[1:4] == ["Failed: Look", "  There is no compiler.", "  Install one."]
    assert lines[-1] == "The cause, as above: There is no compiler." and len(lines) <= 40


def test_what_fails_after_the_cause_or_is_rescued_is_not_taken_for_it(played):
    last = [{"name": "Say", "ansible.builtin.debug": {"msg": ["line %d" % one for one in range(6)]}},
            {"name": "Report", "ansible.builtin.fail": {"msg": ["No report."] * 6}}]
    tasks = [{"block": [{"name": "Try", "ansible.builtin.fail": {"msg": "Of no importance."}}],
              "rescue": [{"name": "Go on", "ansible.builtin.debug": {"msg": "on"}}]},
             {"block": [{"name": "Build", "ansible.builtin.fail": {"msg": "The disk is full."}}], "always": last}]
    code, lines = played(tasks)
    assert code == 2 and lines[-1] == "The cause, as above: The disk is full.", lines


def test_a_program_that_failed_is_told_by_what_it_said_last(played):
    code, lines = played([command("sh -c 'seq 20 >&2; echo why >&2; exit 1'")])
    assert code == 2 and lines[1] == "Failed: Run it" and "non-zero return code" in lines[2]
    assert lines[3:] == ["  17", "  18", "  19", "  20", "  why", RECAP % (0, 0, 1), *lines[9:]], lines


def test_each_item_that_failed_is_told_once(played):
    tasks = [{"name": "Look", "ansible.builtin.assert": {"that": "item != 'b'", "fail_msg": "No {{ item }}."},
              "loop": ["a", "b", "c"]}]
    code, lines = played(tasks)
    assert code == 2 and lines[1:3] == ["Failed: Look", "  No b."] and len(lines) == 4, lines


def test_what_may_fail_is_not_told_as_a_failure(played):
    code, lines = played([command("false", ignore_errors=True, changed_when=False)])
    assert code == 0 and not any("Failed" in line for line in lines), lines


def test_a_warning_is_shown(played, tmp_path):
    tasks = [{"name": "Warn", "ansible.builtin.file": {"path": str(tmp_path / "x"), "state": "touch", "mode": 644}},
             {"name": "Also", "hpcml.torchstack.build_step": {
                 "name": "toy", "state_dir": str(tmp_path / "steps"), "script": "true", "network": False,
                 "environment": {"https_proxy": "http://x"}}}]
    _code, lines = played(tasks)
    _code, old = played(tasks, callback=False)
    warned = [line for line in old if line.startswith("[WARNING]")]
    assert [line for line in lines if line.startswith("[WARNING]")] == warned


def test_after_ctrl_c_it_says_at_which_step_and_that_it_goes_on(ansible_environment, tmp_path):
    gate, log = tmp_path / "gate", tmp_path / "steps" / "toy" / "log"
    path = tmp_path / "play.yml"
    path.write_text(json.dumps([{"name": "Toy", "hosts": "localhost", "gather_facts": False, "tasks": [
        step(tmp_path, "until test -e '%s'; do sleep 0.1; done" % gate)]}]))
    playing = subprocess.Popen(
        ["ansible-playbook", str(path)], env={**ansible_environment, **CALLBACK}, text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    eventually(lambda: log.exists() and "==== attempt" in log.read_text(), "the step")
    os.killpg(playing.pid, signal.SIGINT)
    lines = playing.communicate()[0].splitlines()
    gate.touch()
    assert playing.returncode == 99 and lines[-2].startswith("Ended at: Build it. A step that has begun goes on"), lines
    assert lines[-1].startswith("Watch it: torchstack status -f") and len(lines) < 12, lines
    eventually((log.parent / "stamp.json").exists, "the step that goes on")


def test_with_v_it_prints_what_ansible_prints(played):
    tasks = [{"name": "Say", "ansible.builtin.debug": {"msg": "x"}}, command("true", changed_when=False)]
    plain = [re.sub(r"\d\d:\d\d:\d\d\S*|0:00:00\S*|\"(start|end|delta)\".*|(start|end|delta):.*", "", line)
             for lines in (played(tasks, "-v")[1], played(tasks, "-v", callback=False)[1]) for line in [*lines, "--"]]
    half = plain.index("--")
    assert plain[:half] == plain[half + 1:-1] and any("TASK [Say]" in line for line in plain)


def test_words_of_the_command_are_named_only_to_whom_has_typed_them(played):
    tasks = [{"name": "Say", "ansible.builtin.debug": {"msg": "Next: playbooks/publish.yml -e publish_to=default."}}]
    assert "Next: playbooks/publish.yml -e publish_to=default." in played(tasks)[1]
    assert "Next: torchstack publish --to default." in played(tasks, TORCHSTACK_NAMES_WORDS="true")[1]
    named = played(tasks, TORCHSTACK_NAMES_WORDS="true", TORCHSTACK_NAMES_SITE="polaris")[1]
    assert "Next: torchstack publish polaris --to default." in named
