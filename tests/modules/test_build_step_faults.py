# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""build_step on bad days of a machine: no space, read-only, lost directories, stray signals, strange names, huge logs.

TORCHSTACK_STEP_ERRORS=all lets controller and supervisor meet every error at every change of a file, once and from
there on (some minutes); otherwise it is a part of them. TORCHSTACK_STEP_FILES is the number of files that a build
leaves in its directory (2000).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import processes
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.files import step_files
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.json_record import read_record
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.status import query
from ansible_collections.hpcml.torchstack.plugins.modules import build_step
from support import faults, step_histories
from support.polling import eventually

ALL = os.environ.get("TORCHSTACK_STEP_ERRORS") == "all"
FILES = int(os.environ.get("TORCHSTACK_STEP_FILES", "2000"))
MEMORY = 200 << 10
"""Kibibytes that a supervisor or a follower may have used at most."""


class Steps:
    """Steps below one directory, run by what the module calls."""

    def __init__(self, state):
        self.state = str(state)
        self.nonces = set()

    def begin(self, script, name="s", **options):
        defaults = {key: spec.get("default") for key, spec in build_step.ARGUMENTS.items()}
        given = {"name": name, "state_dir": self.state, "script": script, "grace": 1, **options}
        try:
            return build_step.present({**defaults, **given}, False, False)
        finally:
            self.remember(name)

    def remember(self, name="s"):
        with contextlib.suppress(StackError, OSError):
            job = self.read("job.json", name)
            self.nonces.update([job["nonce"]] if job else [])
            return job

    def finish(self, name="s"):
        """Follow the running job to its end."""
        return eventually(lambda: self.ended(name), "the end")

    def ended(self, name="s"):
        result = query(step_files(self.state, name), self.read("job.json", name)["nonce"])
        return result if result["state"] != "running" else None

    def run(self, script, name="s", **options):
        result = self.begin(script, name, **options)
        return result if result["state"] != "running" else self.finish(name)

    def read(self, record, name="s"):
        return read_record(os.path.join(self.state, name, record))

    def log(self, name="s"):
        with open(os.path.join(self.state, name, "log"), encoding="utf-8", errors="replace") as stream:
            return stream.read()

    def alive(self, job):
        return processes.is_alive(job["pid"], job["start_time"])

    def stop(self):
        for name in os.listdir(self.state) if os.path.isdir(self.state) else []:
            job = self.remember(name)
            if job and self.alive(job):
                os.kill(job["pid"], signal.SIGKILL)
        for nonce in self.nonces:
            processes.stop_processes(lambda nonce=nonce: processes.job_processes(nonce), 0, lambda: None)


@pytest.fixture(name="steps")
def some_steps(tmp_path):
    steps = Steps(tmp_path / "steps")
    yield steps
    steps.stop()


def failure_of(call):
    with pytest.raises(StackError) as caught:
        call()
    return caught.value.as_result()


# -- errors of the file system ------------------------------------------------------------------------------------

ERRORS = [
    (who, "error:%s%s" % (name, onwards), 1)
    for who in ("controller", "supervisor") for name in ("ENOSPC", "EDQUOT", "EROFS", "EIO", "EINTR")
    for onwards in ("", "+") if name != "EINTR" or not onwards
] if ALL else [
    ("controller", "error:ENOSPC", 6), ("controller", "error:EROFS+", 8), ("supervisor", "error:EDQUOT", 5),
    ("supervisor", "error:EIO+", 6),
]


