# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""build_step when things go wrong: killed controllers, scripts and supervisors, reboots, other hosts, hangs, races.

Most tests call what the module calls (start.begin, status.query), each call as short as the module's own; the
supervisor is the real one, detached. Where the controller matters, a real ansible-playbook is started and killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import processes
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.canonical import digest_of
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.clock import utc
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps import launcher_local
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.attempt import Order
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.inputs import step_facts
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.job_state import SILENT_SECONDS
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.json_record import read_record
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.records import Limits
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.request import check_request
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.start import begin
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.status import query
from support.polling import eventually


class Step:
    """A step below a directory whose name needs quoting."""

    def __init__(self, top):
        self.state = top / "it's \"the\" $steps"
        self.directory = self.state / "s"
        self.nonces = set()

    def begin(self, script, limits=None, **options):
        params = dict({"name": "s", "state_dir": str(self.state), "script": script}, **options)
        request = check_request(params)
        limits = Limits(**dict({"grace": 2}, **(limits or {})))
        digest = digest_of(step_facts(request, {}))
        try:
            result = begin(request, Order(digest, {}, limits=limits))
        finally:
            job = self.job
            self.nonces.update([job["nonce"]] if job else [])
        return dict({"attached": False, "resumed": None}, **result)

    @property
    def files(self):
        return check_request({"name": "s", "state_dir": str(self.state), "script": ""}).files

    def look(self):
        return query(self.files, self.job["nonce"])

    def finish(self, seconds=120.0):
        """Follow the running job to its end, as the action plugin does."""
        deadline = time.monotonic() + seconds
        while True:
            result = self.look()
            if result["state"] != "running":
                return result
            assert time.monotonic() < deadline, "the step does not end"
            time.sleep(0.02)

    def read(self, name):
        return read_record(str(self.directory / name))

    @property
    def job(self):
        return self.read("job.json")

    @property
    def log(self):
        return (self.directory / "log").read_text()

    def edit_job(self, **changes):
        (self.directory / "job.json").write_text(json.dumps(dict(self.job, **changes)))

    def supervisors(self):
        """Living supervisors of this step; a child that is about to become the script looks like one for a moment."""
        found = named(str(self.directory / ".supervisor.zip"))
        parents = {pid: getattr(processes.read_process(pid), "parent", None) for pid in found}
        living = [pid for pid in found if parents[pid] not in found]
        # A process that is killed loses its command line before it ends.
        job = self.job or {}
        if job.get("pid") not in living and processes.is_alive(job.get("pid"), job.get("start_time")):
            living.append(job["pid"])
        return living

    def members(self):
        """Living processes of the last job."""
        return [process.pid for process in processes.job_processes(self.job["nonce"])]

    def stop(self):
        """Leave nothing behind, whatever a test did."""
        for pid in self.supervisors():
            kill(pid)
        for nonce in self.nonces:
            processes.stop_processes(lambda nonce=nonce: processes.job_processes(nonce), 0, lambda: None)


def full_command(pid):
    with contextlib.suppress(OSError), open("/proc/%d/cmdline" % pid, "rb") as stream:
        return stream.read().replace(b"\0", b" ").decode("utf-8", "replace")
    return ""


def named(part):
    """Our processes whose command line contains ``part``."""
    return [process.pid for process in processes.own_processes() if part in full_command(process.pid)]


def kill(pid, signum=signal.SIGKILL):
    with contextlib.suppress(ProcessLookupError, TypeError):
        os.kill(pid, signum)


@pytest.fixture(name="step")
def one_step(tmp_path):
    step = Step(tmp_path)
    yield step
    step.stop()


def failure_of(call):
    with pytest.raises(StackError) as caught:
        call()
    return caught.value.as_result()


GATED = """
exec 9>> '{top}/exclusive'
flock -n 9 || {{ echo two at once >> '{top}/violations'; exit 9; }}
echo run >> '{top}/runs'
n=0
until test -e '{top}/gate'; do n=$((n+1)); echo "[$n/999] waiting"; sleep 0.05; done
touch '{top}/artefact'
"""


