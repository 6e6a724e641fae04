# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The callback run_record: what a real Ansible leaves of steps and failures for programs."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess

import pytest
import yaml
from ansible_collections.hpcml.torchstack.plugins.callback import run_record

MODULES = pathlib.Path(run_record.__file__).parents[1] / "modules"


@pytest.fixture()
def record_of(ansible_environment, tmp_path):
    """Play tasks on this machine; the exit code, and the record."""
    def play(tasks, *words):
        path = tmp_path / "play.yml"
        path.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
        done = subprocess.run(
            ["ansible-playbook", *words, str(path)], text=True, check=False, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={
                **ansible_environment, "ANSIBLE_CALLBACKS_ENABLED": "hpcml.torchstack.run_record",
                "TORCHSTACK_RUN_RECORD": str(tmp_path / "record.json")})
        return done.returncode, json.loads((tmp_path / "record.json").read_text()), done.stdout
    return play


def step(tmp_path, script, **more):
    return {"name": "Build it", "hpcml.torchstack.build_step": {
        "name": "toy", "state_dir": str(tmp_path / "steps"), "script": script, **more}}


def test_a_step_is_recorded_when_it_ran_or_would_run_and_not_when_it_was_done_already(record_of, tmp_path):
    tasks = [step(tmp_path, "true"), {"name": "Look", "ansible.builtin.stat": {"path": "/"}}]
    assert [one["state"] for one in record_of(tasks, "--check")[1]["steps"]] == ["planned"]
    code, record, said = record_of(tasks)
    assert code == 0 and record["finished"] and record["failures"] == [], said
    assert [(one["step"], one["state"], one["host"]) for one in record["steps"]] == [("toy", "done", "localhost")]
    assert record["steps"][0]["seconds"] >= 0
    assert record_of(tasks)[1]["steps"] == []
    assert oct(os.stat(tmp_path / "record.json").st_mode & 0o777) == "0o600"


def test_a_failed_step_is_recorded_with_its_part_and_its_log_and_what_fails_afterwards_after_it(record_of, tmp_path):
    block = {"block": [step(tmp_path, "echo nvcc is gone >&2; exit 3")],
             "always": [{"name": "Report", "ansible.builtin.fail": {"msg": "No page."}}]}
    code, record, said = record_of([block])
    assert code == 2 and record["finished"], said
    first, second = record["failures"]
    assert (first["task"], first["step"], first["part"], first["rescued"]) == ("Build it", "toy", "run", False)
    assert first["message"].startswith("Step toy failed") and first["log"].endswith("toy/log"), first
    assert (second["task"], second["step"], second["message"]) == ("Report", "", "No page.")


def test_what_is_rescued_is_marked_what_is_ignored_is_left_out_and_each_item_stands_alone(record_of):
    fail = {"name": "Look", "ansible.builtin.fail": {"msg": "Gone {{ item | default('') }}"}}
    tasks = [
        {"block": [{"block": [fail]}], "rescue": [{"name": "Go on", "ansible.builtin.debug": {"msg": "on"}}]},
        dict(fail, ignore_errors=True),
        {"block": [dict(fail)], "rescue": [dict(fail, name="Look again", loop=["a", "b"])]}]
    code, record, said = record_of(tasks)
    assert code == 2, said
    found = [(one["task"], one["message"], one["rescued"]) for one in record["failures"]]
    assert found == [("Look", "Gone ", True), ("Look", "Gone ", True), ("Look again", "Gone a", False),
                     ("Look again", "Gone b", False)]


def test_nothing_secret_is_recorded_and_a_host_that_does_not_answer_is(record_of):
    secret = {"name": "Log in", "ansible.builtin.fail": {"msg": "hunter2"}, "no_log": True}
    assert "hunter2" not in json.dumps(record_of([secret])[1])
    away = {"name": "Look", "ansible.builtin.ping": {}, "vars": {
        "ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}}
    (only,) = record_of([away])[1]["failures"]
    assert only["part"] == "connection" and only["task"] == "Look"


def test_the_task_of_now_and_the_lock_of_the_release_are_there_while_it_runs(record_of, tmp_path):
    (tmp_path / ".torchstack" / "2026-11-20").mkdir(parents=True)
    lock = {"root": str(tmp_path), "release": "2026-11-20"}
    copy = {"name": "Look", "ansible.builtin.command": "cp %s %s" % (tmp_path / "record.json", tmp_path / "now.json")}
    tasks = [{"name": "Lock", "hpcml.torchstack.rollout_lock": lock}, copy,
             {"name": "Unlock", "hpcml.torchstack.rollout_lock": {**lock, "state": "released"}}]
    code, _record, said = record_of(tasks)
    now = json.loads((tmp_path / "now.json").read_text())
    assert code == 0 and not now["finished"] and now["task"]["name"] == "Look" and now["task"]["since"] > 0, said
    assert now["lock"] == str(tmp_path / ".torchstack" / "2026-11-20" / "lock.json")


def test_what_was_changed_and_said_is_recorded_a_loop_once_and_each_of_its_messages(record_of, tmp_path):
    make = {"name": "Make it", "ansible.builtin.file": {"path": "%s/{{ item }}" % tmp_path, "state": "directory"},
            "loop": ["a", "b"]}
    say = {"name": "Say it", "ansible.builtin.debug": {"msg": "{{ item }}"}, "loop": ["one\ntwo", ["three"]]}
    hidden = {"name": "Hide it", "ansible.builtin.debug": {"msg": "hunter2"}, "no_log": True}
    tasks = [make, say, hidden, {"name": "Look", "ansible.builtin.stat": {"path": "/"}}]
    planned = record_of(tasks, "--check")[1]
    assert planned["check"] and planned["changed"] == [{"task": "Make it", "host": "localhost"}]
    code, record, said = record_of(tasks)
    assert code == 0 and record["changed"] == planned["changed"] and not record["check"], said
    assert [one["lines"] for one in record["messages"]] == [["one", "two"], ["three"]]
    assert record["hosts"] == {"localhost": {"ok": 4, "changed": 1, "unreachable": 0, "failed": 0}}
    assert record_of(tasks)[1]["changed"] == [] and "hunter2" not in json.dumps(record)


def test_what_a_module_was_run_to_find_is_recorded_whether_it_fails_or_not(record_of, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name / ".torchstack").mkdir(parents=True)
        (tmp_path / name / ".torchstack" / "release.yml").write_text("{}")
        (tmp_path / name / "file").write_text(name)
    compare = {"name": "Compare", "hpcml.torchstack.release_compare": {
        "first": str(tmp_path / "one"), "second": str(tmp_path / "{{ item }}")}, "loop": ["one", "two"]}
    code, record, said = record_of([compare])
    assert code == 2, said
    assert [(one["module"], one["failed"], one["data"]["equivalent"]) for one in record["results"]] == [
        ("release_compare", False, True), ("release_compare", True, False)]
    assert record["results"][1]["data"]["differences"]["other"][0]["path"] == "file"


@pytest.mark.parametrize("module", run_record.RESULTS)
def test_what_is_kept_of_a_result_is_what_its_module_documents(module):
    text = (MODULES / (module + ".py")).read_text()
    documented = yaml.safe_load(text.partition('RETURN = r"""')[2].partition('"""')[0])
    assert set(run_record.RESULTS[module]) <= set(documented)
