# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The view of a rollout: a line for each step that there is room for, at every width, with all in words."""

from __future__ import annotations

import json

import pytest
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.command import progress, releases, view, watching
from rich.cells import cell_len
from rich.console import Console

AT = 1_000_000.0
LOG = "[32/75] Building CXX object third_party/gloo/gloo/CMakeFiles/gloo.dir/transport/tcp/context.cc.o -O3 -DNDEBUG"
TASK = {"name": "verify: Verify that every object finds every library", "since": AT - 12}


def running(name="horovod", **more):
    return {"name": name, "aside": False, "state": "running", "host": "login1", "launcher": "local", "job_id": None,
            "waits": "", "seconds": 157.0, "expected": 360.0, "progress": {"percent": 42}, "last_line": LOG,
            "log": "/log", **more}


def ended(name, seconds=55.0, taken_over=False, before=False):
    return {"name": name, "seconds": seconds, "taken_over": taken_over, "before": before}


def found(**more):
    """A rollout as progress.look describes it."""
    return {
        "release": "2026-11-24", "site": "local", "holder": {"host": "login1"}, "state": "in progress",
        "at": AT, "seconds": 596.0, "step": 3,
        "steps": 5, "finished": [ended("base"), ended("mpi4py", 1.0, True)], "running": [running()], "failed": [],
        "to_come": ["bytecode", "extras"], "expected": {"bytecode": 40.0, "extras": 0.0}, "left_seconds": 243.0,
        "taken_over": ["extras"], **more}


def test_it_has_what_is_done_what_runs_and_what_is_to_come_with_their_times():
    assert view.lines(found(), AT, 80, 24) == [
        "Release 2026-11-24 of local, step 3 of 5, 9 min 56 s, about 4 min 3 s more",
        "  done        base      55 s",
        "  taken over  mpi4py    1.0 s",
        "  runs        horovod   2 min 37 s of about 6 min 0 s  42 % [#####.......]",
        "              [32/75] Building CXX object third_party/gloo/gloo/CMakeFiles/glo…",
        "  to come     bytecode  about 40 s",
        "  to come     extras    taken over"]


def test_a_wide_terminal_has_the_whole_line_of_the_log_and_a_longer_bar():
    lines = view.lines(found(), AT, 200, 50)
    assert lines[3].split("[")[1].startswith("#" * 12 + "." * 18 + "]")
    assert lines[4].strip() == LOG


@pytest.mark.parametrize("width", [20, 40, 69, 70, 80, 99, 100, 200])
@pytest.mark.parametrize("height", [3, 6, 12, 24, 60])
def test_at_any_size_it_fits_and_says_what_runs(width, height):
    steps = found(finished=[ended("step-%d" % number) for number in range(30)],
                  to_come=["later-%d" % number for number in range(30)], expected={},
                  running=[running(last_line="漢字" * 200)])
    lines = view.lines(steps, AT, width, height)
    assert len(lines) <= max(view.LEAST, height * view.SHARE) and all(cell_len(line) < width for line in lines)
    assert any(line.startswith("  runs") for line in lines)


def test_where_there_is_no_room_steps_to_come_go_first_and_then_those_done_the_oldest_first():
    steps = found(finished=[ended("a", before=True), ended("b", before=True), *map(ended, "cdef")],
                  to_come=list("uvwxyz"), expected={})
    names = [[row.name for row in view.folded(view.rows_of(steps, AT), most)] for most in (20, 9, 6, 5, 3)]
    assert names == [
        ["2 steps", "c", "d", "e", "f", "horovod", *"uvwxyz"],
        ["2 steps", "c", "d", "e", "f", "horovod", "u", "5 more steps"],
        ["4 steps", "e", "f", "horovod", "6 steps"], ["5 steps", "f", "horovod", "6 steps"],
        ["6 steps", "horovod", "6 steps"]]
    assert all(sum(1 + len(row.below) for row in view.folded(view.rows_of(steps, AT), most)) <= most
               for most in (20, 9, 6, 5, 3))


def test_a_step_on_another_machine_is_told_with_it():
    lines = view.lines(found(running=[running(host="node7", job_id="4711", launcher="slurm")]), AT, 120, 24)
    assert " of about 6 min 0 s in job 4711 on node7  42 % [#" in lines[3]


def test_a_bar_without_room_is_left_out_rather_than_cut():
    there = [running("pytorch-wheel", host="compute1", job_id="4711", expected=expected) for expected in (None, 360.0)]
    lines = [view.lines(found(running=[one]), AT, 80, 24)[3] for one in there]
    assert lines[0].endswith("  2 min 37 s in job 4711 on compute1  42 %")
    assert "  42 %  2 min 37 s of about 6 min 0 s in job 4711 " in lines[1]


def test_between_two_looks_the_time_goes_on():
    assert view.heading(found(), AT + 10) == (
        "Release 2026-11-24 of local, step 3 of 5, 10 min 6 s, about 3 min 53 s more")
    assert "2 min 47 s of about" in view.lines(found(), AT + 10, 80, 24)[3]


def test_without_a_release_before_nothing_is_expected():
    first = found(steps=None, to_come=[], expected={}, left_seconds=None, running=[running(expected=None)])
    lines = view.lines(first, AT, 120, 24)
    assert lines[0] == "Release 2026-11-24 of local, step 3, 9 min 56 s" and "about" not in "".join(lines)