@pytest.fixture(name="gated")
def gated_step(step, tmp_path):
    """A step that runs until the gate opens, and notices a second one beside it."""
    step.top = tmp_path
    step.options = {"script": GATED.format(top=tmp_path), "creates": [str(tmp_path / "artefact")]}
    step.open = lambda: (tmp_path / "gate").write_text("")
    step.runs = lambda: (tmp_path / "runs").read_text().count("run") if (tmp_path / "runs").exists() else 0
    yield step
    assert not (tmp_path / "violations").exists(), "two jobs of one step at once"


def started(gated, **options):
    result = gated.begin(**dict(gated.options, **options))
    assert result["state"] == "running"
    eventually(lambda: gated.runs() and gated.job["child_pid"], "the script runs")
    return result


# -- the plain course ---------------------------------------------------------------------------------------------


def test_a_running_build_is_attached_to_and_reports_progress(gated):
    started(gated)
    seen = gated.begin(**gated.options)
    assert (seen["state"], seen["attached"]) == ("running", True)
    eventually(lambda: gated.look()["progress"].get("total") == 999, "progress")
    assert gated.look()["progress"]["text"].startswith("s  [")
    gated.open()
    done = gated.finish()
    assert (done["state"], done["changed"]) == ("done", True)
    assert gated.begin(**gated.options)["state"] == "unchanged"
    assert gated.runs() == 1


def test_the_supervisor_holds_on_to_nothing_of_its_starter(gated):
    started(gated)
    pid = gated.job["pid"]
    targets = {os.readlink("/proc/%d/fd/%s" % (pid, name)) for name in os.listdir("/proc/%d/fd" % pid)}
    script = [os.readlink("/proc/%d/fd/%s" % (gated.job["child_pid"], n)) for n in ("0", "1", "2")]
    assert script[0] == "/dev/null" and script[1] == script[2], "what it prints passes through its supervisor"
    allowed = {"/dev/null", script[1], str(gated.directory / "log"), str(gated.directory / ".lock")}
    assert targets <= allowed, "another pipe, a socket or a terminal would keep ssh waiting"
    process = processes.read_process(pid)
    assert process.session == pid
    assert processes.read_process(gated.job["child_pid"]).session == gated.job["child_pid"] != pid
    assert os.readlink("/proc/%d/cwd" % pid) == "/"


def test_the_supervisor_costs_next_to_nothing(gated):
    started(gated)

    def ticks():
        with open("/proc/%d/stat" % gated.job["pid"], "rb") as stream:
            fields = stream.read().rpartition(b")")[2].split()
        return int(fields[11]) + int(fields[12])

    before, began = ticks(), time.monotonic()
    eventually(lambda: time.monotonic() - began > 2, "two seconds")
    assert (ticks() - before) / os.sysconf("SC_CLK_TCK") < 0.1


def test_the_heartbeat_beats(gated):
    started(gated)
    first = gated.job["heartbeat"]
    eventually(lambda: gated.job["heartbeat"] != first, "a heartbeat")
    assert gated.job["nonce"] in gated.nonces


def test_other_inputs_never_start_a_second_build(gated):
    started(gated)
    before = gated.job
    refused = failure_of(lambda: gated.begin(**dict(gated.options, inputs={"commit": "other"})))
    assert refused["failed_step"] == "start"
    assert "kill %d" % before["pid"] in refused["msg"]
    assert gated.job["nonce"] == before["nonce"]
    assert gated.read("inputs.json")["digest"] == before["digest"]
    assert gated.runs() == 1


def test_what_the_script_leaves_running_is_stopped_before_the_stamp(step, tmp_path):
    step.begin("(trap '' HUP; exec setsid sleep 4711) & echo $! > '%s'" % (tmp_path / "pid"))
    step.finish()
    assert not processes.is_alive(*identity(int((tmp_path / "pid").read_text())))
    assert step.members() == []
    assert "left running" in step.log


def identity(pid):
    process = processes.read_process(pid)
    return (pid, process.start_time if process else None)


