# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import sys
import types

import pytest
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible_collections.hpcml.torchstack.plugins.action import build_step
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.follow import MAX_INTERVAL, STALE_SECONDS

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

    def run(results, check_mode=False, task_vars=None, polls=(), **arguments):
        action = build_step.ActionModule.__new__(build_step.ActionModule)
        action._task = types.SimpleNamespace(
            args=dict({"name": "s", "state_dir": "/d"}, **arguments), check_mode=check_mode, async_val=0
        )
        run.resets = 0

        def reset():
            run.resets += 1

        action._connection = types.SimpleNamespace(reset=reset)
        remaining = list(results)
        run.calls, run.polls = [], []

        def execute(module_args, task_vars):
            run.calls.append((clock.now, module_args))
            result = remaining.pop(0)
            if isinstance(result, Exception):
                raise result
            return dict(result)

        seen = list(polls)

        def low_level(command):
            assert command.startswith("cd -- /s && ")
            run.polls.append(clock.now)
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


def snapshot(beat, count=0, **job):
    record = dict({
        "boot_id": "b", "digest": "d", "heartbeat": beat, "host": "login01", "launcher": "local", "nonce": "n",
        "phase": "running", "pid": 7, "started": "2026-11-20T00:00:00Z",
    }, **job)
    return "=job\n%s\n\n=going 9\n==== attempt 1\n[%d/10] CXX a.o\n" % (json.dumps(record), count)


DONE = {"step": "s", "state": "done", "changed": True, "seconds": 9.0}


def test_a_finished_step_costs_one_module_call(follow):
    result = follow([{"state": "unchanged", "changed": False, "step": "s"}])
    assert result["state"] == "unchanged"
    assert len(follow.calls) == 1
    assert follow.clock.now == 0


def test_a_look_gets_what_it_needs_and_nothing_else(follow):
    launcher = {"launcher": "slurm", "launcher_options": {"bin": "/opt/slurm/bin"}}
    follow([RUNNING, running(1), DONE], script="make", timeout=7, **launcher)
    assert follow.calls[1][1] == dict(launcher, name="s", state_dir="/d", follow="n", unchanged=pytest.approx(0.3))
    assert follow.calls[2][1]["unchanged"] > follow.calls[1][1]["unchanged"]


def test_polls_become_rarer_up_to_five_seconds(follow):
    follow([RUNNING, DONE], polls=[snapshot("b%d" % number) for number in range(20)])
    times = follow.polls
    gaps = [round(after - before, 2) for before, after in zip(times, times[1:])]
    assert times[0] == 0.3
    assert gaps == sorted(gaps)
    assert gaps[-1] == 5.0


def test_a_build_that_plainly_runs_is_polled_and_the_module_looks_at_its_end_only(follow):
    result = follow([RUNNING, DONE], polls=[snapshot("b%d" % number, number) for number in range(1, 10)])
    assert result["state"] == "done" and result["progress"]["percent"] == 90
    assert len(follow.calls) == 2
    assert follow.screen.lines and follow.screen.lines[-1].startswith("s  [9/10]  90 %")


@pytest.mark.parametrize("doubt", [
    snapshot("b", phase="starting"), snapshot("b", nonce="other"), "", "no record\n=going\n", '{"nonce": "n"}\n',
    snapshot("b").replace("=going 9", "=ended"),
])
def test_the_module_looks_when_a_poll_leaves_a_doubt(follow, doubt):
    assert follow([RUNNING, DONE], polls=[snapshot("a"), doubt])["state"] == "done"
    assert len(follow.calls) == 2


def test_the_module_looks_when_the_heartbeat_stays_away(follow):
    follow([RUNNING, running(20.0), DONE], polls=[snapshot("same")] * 9)
    (_started, _arguments), (first, _first), (_second, _arguments) = follow.calls
    assert STALE_SECONDS <= first < STALE_SECONDS + 2 * MAX_INTERVAL


def test_what_the_first_call_knew_is_in_the_result(follow):
    first = dict(RUNNING, attached=True, resumed="why", diff={"before": ""}, warnings=["w1"])
    result = follow([first, dict(DONE, warnings=["w2"])])
    assert (result["attached"], result["resumed"], result["diff"]) == (True, "why", {"before": ""})
    assert result["warnings"] == ["w1", "w2"]
    assert result["state"] == "done"


def test_progress_is_shown_when_it_moves(follow):
    follow([RUNNING, DONE], polls=[snapshot("b%d" % number, min(10, number)) for number in range(1, 13)])
    # Glances are 5 s apart by then.
    assert follow.screen.lines == ["s  [7/10]  70 %  13 s", "s  [9/10]  90 %  23 s", "s  [10/10]  100 %  33 s"]


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


QUEUE = {"job_id": "4711", "state": "pending", "reason": "Priority", "position": 3, "of": 17}
QUEUED = dict(RUNNING, host=None, pid=None, job_id="4711", queue=QUEUE)


def test_a_job_in_the_queue_is_shown_until_it_runs(follow):
    waiting = [snapshot("a", phase="intent", log_offset=0) for _look in range(12)]
    done = dict(DONE, job_id="4711", node="nid001")
    running = [snapshot("b%d" % number, number, host="nid001", log_offset=0) for number in range(1, 10)]
    result = follow([QUEUED] + [QUEUED] * 3 + [done], polls=waiting + running)
    assert (result["state"], result["node"]) == ("done", "nid001")
    assert follow.screen.lines[0] == "s  job 4711 pending (Priority), position 3 of 17"
    assert "s  job 4711 started on nid001" in follow.screen.lines
    assert follow.screen.lines[-1].startswith("s  [")
    between = [after - before for (before, _a), (after, _b) in zip(follow.calls[1:], follow.calls[2:-1])]
    assert min(between) >= 10