def test_a_job_in_the_queue_waits_and_is_told_with_its_place():
    waits = "horovod  job 4711 pending (Priority), position 3 of 17, starts about 14:20"
    queued = running(state="queued", job_id="4711", host="", waits=waits, last_line="", progress=None, seconds=None)
    lines = view.lines(found(running=[queued]), AT, 100, 24)
    assert lines[3].split() == ["waits", "horovod", "in", "job", "4711"] and lines[4].strip() == waits


def test_between_steps_it_says_what_the_playbook_does_and_since_when():
    assert view.lines(found(running=[]), AT, 80, 24, TASK)[-1] == (
        "  now         verify: Verify that every object finds every library, 12 s")
    assert not any(line.startswith("  now") for line in view.lines(found(), AT, 80, 24, TASK))


def test_what_failed_is_told_and_what_failed_before_is_to_come():
    failed = {"name": "horovod", "outcome": "Step horovod failed with exit code 2.", "before": False}
    rows = view.rows_of(found(running=[], failed=[failed, {**failed, "name": "nccl", "before": True}]), AT)
    assert [(row.word, row.name, row.said) for row in rows[2:4]] == [
        ("failed", "horovod", "Step horovod failed with exit code 2."), ("to come", "nccl", "has failed before")]


def test_a_step_whose_process_is_gone_is_not_said_to_run():
    rows = view.rows_of(found(running=[running(state="killed")]), AT)
    assert rows[2].word == "lost" and rows[2].said.endswith("(killed)")


def test_colours_say_nothing_that_words_do_not_say():
    console = Console(color_system="truecolor", force_terminal=True, width=80, _environ={})
    with console.capture() as captured:
        console.print(view.drawing(found(), AT, 80, 24), end="")
    assert "\x1b[" in captured.get()
    plain = Console(color_system=None, force_terminal=True, width=80, _environ={})
    with plain.capture() as without:
        plain.print(view.drawing(found(), AT, 80, 24), end="")
    assert without.get().splitlines() == view.lines(found(), AT, 80, 24)


@pytest.mark.parametrize("below", ["compute", "partitions/gpu/compute"])
def test_a_job_that_builds_nothing_is_shown_while_it_runs_and_is_no_step(root, below):
    root.release("2026-11-24")
    root.lock("2026-11-24")
    made = root.step("2026-11-24", "compute-preflight", "2026-11-24T10:01:00Z")
    place = root.place / ".torchstack" / "2026-11-24" / below / "compute-preflight"
    place.parent.mkdir(parents=True)
    made.rename(place)
    (place / "log").write_text("a node\n==== the attempt: says nothing of the program\n")
    release = releases.read(str(root.place), "2026-11-24")
    looked = progress.look(release, 1795514400.0 + 120)
    lines = view.lines(looked, looked["at"], 100, 24)
    assert ", step 0, " in lines[0] and lines[1].split()[:2] == ["runs", "compute-preflight"], lines
    assert lines[2].strip() == "a node" and progress.lines(looked)[1].startswith("Besides: compute-preflight, running")
    assert progress.files_of(release, "compute-preflight").directory == str(place)
    stamp = {"nonce": "n", "digest": "x", "started": "2026-11-24T10:01:00Z", "finished": "2026-11-24T10:01:01Z"}
    (place / "stamp.json").write_text(json.dumps({**stamp, "seconds": 1.0}))
    assert not progress.look(releases.read(str(root.place), "2026-11-24"))["running"]


def test_a_rollout_is_followed_until_it_has_ended_and_not_until_the_freeze(root, monkeypatch, capsys):
    root.release("2026-11-24", "2026-11-24T10:05:00Z")
    root.lock("2026-11-24")
    slept = []

    def end_after_two(seconds):
        slept.append(seconds)
        if len(slept) == 2:
            (root.place / ".torchstack" / "2026-11-24" / "lock.json").unlink()

    monkeypatch.setattr(watching.time, "sleep", end_after_two)
    found = watching.follow(str(root.place), "2026-11-24")
    assert len(slept) == 2 and found["holder"] is None and found["state"] != "in progress"
    assert capsys.readouterr().out.startswith("Release 2026-11-24 of site local: ")


def test_it_is_drawn_from_the_records_of_a_rollout(root):
    root.release("2026-11-20", "2026-11-20T08:15:00Z")
    root.step("2026-11-20", "pytorch", "2026-11-20T08:00:00Z", 300.0)
    root.release("2026-11-24")
    root.lock("2026-11-24")
    root.step("2026-11-24", "base", "2026-11-24T09:00:00Z", 20.0)
    root.step("2026-11-24", "tools", "2026-11-24T10:01:00Z", 30.0)
    place = root.step("2026-11-24", "mpi4py", "2026-11-24T10:09:20Z")
    (place / "log").write_text("begin\n[ 40%] Building \x1b[2Jit\n")
    now = 1795514400.0 + 10 * 60
    looked = progress.look(releases.read(str(root.place), "2026-11-24"), now)
    lines = view.lines(looked, now, 100, 24)
    assert lines[0] == "Release 2026-11-24 of local, step 3 of 4, 10 min 0 s, about 5 min 0 s more"
    assert [line.split()[:2] for line in lines[1:]] == [
        ["done", "1"], ["done", "tools"], ["runs", "mpi4py"], ["[", "40%]"], ["to", "come"]]
    assert "\x1b" not in "".join(lines)