def test_a_build_that_cannot_leave_the_login_session_runs_inside_it(step, monkeypatch):
    monkeypatch.setattr(launcher_local, "outlive_the_login", lambda nonce: (["false"], ["linger"]))
    result = step.begin("echo hi")
    assert result["state"] == "done"
    assert result["warnings"][0] == "linger"
    assert "it runs inside" in result["warnings"][1]
    monkeypatch.setattr(launcher_local, "outlive_the_login", lambda nonce: (["env"], []))
    assert step.begin("echo hi again")["warnings"] == []


def test_a_supervisor_that_does_not_start_is_an_error_and_no_obstacle(step, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/bin/false")
        refused = failure_of(lambda: step.begin("true"))
    assert refused["failed_step"] == "start"
    assert "did not start" in refused["msg"]
    again = step.begin("true")
    assert again["state"] == "done"
    assert "did not start" in again["resumed"]


# -- limits -------------------------------------------------------------------------------------------------------


def test_the_time_limit_stops_everything_however_it_hides(step, tmp_path):
    script = """
    env -i setsid bash -c 'trap "" TERM; echo $$ > "%s"; while :; do sleep 0.1; done' &
    (env -i setsid sleep 4712 &)
    while :; do echo busy; sleep 0.1; done
    """ % (tmp_path / "hidden")
    step.begin(script, {"timeout": 3.0, "grace": 0.5})
    failed = failure_of(step.finish)
    assert failed["reason"] == "timeout"
    assert "after 3 s (timeout)" in failed["msg"]
    assert not processes.is_alive(*identity(int((tmp_path / "hidden").read_text())))
    assert not named("sleep 4712")
    assert "sleep 4712" in step.log, "the log says what was running"
    assert step.read("exit")["reason"] == "timeout"


def test_a_step_that_prints_is_not_silent(step):
    step.begin("for i in $(seq 30); do echo $i; sleep 0.2; done", {"no_output_timeout": 5.0})
    assert step.finish()["state"] == "done"


HANGING = """
import faulthandler, signal, sys, time
faulthandler.register(signal.SIGUSR1)
def hang_here():
    open("hangs", "w").close()
    time.sleep(60)
hang_here()
"""

WITHOUT_HANDLER = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda number, frame: (open(sys.argv[1], "w").write("asked"), sys.exit(0)))
open("waits", "w").close()
time.sleep(60)
"""


def test_s32_a_silent_step_is_stopped_with_the_stacks_of_its_python_processes(step, tmp_path):
    (tmp_path / "hang.py").write_text(HANGING)
    (tmp_path / "plain.py").write_text(WITHOUT_HANDLER)
    tool = tmp_path / "bin" / "py-spy"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho py-spy was given $*\n")
    tool.chmod(0o755)
    script = "%s hang.py & %s plain.py asked &\n" % (sys.executable, sys.executable)
    script += "until test -e hangs && test -e waits; do echo starts; sleep 0.1; done; wait"
    previous = os.environ["PATH"]
    os.environ["PATH"] = "%s:%s" % (tool.parent, previous)
    try:
        step.begin(script, {"no_output_timeout": 3.0}, chdir=str(tmp_path))
    finally:
        os.environ["PATH"] = previous
    failed = failure_of(step.finish)
    assert failed["reason"] == "no_output_timeout"
    assert "printed nothing for 3 s" in failed["msg"]
    assert "in hang_here" in step.log
    assert "py-spy was given dump --pid" in step.log
    assert (tmp_path / "asked").read_text() == "asked", "SIGUSR1 would have killed it before SIGTERM came"
    assert step.members() == []


def test_a_request_to_stop_ends_the_build_and_says_so(gated):
    started(gated)
    kill(gated.job["pid"], signal.SIGTERM)
    failed = failure_of(gated.finish)
    assert (failed["reason"], failed["attempt"]) == ("stopped", 1)
    assert gated.members() == []
    gated.open()
    assert "stopped" in gated.begin(**gated.options)["resumed"]


# -- killed -------------------------------------------------------------------------------------------------------


def test_a_killed_script_is_a_failure_and_the_next_run_resumes(gated):
    started(gated)
    kill(gated.job["child_pid"])
    failed = failure_of(gated.finish)
    assert (failed["reason"], failed["failed_step"]) == ("signal", "run")
    assert "signal 9" in failed["msg"]
    assert gated.members() == []
    gated.open()
    again = gated.begin(**gated.options)
    assert "ended by signal 9" in again["resumed"]
    assert gated.finish()["state"] == "done"
    assert gated.runs() == 2


def test_a_killed_supervisor_leaves_no_second_build(gated):
    # One that prints ends with its supervisor, which writes its log.
    gated.options["script"] = gated.options["script"].replace("echo \"[$n/999] waiting\"; ", "")
    started(gated)
    kill(gated.job["pid"])
    eventually(lambda: not gated.supervisors(), "the supervisor's end")
    assert gated.members(), "the script goes on"
    failed = failure_of(gated.look)
    assert failed["reason"] == "killed"
    left = gated.members()
    again = gated.begin(**gated.options)
    assert "what was left of it was stopped" in again["resumed"]
    assert not [pid for pid in left if processes.read_process(pid) and not processes.read_process(pid).ended]
    gated.open()
    assert gated.finish()["state"] == "done"
    assert gated.runs() == 2


def test_a_killed_supervisor_and_script_are_resumed(gated):
    started(gated)
    job = gated.job
    kill(job["pid"], signal.SIGSTOP)
    kill(job["child_pid"])
    kill(job["pid"])
    eventually(lambda: not gated.supervisors(), "the supervisor's end")
    assert failure_of(gated.look)["reason"] == "killed"
    again = gated.begin(**gated.options)
    assert "resumed" in again["resumed"]
    gated.open()
    assert gated.finish()["state"] == "done"


def test_a_build_that_ended_well_without_its_supervisor_runs_again(gated):
    """Nobody knows how a script ended whose supervisor was dead: it is not stamped."""
    # A script that prints is ended by its next line, as nobody reads it any more.
    gated.options["script"] = gated.options["script"].replace('echo "[$n/999] waiting"; ', "")
    assert "waiting" not in gated.options["script"]
    started(gated)
    kill(gated.job["pid"])
    gated.open()
    eventually(lambda: not gated.members(), "the script's end")
    assert (gated.top / "artefact").exists()
    again = gated.begin(**gated.options)
    assert "was killed" in again["resumed"]
    assert gated.finish()["state"] == "done"
    assert gated.runs() == 2


def test_a_failure_that_nobody_saw_is_told_by_the_next_run(step, tmp_path):
    script = "sleep 0.7; test -e '%s' || exit 5" % (tmp_path / "fixed")
    assert step.begin(script)["state"] == "running"
    eventually(lambda: step.read("exit"), "the end")
    (tmp_path / "fixed").write_text("")
    assert step.begin(script)["resumed"] == "the last attempt failed: step s failed with exit code 5"
    assert step.finish()["state"] == "done"


def test_a_reboot_is_told_apart_and_resumed(gated):
    started(gated)
    kill(gated.job["pid"])
    for pid in gated.members():
        kill(pid)
    eventually(lambda: not gated.members(), "the end of all")
    gated.edit_job(boot_id="00000000-0000-0000-0000-000000000000")
    assert failure_of(gated.look)["reason"] == "rebooted"
    again = gated.begin(**gated.options)
    assert again["resumed"].startswith("the machine rebooted while s was running")
    gated.open()
    assert gated.finish()["state"] == "done"


def test_a_recycled_process_id_is_not_our_build(gated):
    started(gated)
    kill(gated.job["pid"])
    for pid in gated.members():
        kill(pid)
    eventually(lambda: not gated.members(), "the end of all")
    stranger = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        gated.edit_job(pid=stranger.pid, child_pid=stranger.pid)
        again = gated.begin(**gated.options)
        assert "was killed" in again["resumed"]
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


# -- other hosts --------------------------------------------------------------------------------------------------


def test_a_build_of_another_host_is_followed_by_its_heartbeat(gated, monkeypatch):
    monkeypatch.setattr(launcher_local, "BRIEF_WATCH_SECONDS", 0.5)
    started(gated)
    supervisor = gated.job["pid"]
    kill(supervisor, signal.SIGSTOP)
    gated.edit_job(host="login02", boot_id="elsewhere", heartbeat=utc(time.time()))
    seen = gated.begin(**gated.options)
    assert (seen["state"], seen["attached"], seen["host"]) == ("running", True, "login02")
    assert "login02" in failure_of(lambda: gated.begin(**dict(gated.options, inputs=1)))["msg"]
    gated.edit_job(heartbeat=utc(time.time() - SILENT_SECONDS - 5))
    for call in (gated.look, lambda: gated.begin(**gated.options)):
        refused = failure_of(call)
        assert "login02" in refused["msg"]
        assert str(gated.directory / "job.json") in refused["msg"]
    assert gated.runs() == 1


def test_a_build_whose_job_was_given_away_stops_itself(gated):
    """What the message about a silent host tells the operator to do is safe if that host comes back."""
    started(gated)
    nonce = gated.job["nonce"]
    os.unlink(str(gated.directory / "job.json"))
    eventually(lambda: not gated.supervisors() and not processes.job_processes(nonce), "the end of the build")
    assert not (gated.directory / "exit").exists()
    assert not (gated.directory / "stamp.json").exists()


# -- the stamp is never early -------------------------------------------------------------------------------------


def watch_for_an_early_stamp(step, tmp_path):
    """Run a step to its end and fail if at any moment there is a stamp without the script's last word."""
    last = tmp_path / "last word"
    script = "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.1; done; touch '%s'" % last
    step.begin(script, creates=[str(last)])
    stamp, deadline = step.directory / "stamp.json", time.monotonic() + 120
    while True:
        running = bool(step.supervisors())
        if stamp.exists():
            assert last.exists(), "the stamp came before the script's end"
            assert step.read("exit")["reason"] == "done"
            return
        assert running and time.monotonic() < deadline, "no stamp at all"


