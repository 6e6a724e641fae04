# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import types

import pytest
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible_collections.hpcml.torchstack.plugins.action import build_step

RUNNING = {
    "step": "s", "nonce": "n", "host": "login01", "pid": 7, "log": "/s/log", "state": "running", "changed": True,
    "seconds": 1.0, "progress": {"text": "s  1 s"},
}


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Screen:
    def __init__(self):
        self.lines, self.warnings = [], []

    def display(self, line):
        self.lines.append(line)

    def warning(self, line):
        self.warnings.append(line)

    def debug(self, line):
        pass


@pytest.fixture(name="follow")
def follower(monkeypatch):
    """Run the action against scripted module results; an exception among them is raised."""
    clock, screen = Clock(), Screen()
    monkeypatch.setattr(build_step, "time", clock)
    monkeypatch.setattr(build_step, "display", screen)
    monkeypatch.setattr(build_step.os, "getppid", lambda: 42)

    def run(results, check_mode=False, task_vars=None, glances=(), **arguments):
        action = build_step.ActionModule.__new__(build_step.ActionModule)
        action._task = types.SimpleNamespace(
            args=dict({"name": "s", "state_dir": "/d"}, **arguments), check_mode=check_mode, async_val=0
        )
        run.resets = 0

        def reset():
            run.resets += 1

        action._connection = types.SimpleNamespace(reset=reset)
        remaining = list(results)
        run.calls = []

        def execute(module_args, task_vars):
            run.calls.append((clock.now, module_args))
            result = remaining.pop(0)
            if isinstance(result, Exception):
                raise result
            return dict(result)

        seen = list(glances)

        def low_level(command):
            assert command.startswith("cd -- /s && ")
            answer = seen.pop(0) if seen else None
            return {"rc": 1, "stdout": ""} if answer is None else {"rc": 0, "stdout": answer}

        action._execute_module = execute
        action._low_level_execute_command = low_level
        monkeypatch.setattr(build_step.ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
        return action.run(task_vars=task_vars or {})

    run.clock, run.screen = clock, screen
    return run


def running(seconds, percent=None):
    progress = {"text": "s"} if percent is None else {"text": "s", "percent": percent}
    return dict(RUNNING, seconds=seconds, progress=progress)


def glanced(beat, count=0, **job):
    record = dict({"nonce": "n", "phase": "running", "heartbeat": beat, "host": "login01", "pid": 7}, **job)
    return "%s\n=going\n==== attempt 1\n[%d/10] CXX a.o\n" % (json.dumps(record), count)


DONE = {"step": "s", "state": "done", "changed": True, "seconds": 9.0}


def test_a_finished_step_costs_one_module_call(follow):
    result = follow([{"state": "unchanged", "changed": False, "step": "s"}])
    assert result["state"] == "unchanged"
    assert len(follow.calls) == 1
    assert follow.clock.now == 0


def test_looks_become_rarer_up_to_five_seconds(follow):
    follow([RUNNING] + [running(second) for second in range(30)] + [DONE])
    times = [time for time, _arguments in follow.calls]
    gaps = [round(after - before, 2) for before, after in zip(times, times[1:])]
    assert gaps[0] == 0.3
    assert gaps == sorted(gaps)
    assert gaps[-1] == 5.0
    assert follow.calls[1][1] == {"name": "s", "state_dir": "/d", "follow": "n"}


def test_a_build_that_plainly_runs_is_glanced_at_and_the_module_looks_at_its_end_only(follow):
    result = follow([RUNNING, DONE], glances=[glanced("b%d" % number, number) for number in range(1, 10)])
    assert result["state"] == "done" and result["progress"]["percent"] == 90
    assert len(follow.calls) == 2
    assert follow.screen.lines and follow.screen.lines[-1].startswith("s  [9/10]  90 %")


@pytest.mark.parametrize("doubt", [
    glanced("b", phase="starting"), glanced("b", nonce="other"), "", "no record\n=going\n", '{"nonce": "n"}\n',
])
def test_the_module_looks_when_a_glance_leaves_a_doubt(follow, doubt):
    assert follow([RUNNING, DONE], glances=[glanced("a"), doubt])["state"] == "done"
    assert len(follow.calls) == 2


def test_the_module_looks_when_the_heartbeat_stays_away(follow):
    follow([RUNNING, running(20.0), DONE], glances=[glanced("same")] * 9)
    (_started, _arguments), (first, _first), (_second, _arguments) = follow.calls
    assert build_step.STALE_SECONDS <= first < build_step.STALE_SECONDS + 2 * build_step.LONGEST_INTERVAL


def test_what_the_first_call_knew_is_in_the_result(follow):
    first = dict(RUNNING, attached=True, resumed="why", diff={"before": ""}, warnings=["w1"])
    result = follow([first, dict(DONE, warnings=["w2"])])
    assert (result["attached"], result["resumed"], result["diff"]) == (True, "why", {"before": ""})
    assert result["warnings"] == ["w1", "w2"]
    assert result["state"] == "done"


def test_progress_is_shown_when_it_moves(follow):
    looks = [running(5.0 * number, min(100, number * 10)) for number in range(1, 12)]
    follow([RUNNING, *looks, DONE])
    # Looks are 5 s apart by then; the time is the controller's own, as a glance tells none.
    assert follow.screen.lines == ["s  70 %  13 s", "s  90 %  23 s", "s  100 %  33 s"]


def test_a_lost_connection_is_taken_up_again(follow):
    result = follow([RUNNING, AnsibleConnectionFailure("gone"), AnsibleConnectionFailure("gone"), running(3), DONE])
    assert result["state"] == "done"
    assert follow.resets == 2
    assert "the build goes on" in follow.screen.warnings[0]


def test_a_connection_that_stays_lost_says_how_to_attach(follow):
    with pytest.raises(AnsibleConnectionFailure) as caught:
        follow([RUNNING] + [AnsibleConnectionFailure("unreachable.")] * 9)
    for part in ("unreachable. Step s goes on", "login01", "pid 7", "/s/log", "attach"):
        assert part in str(caught.value)
    assert len(follow.calls) == 1 + build_step.RECONNECTS


def test_a_look_that_breaks_says_how_to_attach(follow):
    result = follow([RUNNING, {"failed": True, "msg": "MODULE FAILURE"}])
    assert result["failed"]
    assert "MODULE FAILURE Step s goes on" in result["msg"]


def test_the_worker_stops_when_its_controller_is_gone(follow, monkeypatch):
    parents = iter([42] * 6 + [1] * 99)
    monkeypatch.setattr(build_step.os, "getppid", lambda: next(parents))
    with pytest.raises(AnsibleActionFail, match="controller is gone"):
        follow([RUNNING] + [running(1)] * 99)
    assert follow.clock.now < 2


def test_the_last_lines_of_a_failure_are_readable(follow):
    follow([RUNNING, {"failed": True, "step": "s", "log": "/s/log", "log_tail": ["a", "b"], "msg": "m"}])
    assert follow.screen.lines == ["s: last lines of /s/log\na\nb"]


@pytest.mark.parametrize("private", ["follow", "planned"])
def test_the_plugins_own_options_are_refused(follow, private):
    with pytest.raises(AnsibleActionFail, match=private):
        follow([], **{private: "x"})


def test_a_plan_is_handed_to_the_steps_after_it(follow):
    planned = {"state": "planned", "changed": True, "step": "s"}
    first = follow([planned], check_mode=True)
    fact = first["ansible_facts"]
    second = follow([dict(planned, step="t")], check_mode=True, task_vars={"ansible_facts": fact})
    assert follow.calls[0][1]["planned"] == ["s"]
    assert second["ansible_facts"]["torchstack_planned"]["steps"] == {"/d": ["s", "t"]}
    follow([planned], check_mode=True, task_vars={"ansible_facts": fact}, state_dir="/other")
    assert "planned" not in follow.calls[0][1]
    fact["torchstack_planned"]["run"] = "an earlier run"
    follow([planned], check_mode=True, task_vars={"ansible_facts": fact})
    assert "planned" not in follow.calls[0][1]
    follow([DONE], task_vars={"ansible_facts": first["ansible_facts"]})
    assert "planned" not in follow.calls[0][1]
