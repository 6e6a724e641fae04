# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""build_step as it is followed: huge and binary logs, shared file systems that show things late, clocks hours apart.

TORCHSTACK_FOLLOW_SECONDS=120 (60 at least) makes the first test follow its build for so long, and judge the processor
time of the controller's worker and of all its polls; without it that test ends as soon as it has seen what it wants.
How often a follower looks, and how often it asks a scheduler, is counted in the unit tests of follow.py, on a clock
that passes only when somebody sleeps.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import processes
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.clock import seconds_of
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.follow import Follow
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.json_record import read_record
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.poll import parse_snapshot, poll_command
from support import step_histories
from support.polling import eventually

SECONDS = float(os.environ.get("TORCHSTACK_FOLLOW_SECONDS", "0"))
MEMORY = 200 << 10
"""Kibibytes that a process may have used at most."""

CORE = 0.01
"""Share of a processor core that following may cost."""


# -- a huge log, through Ansible -----------------------------------------------------------------------------------

HUGE = """
truncate -s 512M log
head -c 20000000 /dev/urandom | tr -d '\\n\\r'
until test -e '{gate}'; do printf '\\n[3/4] CXX '; head -c 9000 /dev/urandom; sleep 0.2; done
"""


def processor_seconds(pid):
    """User and system time of a process, and of its children that have ended."""
    with open("/proc/%d/stat" % pid, "rb") as stream:
        fields = stream.read().rpartition(b")")[2].split()
    return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def most_memory(pid):
    with open("/proc/%d/status" % pid, encoding="ascii") as stream:
        return int(stream.read().partition("VmHWM:")[2].split()[0])