def test_the_stamp_is_never_early(step, tmp_path):
    watch_for_an_early_stamp(step, tmp_path)


def test_an_early_stamp_would_be_noticed(step, tmp_path, monkeypatch):
    """The same with a fault planted in the supervisor, to show that the watcher watches."""
    from ansible_collections.hpcml.torchstack.plugins.module_utils.steps import supervisor

    loader, real = supervisor.__spec__.loader, supervisor.__spec__.loader.get_source
    right = "            outcome = self.attempt()\n"
    early = "stamp_of(self.job, Outcome('done'), '', None)._asdict()"
    wrong = "            self.keep(self.files.stamp, %s, 0)\n" % early + right

    def faulty(name):
        text = real(name)
        if name.endswith(".supervisor"):
            assert right in text
            return text.replace(right, wrong)
        return text

    monkeypatch.setattr(loader, "get_source", faulty)
    with pytest.raises(AssertionError, match="before the script's end"):
        watch_for_an_early_stamp(step, tmp_path)


# -- several controllers ------------------------------------------------------------------------------------------

STARTER = """
import json, sys, time
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.attempt import Order
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.inputs import step_facts
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.records import Limits
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.request import check_request
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.start import begin
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.canonical import digest_of
state, script, moment = sys.argv[1], sys.argv[2], float(sys.argv[3])
request = check_request({"name": "s", "state_dir": state, "script": script})
while time.time() < moment:
    pass
result = begin(request, Order(digest_of(step_facts(request, {})), {}, limits=Limits(grace=2)))
print(json.dumps([result["state"], bool(result.get("attached"))]))
"""