def test_a_scheduler_that_does_not_answer_is_asked_again(follow):
    silent = {"failed": True, "step": "s", "failed_step": "scheduler", "msg": "squeue: timed out."}
    waiting = [snapshot("a", phase="intent")] * 60
    result = follow([QUEUED, silent, silent, QUEUED, DONE], polls=waiting[:20])
    assert result["state"] == "done"
    assert follow.screen.warnings == ["s: squeue: timed out. Asking again later."] * 2
    result = follow([QUEUED] + [silent] * 99, polls=waiting * 10)
    assert result["failed"]
    assert "squeue: timed out. Step s waits in the queue as job 4711" in result["msg"]


def test_a_cancelled_step_says_so(follow):
    cancelled = {"state": "cancelled", "changed": True, "step": "s", "job_id": "4711", "log": "/s/log"}
    assert follow([cancelled], state="cancelled")["state"] == "cancelled"
    assert follow.screen.lines == ["s  job 4711 cancelled, log /s/log"]
    nothing = dict(cancelled, changed=False, job_id=None)
    assert not follow([nothing], state="cancelled")["changed"]
    assert len(follow.screen.lines) == 1


def test_what_was_taken_over_is_said_with_the_release_that_made_it(follow):
    origin = {"release": "2026-11-20", "finished": "2026-11-20T02:13:09Z", "seconds": 612}
    taken = dict(DONE, state="cached", changed=True, step="s", taken_over=origin)
    said = "s  taken over from release 2026-11-20: same inputs, built 2026-11-20T02:13:09Z in 612 s"
    for number, results in enumerate(([taken], [RUNNING, taken]), 1):
        follow(results)
        assert follow.screen.lines.count(said) == number
    follow([dict(taken, state="unchanged", changed=False)])
    assert follow.screen.lines.count(said) == 2


def test_a_look_that_breaks_says_how_to_attach(follow):
    result = follow([RUNNING, {"failed": True, "msg": "MODULE FAILURE"}])
    assert result["failed"]
    assert "MODULE FAILURE Step s goes on" in result["msg"]


def test_the_worker_stops_when_its_controller_is_gone(follow, monkeypatch):
    parents = iter([42] * 6 + [1] * 99)
    monkeypatch.setattr(build_step.os, "getppid", lambda: next(parents))
    monkeypatch.setattr(build_step.os, "_exit", sys.exit)
    with pytest.raises(SystemExit):
        follow([RUNNING] + [running(1)] * 99)
    assert follow.clock.now < 2


@pytest.mark.parametrize("before", [[], [RUNNING]], ids=["at once", "followed"])
def test_what_a_failure_says_is_in_its_result_once_and_nowhere_else(follow, before):
    told = "Step s failed with exit code 1:\nlog line 7: x\nThe log is /s/log. Correct that."
    failed = {"failed": True, "step": "s", "log": "/s/log", "msg": "Step s failed with exit code 1.", "told": told,
              "remedy": "Correct that.", "exception": "as Ansible has it"}
    result = follow([*before, failed])
    assert follow.screen.lines == []
    assert (result["msg"], result["exception"]) == (told, "as Ansible has it")
    assert not {"told", "remedy"} & set(result)


@pytest.mark.parametrize("private", ["follow", "planned", "unchanged"])
def test_the_plugins_own_options_are_refused(follow, private):
    with pytest.raises(AnsibleActionFail, match=private):
        follow([], **{private: "x"})


def test_a_plan_is_handed_to_the_steps_after_it(follow):
    planned = {"state": "planned", "changed": True, "step": "s"}
    first = follow([planned], check_mode=True)
    fact = first["ansible_facts"]
    second = follow([dict(planned, step="t")], check_mode=True, task_vars={"ansible_facts": fact})
    assert follow.calls[0][1]["planned"] == {"s": {"result": None, "ground": None}}
    assert list(second["ansible_facts"]["torchstack_planned"]["steps"]["/d"]) == ["s", "t"]
    follow([planned], check_mode=True, task_vars={"ansible_facts": fact}, state_dir="/other")
    assert "planned" not in follow.calls[0][1]
    fact["torchstack_planned"]["run"] = "an earlier run"
    follow([planned], check_mode=True, task_vars={"ansible_facts": fact})
    assert "planned" not in follow.calls[0][1]
    follow([DONE], task_vars={"ansible_facts": first["ansible_facts"]})
    assert "planned" not in follow.calls[0][1]


CONTEXT = {
    "records": "/r/.torchstack", "toolchain": {"modules": ["gcc/12"], "environment": {"A": "1"}},
    "jobs": {"launcher": "slurm", "options": {"partition": "p"}},
}


def test_the_module_gets_what_the_release_says_of_the_step_instead_of_the_context(follow):
    follow([DONE], name="horovod", context=CONTEXT, environment={"B": "2"})
    ((_time, arguments),) = follow.calls
    assert "context" not in arguments
    assert (arguments["modules"], arguments["environment"]) == (["gcc/12"], {"A": "1", "B": "2"})
    assert (arguments["launcher"], arguments["launcher_options"]) == ("slurm", {"partition": "p"})


def test_a_look_at_the_job_knows_the_launcher_that_the_release_says(follow):
    follow([RUNNING, dict(RUNNING, state="done")], name="horovod", context=CONTEXT)
    assert follow.calls[1][1]["launcher"] == "slurm"


@pytest.mark.parametrize("name", ["context", "compilers"])
def test_what_is_no_mapping_is_refused(follow, name):
    with pytest.raises(AnsibleActionFail, match="build_step: %s is no mapping" % name):
        follow([], **{name: "release_context"})