def test_a_huge_binary_log_is_followed_rightly_and_for_next_to_nothing(ansible_environment, tmp_path):
    """The worker of a real ansible-playbook: what it shows, the most memory it had, and its processor time."""
    gate, book, shown = tmp_path / "gate", tmp_path / "play.yml", tmp_path / "shown"
    options = {"name": "s", "state_dir": str(tmp_path / "steps"), "script": HUGE.format(gate=gate), "grace": 1}
    play = {"hosts": "localhost", "gather_facts": False, "connection": "local"}
    book.write_text(json.dumps([dict(play, tasks=[{"hpcml.torchstack.build_step": options}])]))
    command = [os.path.join(os.path.dirname(sys.executable), "ansible-playbook"), str(book)]
    # Ansible leaves it to Python when what it prints comes to a file: at the end, if nobody says otherwise.
    environment = dict(ansible_environment, PYTHONUNBUFFERED="1")
    with open(str(shown), "wb") as output:
        controller = subprocess.Popen(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        eventually(lambda: b"s  [3/4]  75 %" in shown.read_bytes(), "progress is shown")
        (worker,) = [process.pid for process in processes.own_processes() if process.parent == controller.pid]
        spent, began = processor_seconds(worker), time.monotonic()
        eventually(lambda: time.monotonic() - began >= SECONDS, "the time to measure", SECONDS + 60)
        share = (processor_seconds(worker) - spent) / max(1.0, time.monotonic() - began)
        memory = most_memory(worker)
        gate.write_text("")
        assert controller.wait(300) == 0, shown.read_text()
    finally:
        gate.write_text("")
        controller.kill()
        controller.wait()
    assert os.path.getsize(str(tmp_path / "steps" / "s" / "log")) > 1 << 29
    assert memory < MEMORY
    print("%.3f %% of a core, %d MiB" % (100 * share, memory >> 10))
    assert not SECONDS or share < CORE


def test_a_worker_leaves_with_its_controller_whatever_its_task_weighs(ansible_environment, tmp_path):
    """What a worker sends of its task is larger than a pipe where the context has a release with all its hashes."""
    gate, book = tmp_path / "gate", tmp_path / "play.yml"
    script = "until test -e '%s'; do sleep 0.2; done" % gate
    options = {"name": "s", "state_dir": str(tmp_path / "steps"), "script": script, "grace": 1,
               "context": {"definition": {"hashes": ["%064x" % number for number in range(4096)]}}}
    play = {"hosts": "localhost", "gather_facts": False, "connection": "local"}
    book.write_text(json.dumps([dict(play, tasks=[{"hpcml.torchstack.build_step": options}])]))
    command = [os.path.join(os.path.dirname(sys.executable), "ansible-playbook"), str(book)]
    controller = subprocess.Popen(
        command, env=ansible_environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        eventually((tmp_path / "steps" / "s" / "job.json").exists, "the step has begun")
        (worker,) = [process for process in processes.own_processes() if process.parent == controller.pid]
        controller.kill()
        controller.wait()
        eventually(lambda: (seen := processes.read_process(worker.pid)) is None
                   or seen.start_time != worker.start_time, "the worker leaves")
    finally:
        gate.write_text("")
        controller.kill()
        controller.wait()


# -- a shared file system ------------------------------------------------------------------------------------------


class Remote:
    """A step that is built on another node, as that node sees it, and a view of it that comes late."""

    def __init__(self, place: pathlib.Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.real, self.view = place / "real", place / "view"
        for directory in (self.real, self.view):
            directory.mkdir(parents=True)
        self.older = b"==== attempt 1  x\n[9/9] old\n" * self.random.randrange(1, 3)
        self.states: list[tuple[dict, bytes]] = []
        self.job = {
            "boot_id": "b", "digest": "d", "heartbeat": "h0", "host": "nid001", "launcher": "slurm",
            "log_offset": len(self.older), "nonce": "n", "phase": "running", "pid": 7,
            "started": "2026-11-20T00:00:00Z",
        }
        self.log = self.older
        self.keep()
        self.log += b"==== attempt 2  x\n"
        self.percent = 0
        self.printed: set[int] = set()

    def keep(self) -> None:
        self.states.append((dict(self.job), self.log))

    def work(self) -> None:
        """Print something, and beat."""
        self.job["heartbeat"] = "h%d" % len(self.states)
        self.log += self.random.choice((b"", b"warning\n", os.urandom(50) + b"\n", b"x" * 20000 + b"\n"))
        if self.random.random() < 0.7:
            self.percent = min(100, self.percent + self.random.randrange(9))
            self.printed.add(self.percent)
            self.log += b"[%3d%%] CXX\n" % self.percent
        self.keep()

    def show(self) -> None:
        """What the looker's client shows: each file from a moment of its own, the log sometimes cut or not at all."""
        job = self.random.choice(self.states[-4:])[0]
        log = self.random.choice(self.states[-self.random.choice((1, 1, 1, 4, 40)):])[1]
        if self.random.random() < 0.2:
            log = log[: self.random.randrange(len(log) + 1)]
        (self.view / "job.json").write_text(json.dumps(job))
        with contextlib.suppress(FileNotFoundError):
            (self.view / "log").unlink()
        if self.random.random() < 0.9:
            (self.view / "log").write_bytes(log)


def look(follow, directory, now):
    """Poll by a real shell.

    Returns:
        Whether the module has to look.
    """
    command = ["/bin/sh", "-c", poll_command(str(directory), follow.log_start)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return follow.see(parse_snapshot(ended.stdout.decode("utf-8", "surrogateescape"), "n"), now)


@pytest.mark.parametrize("seed", range(5))
def test_progress_stays_right_when_the_file_system_shows_the_log_late(tmp_path, seed):
    """Never a mark of an older attempt, none that was not printed, never back; and in the end the last one."""
    remote = Remote(tmp_path, seed)
    first = {
        "step": "s", "nonce": "n", "host": "nid001", "pid": 7, "log": str(remote.view / "log"), "seconds": 0.0,
        "progress": {"text": "s"}, "state": "running",
    }
    follow, last = Follow(first, 0.0), 0
    for second in range(60):
        remote.work()
        remote.show()
        look(follow, remote.view, float(second))
        percent = follow.progress.get("percent", 0)
        assert percent == 0 or percent in remote.printed
        assert percent >= last
        last = percent
    (remote.view / "job.json").write_text(json.dumps(remote.job))
    (remote.view / "log").write_bytes(remote.log)
    look(follow, remote.view, 61.0)
    assert follow.progress.get("percent", 0) == remote.percent


# -- clocks --------------------------------------------------------------------------------------------------------

NODE = """place = here()._replace(host="nid001", boot_id="another")"""
SHIFTED = """import signal
import time as node_time
import types

time = types.SimpleNamespace(
    time=lambda: node_time.time() + %d, monotonic=node_time.monotonic, sleep=node_time.sleep
)
"""

FOLLOWER = """
import json, sys, time
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.files import step_files
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.status import query
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.modules import build_step
words = json.loads(sys.argv[1])
defaults = {key: spec.get("default") for key, spec in build_step.ARGUMENTS.items()}
try:
    if "nonce" in words:
        result = query(step_files(words["state_dir"], "s"), words["nonce"], words["unchanged"])
    else:
        result = build_step.present({**defaults, "name": "s", "grace": 1, **words}, False, False)
except StackError as error:
    result = dict(error.as_result(), failed=True)
print(json.dumps(result))
print(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
"""


class FarNode:
    """A step whose supervisor believes to be on another node, with a clock of its own."""

    def __init__(self, place: pathlib.Path, hours: int) -> None:
        self.state, self.gate = place / "steps", place / "gate"
        self.copy = step_histories.copy_collection(
            place / "copy", ("steps/supervised_job", "place = here()", NODE),
            ("steps/supervised_job", "import signal\nimport time\n", SHIFTED % (3600 * hours)),
            ("steps/supervisor", "import signal\nimport time\n", SHIFTED % (3600 * hours)),
            ("steps/job_state", "BRIEF_WATCH_SECONDS = 3 *", "BRIEF_WATCH_SECONDS = 80 *"),
        )
        self.script = "until test -e '%s'; do echo '[1/2] CXX'; sleep 0.1; done" % self.gate

    def ask(self, **words):
        """What the module says, in a process of its own; and the memory that it took."""
        ended = subprocess.run(
            [sys.executable, "-c", FOLLOWER, json.dumps(dict(words, state_dir=str(self.state)))],
            env=dict(os.environ, PYTHONPATH=str(self.copy)), stdout=subprocess.PIPE, check=True, text=True,
        )
        said, memory = ended.stdout.splitlines()
        assert int(memory) < MEMORY
        return json.loads(said)

    def begin(self):
        return self.ask(script=self.script)

    @property
    def job(self):
        return read_record(str(self.state / "s" / "job.json"))

    def kill(self):
        """What a node does that fails: supervisor and script are gone, and nothing is recorded."""
        job = self.job
        for process in [*processes.job_processes(job["nonce"]), *processes.own_processes()]:
            if process.pid == job["pid"] or process.pid == job["child_pid"]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
        processes.stop_processes(lambda: processes.job_processes(job["nonce"]), 0, lambda: None)


@pytest.fixture(name="far")
def far_node(tmp_path):
    nodes = []

    def make(hours):
        nodes.append(FarNode(tmp_path, hours))
        return nodes[-1]

    yield make
    for node in nodes:
        node.gate.write_text("")
        if node.job:
            node.kill()


@pytest.mark.parametrize("hours", [-9, 9])
def test_a_node_whose_clock_is_hours_off_is_followed_while_it_lives_and_not_longer(far, hours):
    node = far(hours)
    first = node.begin()
    assert (first["state"], first["host"]) == ("running", "nid001")
    job = eventually(lambda: node.job if node.job["child_pid"] else None, "the script runs")
    assert abs(seconds_of(job["heartbeat"]) - time.time()) > 8 * 3600, "the clock of the node is another one"
    again = node.begin()
    assert (again["state"], again["attached"]) == ("running", True), "its heartbeat changes while somebody looks"
    assert again["seconds"] < 600, "by the node's own clock"
    seen = node.ask(nonce=first["nonce"], unchanged=7.0)
    assert (seen["state"], seen["progress"]["percent"]) == ("running", 50)
    node.kill()
    # The record says the same as before; nothing but its change tells a live one.
    assert node.ask(nonce=first["nonce"], unchanged=7.0)["state"] == "running", "nobody has waited long enough"
    for refused in (node.ask(nonce=first["nonce"], unchanged=301.0), node.begin()):
        assert refused["failed"]
        assert "belongs to a build on host nid001" in refused["msg"]