def test_controllers_that_start_at_the_same_moment_start_one_job(gated):
    script = gated.options["script"]
    moment = str(time.time() + 1.5)
    starters = [
        subprocess.Popen(
            [sys.executable, "-c", STARTER, str(gated.state), script, moment], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
        )
        for _number in range(4)
    ]
    answers = []
    for starter in starters:
        output, errors = starter.communicate(timeout=300)
        assert starter.returncode == 0, errors.decode()
        answers.append(tuple(json.loads(output.decode())))
    gated.nonces.add(gated.job["nonce"])
    assert sorted(answers) == [("running", False)] + [("running", True)] * 3
    assert gated.runs() == 1
    assert len(gated.supervisors()) == 1
    assert not (gated.directory / ".starting").exists()


# -- killed controllers -------------------------------------------------------------------------------------------


@pytest.fixture(name="playbook")
def one_playbook(gated, ansible_environment, tmp_path):
    """Start ansible-playbook with the gated step; ``playbook()`` returns the process."""
    book = tmp_path / "under-fire-play.yml"
    task = {"hpcml.torchstack.build_step": dict(gated.options, name="s", state_dir=str(gated.state))}
    book.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "connection": "local", "tasks": [task]}]))
    running = []

    def start(**environment):
        process = subprocess.Popen(
            [os.path.join(os.path.dirname(sys.executable), "ansible-playbook"), str(book), "-v"],
            env=dict(ansible_environment, **environment), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        running.append(process)
        return process

    def leftovers():
        return named(str(book)) + looking()

    def looking():
        home = ansible_environment["ANSIBLE_HOME"]
        commands = [full_command(pid) for pid in named("AnsiballZ_build_step")]
        return [command for command in commands if command.startswith(sys.executable) and home in command]

    start.leftovers, start.looking = leftovers, looking
    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()
    eventually(lambda: not leftovers(), "the end of all controllers")


def answer_of(process):
    output = process.communicate(timeout=300)[0].decode()
    assert process.returncode == 0, output
    return json.loads(output.split("localhost] => ")[1].split("\n")[0])


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM], ids=lambda value: value.name)
def test_the_build_goes_on_without_its_controller_and_the_next_run_attaches(playbook, gated, signum):
    controller = playbook()
    eventually(gated.runs, "the script runs")
    eventually(lambda: gated.job["phase"] == "running", "the record")
    gated.nonces.add(gated.job["nonce"])
    # Once the call that started it has ended, the controller only polls the records.
    eventually(lambda: not playbook.looking(), "the end of the first call")
    before = gated.job
    controller.send_signal(signum)
    controller.communicate(timeout=300)
    eventually(lambda: not playbook.leftovers(), "the end of the controller's processes")
    assert processes.is_alive(before["pid"], before["start_time"])
    grown = len(gated.log)
    eventually(lambda: len(gated.log) > grown, "the build goes on")
    second = playbook()
    eventually(playbook.looking, "the second controller's first call")
    eventually(lambda: not playbook.looking(), "its end")
    gated.open()
    answer = answer_of(second)
    assert (answer["changed"], answer["state"], answer["attached"]) == (True, "done", True)
    assert gated.runs() == 1


def test_a_pipelined_module_lets_go_of_its_build_too(playbook, gated):
    controller = playbook(ANSIBLE_PIPELINING="True")
    gated.nonces.add(eventually(lambda: gated.job, "the record")["nonce"])
    eventually(gated.runs, "the script runs")
    eventually(lambda: len(gated.log) > 500, "some output")
    assert controller.poll() is None
    gated.open()
    answer = answer_of(controller)
    assert (answer["state"], answer["attached"]) == ("done", False)


def test_two_playbooks_at_once_run_one_build(playbook, gated):
    controllers = [playbook(), playbook()]
    eventually(gated.runs, "the script runs")
    gated.nonces.add(eventually(lambda: gated.job, "the record")["nonce"])
    seen = set()
    eventually(lambda: seen.update(looking := playbook.looking()) or (len(seen) > 1 and not looking), "two calls", 60)
    gated.open()
    answers = [answer_of(controller) for controller in controllers]
    assert [answer["state"] for answer in answers] == ["done", "done"]
    assert sorted(answer["attached"] for answer in answers) == [False, True]
    assert gated.runs() == 1