@pytest.mark.parametrize("who, action, stride", ERRORS, ids=str)
def test_an_error_at_any_change_is_named_and_never_counts_as_done(fault_library, tmp_path, who, action, stride):
    """What failed is named, nothing is left running, and the next run without the fault completes the step."""
    copy = step_histories.copy_collection(tmp_path / "copy")
    environment = dict(os.environ, PYTHONPATH=str(copy))

    def play(first, count, step):
        scratch = tmp_path / ("scratch-%d" % first)
        scratch.mkdir()
        words = [str(scratch), str(fault_library), str(first), str(count), str(step), who, action]
        return subprocess.Popen(
            [sys.executable, step_histories.__file__, *words], env=environment, stdout=subprocess.PIPE, text=True
        )

    count = json.loads(play(0, 1, 1).communicate()[0])["changes"]
    lanes = [play(1 + stride * lane, count + 2 - stride * lane, 3 * stride) for lane in range(3)]
    answers = [json.loads(line) for lane in lanes for line in lane.communicate()[0].splitlines()]
    found = [answer for answer in answers if answer["found"]]
    assert not found, json.dumps(found, indent=1)
    assert len(answers) >= (count + 2) // stride
    assert "EINTR" in action or any(answer["refused"] for answer in answers)


def under(monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_a_heartbeat_that_cannot_be_written_costs_no_build(steps, fault_library, tmp_path, monkeypatch):
    beats = tmp_path / "steps" / "s" / "job.json.next"
    log = tmp_path / "met"
    under(monkeypatch, faults.variables(
        fault_library, "error:ENOSPC", faults.CHANGES, beats, program=".supervisor.zip", log=log
    ))
    assert steps.run("sleep 6; echo done")["state"] == "done"
    assert "job.json.next" in log.read_text()
    assert not beats.exists()


def test_a_disk_that_is_full_for_a_moment_costs_no_build(steps, fault_library, tmp_path, monkeypatch):
    top = tmp_path / "steps" / "s"
    for record in (".exit.", ".stamp.json."):
        with monkeypatch.context() as patch:
            under(patch, faults.variables(
                fault_library, "error:ENOSPC", ("write",), top / record, 1, program=".supervisor.zip"
            ))
            assert steps.run("echo " + record)["state"] == "done"
        assert "trying again" in steps.log()


def test_a_supervisor_that_cannot_record_itself_says_why(steps, fault_library, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        under(patch, faults.variables(
            fault_library, "error:EROFS", faults.CHANGES, tmp_path / "steps", program=".supervisor.zip"
        ))
        refused = failure_of(lambda: steps.run("true"))
    assert refused["failed_step"] == "start"
    assert "Read-only file system" in refused["msg"]
    assert "can write" in refused["msg"]
    assert steps.run("true")["state"] == "done"


def test_a_build_that_could_not_say_how_it_ended_is_told_from_a_killed_one(steps, fault_library, tmp_path):
    """When nothing can be written, the supervisor ends without a record; whoever asks then meets the same."""
    steps.begin("sleep 600")
    job = steps.remember()
    os.kill(job["pid"], signal.SIGKILL)
    eventually(lambda: not steps.alive(job), "the supervisor's end")
    variables = faults.variables(fault_library, "error:EDQUOT", ("write",), tmp_path / "steps", program=sys.executable)
    said, _memory = follower(steps, variables)
    assert "could not be recorded" in said
    assert os.strerror(errno.EDQUOT) in said
    said, _memory = follower(steps)
    assert "was killed" in said


def test_a_read_only_place_is_named_and_nothing_runs(steps, tmp_path):
    if subprocess.run(["unshare", "-rm", "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("this account may not make a mount namespace of its own")
    place = tmp_path / "steps"
    place.mkdir()
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys\n"
        "from ansible_collections.hpcml.torchstack.plugins.modules import build_step\n"
        "sys.argv = ['build_step']\n"
        "import ansible.module_utils.basic as basic, json\n"
        "basic._ANSIBLE_ARGS = json.dumps({'ANSIBLE_MODULE_ARGS': {'name': 's', 'state_dir': %r, 'script': 'true'}})"
        ".encode()\n"
        "basic._ANSIBLE_PROFILE = 'legacy'\n"
        "build_step.main()\n" % str(place)
    )
    mounted = "mount -t tmpfs -o size=64k,ro none '%s' && exec %s %s" % (place, sys.executable, program)
    ended = subprocess.run(
        ["unshare", "-rm", "sh", "-c", mounted], stdout=subprocess.PIPE, text=True, check=False,
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
    )
    answer = json.loads(ended.stdout)
    assert answer["failed"]
    assert "Read-only file system" in answer["msg"]
    assert str(place) in answer["msg"]


# -- what disappears ----------------------------------------------------------------------------------------------


def test_a_build_whose_directory_is_removed_stops_and_says_so(steps, tmp_path):
    steps.begin("sleep 600")
    job = steps.remember()
    shutil.rmtree(str(tmp_path / "steps" / "s"))
    refused = failure_of(lambda: query(step_files(steps.state, "s"), job["nonce"]))
    assert refused["failed_step"] == "follow"
    assert "gone" in refused["msg"]
    eventually(lambda: not steps.alive(job) and not processes.job_processes(job["nonce"]), "the end of the build")
    assert not (tmp_path / "steps" / "s").exists()
    assert steps.run("true")["state"] == "done"


def test_a_build_during_which_its_base_was_built_again_does_not_count(steps, tmp_path):
    gate = tmp_path / "gate"
    waiting = "until test -e '%s'; do sleep 0.02; done" % gate
    steps.run("echo one", "base")
    steps.begin(waiting, "s", needs=["base"])
    eventually(lambda: steps.read("job.json")["child_pid"], "the build runs")
    first = steps.read("stamp.json", "base")
    steps.run("echo two", "base")
    steps.run("echo one", "base")
    assert steps.read("stamp.json", "base")["digest"] == first["digest"]
    gate.write_text("")
    failed = failure_of(steps.finish)
    assert (failed["failed_step"], failed["reason"]) == ("needs", "needs")
    assert "built on base, which was run again" in failed["msg"]
    assert steps.read("stamp.json") is None
    again = steps.run(waiting, "s", needs=["base"])
    assert again["state"] == "done"
    assert "base, which was run again" in again["resumed"]


# -- signals ------------------------------------------------------------------------------------------------------


def test_stray_signals_do_not_end_a_build(steps, tmp_path):
    gate = tmp_path / "gate"
    steps.begin("until test -e '%s'; do sleep 0.02; done" % gate)
    job = steps.remember()
    for name in ("HUP", "USR1", "USR2", "ALRM", "PIPE", "CONT", "WINCH", "CHLD"):
        for _time in range(20):
            os.kill(job["pid"], getattr(signal, "SIG" + name))
    os.kill(job["pid"], signal.SIGSTOP)
    os.kill(job["pid"], signal.SIGCONT)
    gate.write_text("")
    assert steps.finish()["state"] == "done"


@pytest.mark.parametrize("name", ["TERM", "INT", "QUIT"])
def test_a_request_to_stop_is_one_however_it_comes(steps, name):
    steps.begin("sleep 600")
    job = steps.remember()
    os.kill(job["pid"], getattr(signal, "SIG" + name))
    assert failure_of(steps.finish)["reason"] == "stopped"
    assert not processes.job_processes(job["nonce"])


# -- names and sizes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [b"a\nb", b"\xff\xfe", b"tab\t'\"$(id)`id`\\", b"-rf", "für ß".encode()], ids=repr)
def test_directories_of_any_name_hold_a_step(tmp_path, name):
    place = tmp_path / os.fsdecode(name)
    place.mkdir()
    steps = Steps(place)
    try:
        script = "pwd -P > where; ls > /dev/null"
        assert steps.run(script)["state"] == "done"
        where = os.path.join(os.fsencode(str(place)), b"s")
        assert pathlib.Path(os.fsdecode(where), "where").read_bytes() == where + b"\n"
        assert steps.run(script)["state"] == "unchanged"
        by_hand = subprocess.run(steps_by_hand(steps), shell=True, check=False)
        assert by_hand.returncode == 0
    finally:
        steps.stop()


def steps_by_hand(steps):
    return step_files(steps.state, "s").by_hand


@pytest.mark.parametrize("target", ["s", "loop/loop", "nowhere"], ids=["itself", "beyond", "dangling"])
def test_a_link_that_leads_nowhere_is_no_directory_of_a_step(steps, tmp_path, target):
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps" / "loop").symlink_to("loop")
    (tmp_path / "steps" / "s").symlink_to(target)
    with pytest.raises((OSError, StackError)) as caught:
        steps.run("true")
    assert str(tmp_path / "steps" / "s") in str(caught.value)
    assert sorted(path.name for path in (tmp_path / "steps").iterdir()) == ["loop", "s"]


FOLLOWER = """
import sys
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.files import step_files
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.status import query
try:
    result = query(step_files(sys.argv[1], "s"), sys.argv[2])
    print(result["state"])
except Exception as error:
    print(error.message, len(repr(error.as_result())))
print(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
"""


def follower(steps, variables=None):
    """What another query says, and the most memory it used, in kibibytes."""
    job = steps.read("job.json")
    ended = subprocess.run(
        [sys.executable, "-c", FOLLOWER, steps.state, job["nonce"]], stdout=subprocess.PIPE, text=True, check=True,
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), **(variables or {})),
    )
    *said, memory = ended.stdout.splitlines()
    return "\n".join(said), int(memory)


def test_a_huge_log_and_an_endless_line_cost_no_memory(steps, tmp_path):
    gate = tmp_path / "gate"
    steps.begin(
        "truncate -s 1100M log; echo '[1/2] half'; head -c 100000000 /dev/zero | tr '\\0' x; touch ready\n"
        "until test -e '%s'; do sleep 0.05; done; exit 3" % gate
    )
    job = steps.remember()
    eventually((tmp_path / "steps" / "s" / "ready").exists, "the line")
    assert os.path.getsize(os.path.join(steps.state, "s", "log")) > 1 << 30
    said, memory = follower(steps)
    assert (said, memory < MEMORY) == ("running", True)
    # The supervisor looks at the log's size only; it has had a beat or two since.
    with open("/proc/%d/status" % job["pid"], encoding="ascii") as stream:
        assert int(stream.read().partition("VmHWM:")[2].split()[0]) < MEMORY
    gate.write_text("")
    failed = failure_of(steps.finish)
    assert (failed["exit_code"], len(failed["log_tail"]) <= 30) == (3, True)
    assert max(len(line) for line in failed["log_tail"]) <= 500
    said, memory = follower(steps)
    assert "failed with exit code 3" in said
    assert int(said.split()[-1]) < 60000
    assert memory < MEMORY


def test_nothing_walks_the_directory_of_a_build(steps, fault_library, tmp_path, monkeypatch):
    tree = tmp_path / "tree"
    tree.mkdir()
    log = tmp_path / "listed"
    under(monkeypatch, faults.variables(
        fault_library, "none", ("list", "next", "stat", "open"), tree, program=".supervisor.zip", log=log
    ))
    script = "mkdir d; cd d; seq %d | xargs touch; cd ..; touch made" % FILES
    done = steps.run(script, chdir=str(tree), creates=["made"])
    assert done["state"] == "done"
    assert len(os.listdir(str(tree / "d"))) == FILES
    assert {line.split(" ", 1)[1] for line in log.read_text().splitlines()} <= {str(tree / "made")}


# -- secrets ------------------------------------------------------------------------------------------------------


def test_a_secret_that_everybody_could_read_of_a_job_is_refused_before_anything_is_written(steps, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "0123456789")
    failed = failure_of(lambda: steps.begin("true", secrets=["HF_TOKEN"], launcher="pbs"))
    assert failed["failed_step"] == "options" and "everybody may read the environment of a PBS job" in failed["msg"]
    assert not os.path.exists(steps.state)


def test_a_build_that_prints_a_lot_is_masked_to_its_last_line_and_ends_with_its_own_exit_code(steps, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "0123456789")
    line = "word=word; yes \"X=1 https://me:$word@host/ and $HF_TOKEN\" | head -n 50000 || true"
    failed = failure_of(lambda: steps.run(line + "; echo \"$HF_TOKEN done\"; exit 7", secrets=["HF_TOKEN"]))
    assert failed["exit_code"] == 7
    log = steps.log()
    assert log.count("X=1 https://***@host/ and ***\n") == 50000 and "*** done\n" in log
