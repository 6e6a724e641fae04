# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A rollout that is watched: whose release it is, what is asked in between, and what goes on after Ctrl-C."""

from __future__ import annotations

import json
import os
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.command import playbook, rollout, terminal, watching


@pytest.fixture()
def record(root, tmp_path):
    """The record of a run that has the lock of a release."""
    root.release("2026-11-24")
    root.lock("2026-11-24")
    path = tmp_path / "run.json"
    lock = str(root.place / ".torchstack" / "2026-11-24" / "lock.json")
    path.write_text(json.dumps({"task": {"name": "Look", "since": 1.0}, "lock": lock}))
    return path


def test_its_release_is_the_one_that_its_own_process_has_the_lock_of(root, record):
    own = rollout.Rollout(record, os.getpid())
    assert own.gather()["release"] == "2026-11-24" and own.task["name"] == "Look"
    assert rollout.Rollout(record, os.getppid()).gather() is None
    # Its lock is given back before its last lines.
    (root.place / ".torchstack" / "2026-11-24" / "lock.json").unlink()
    assert own.gather()["release"] == "2026-11-24"


@pytest.mark.parametrize("content", ["{}", "", "{", '{"lock": null}', '{"lock": "/nowhere/.torchstack/x/lock.json"}'])
def test_before_its_lock_and_where_that_is_on_another_machine_there_is_nothing_to_show(content, tmp_path):
    (tmp_path / "run.json").write_text(content)
    assert rollout.Rollout(tmp_path / "run.json", os.getpid()).gather() is None


def test_a_line_without_an_end_is_a_question_below_which_nothing_is_drawn():
    lines = rollout.Lines()
    assert lines.take(b"one\ntwo\nthr", 0.0) == (b"one\ntwo\n", True)
    assert lines.take(b"ee\n", 0.1) == (b"three\n", True)
    assert lines.take(b"Go on? ", 0.2) == (b"", True)
    assert lines.take(b"", 0.3) == (b"", True)
    assert lines.take(b"", 1.0) == (b"Go on? ", False)
    assert lines.take(b"", 9.0) == (b"", False)
    assert lines.take(b"yes", 9.1) == (b"yes", False)
    assert lines.take(b"\nwell\n", 9.2) == (b"\nwell\n", True)


def test_what_is_still_unwritten_at_the_end_is_kept():
    lines = rollout.Lines()
    assert lines.take(b"one\nlast", 0.0) == (b"one\n", True) and lines.rest == b"last"


def test_without_the_library_that_draws_there_is_no_view(monkeypatch):
    monkeypatch.setattr(terminal.sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert terminal.usable()
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert not terminal.usable()


def test_a_run_leaves_its_record_where_somebody_wants_it(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(rollout.playbook, "run", lambda line, *_more: seen.append(line.environment) or 0)
    line = playbook.Line(["playbooks/local.yml"], tmp_path, {"A": "b"})
    rollout.run(line, "local", True)
    monkeypatch.setenv("TORCHSTACK_RUN_RECORD", str(tmp_path / "mine.json"))
    rollout.run(line, "local", True)
    own, mine = seen
    assert mine["TORCHSTACK_RUN_RECORD"] == str(tmp_path / "mine.json") != own["TORCHSTACK_RUN_RECORD"]
    assert own["A"] == "b" and own["ANSIBLE_CALLBACKS_ENABLED"].endswith("hpcml.torchstack.run_record")


def test_after_ctrl_c_a_job_in_the_queue_is_not_said_to_be_on_the_login_node(root, record, monkeypatch):
    root.step("2026-11-24", "horovod", "2026-11-24T10:09:20Z", launcher="slurm", job_id="4711", phase="submitted")
    monkeypatch.setattr(rollout.progress, "RECORDS", rollout.progress.Sources(job=lambda files: ("queued", "")))
    looked = rollout.progress.look
    monkeypatch.setattr(rollout.progress, "look", lambda release: looked(release, sources=rollout.progress.RECORDS))
    said = rollout.after_interruption(record, "local")
    assert said.startswith("Interrupted. Step horovod goes on by itself in the queue, job 4711, and the same"), said


def test_after_ctrl_c_it_names_the_step_that_goes_on_and_how_to_watch_and_stop_it(root, record):
    root.step("2026-11-24", "horovod", "2026-11-24T10:09:20Z")
    said = rollout.after_interruption(record, "local").splitlines()
    assert said[0].startswith("Interrupted. Step horovod goes on by itself on ")
    assert said[1] == "Watch it: torchstack logs -f horovod local 2026-11-24"
    assert said[2] == (
        "Stop it: ansible local -m hpcml.torchstack.build_step -a 'name=horovod state=cancelled state_dir=%s'" % (
            root.place / "2026-11-24" / ".torchstack" / "steps"))


def test_after_ctrl_c_without_a_step_nothing_is_said_to_go_on(root, record):
    root.step("2026-11-24", "base", "2026-11-24T10:09:20Z", 20.0)
    assert rollout.after_interruption(record, "local") == rollout.NOTHING_RUNS


def test_after_ctrl_c_on_another_machine_it_says_where_to_look(tmp_path):
    assert "torchstack status polaris 2026-11-21" in rollout.after_interruption(
        tmp_path / "none", "polaris 2026-11-21")


def test_who_watches_a_rollout_is_told_its_changes_and_after_ctrl_c_that_it_goes_on(root, record, capsys, monkeypatch):
    root.step("2026-11-24", "base", "2026-11-24T10:00:00Z", 20.0)
    looks = iter(["", "", "step", "stop"])

    def sleep(_seconds):
        what = next(looks)
        if what == "step":
            root.step("2026-11-24", "mpi4py", "2026-11-24T10:09:20Z")
        elif what == "stop":
            raise KeyboardInterrupt
    monkeypatch.setattr(watching.time, "sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        watching.follow(str(root.place), "2026-11-24")
    said = capsys.readouterr()
    assert said.out.count("Release 2026-11-24 of site local") == 2 and said.out.count("mpi4py, running on ") == 1
    assert said.err == "This only watched the rollout, and has not stopped it.\n"


def test_a_rollout_that_has_ended_is_not_waited_for(root, monkeypatch):
    root.release("2026-11-24")
    monkeypatch.setattr(watching.time, "sleep", lambda _seconds: pytest.fail("it was waited for"))
    assert watching.follow(str(root.place), "2026-11-24")["state"] == "unfinished"


def test_a_batch_system_is_not_asked_at_each_look_but_where_its_job_has_begun(root, monkeypatch):
    root.release("2026-11-24")
    place = root.step("2026-11-24", "horovod", "2026-11-24T10:09:20Z", launcher="slurm", phase="starting")
    files = watching.progress.step_files(str(place.parent), "horovod")
    asked = []
    monkeypatch.setattr(watching.progress, "ask", lambda files: (asked.append(files.name), ("queued", "waits"))[1])
    memory = watching.Memory()
    assert [memory.sources.job(files) for _look in range(3)] == [("queued", "waits")] * 3 and len(asked) == 1
    job = json.loads((place / "job.json").read_text())
    (place / "job.json").write_text(json.dumps(dict(job, phase="running")))
    memory.sources.job(files)
    assert len(asked) == 2
    (place / "job.json").write_text(json.dumps(dict(job, launcher="local")))
    memory.sources.job(files)
    memory.sources.job(files)
    assert len(asked) == 4
