# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""build_step with a real Flux: whatever is killed, cancelled or lost, a step is never built twice at once."""

from __future__ import annotations

import os
import pathlib
import signal
import time

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch import commands
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import processes
from support import flux_instance
from support.batch_histories import exclusive, lines_of
from support.polling import eventually

MAKEFILE = """
program: first.o second.o
\t@touch program
first.o:
\t@echo compiling first; touch first.o
second.o:
\t@test -e {gate} || {{ echo waiting; sleep 600; }}
\t@echo compiling second; touch second.o
"""

HELD = {"directives": ["--urgency=0"]}


@pytest.fixture(name="flux", scope="module")
def one_instance(tmp_path_factory):
    with flux_instance.running(tmp_path_factory.mktemp("w")) as instance:
        yield instance


@pytest.fixture(name="steps")
def some_steps(flux, tmp_path, monkeypatch):
    with flux_instance.steps_on(flux, tmp_path / "steps", monkeypatch) as steps:
        yield steps


def commands_with(tmp_path, batch):
    """A directory with a ``flux`` that runs shell commands in the place of ``flux batch``."""
    place = tmp_path / "bin"
    place.mkdir()
    real = flux_instance.command()
    (place / "flux").write_text(
        '#!/bin/sh\nflux=%s\nif [ "$1" = batch ]; then\n%s\nfi\nexec $flux "$@"\n' % (real, batch))
    (place / "flux").chmod(0o755)
    return str(place)


def kill(process):
    """Kill a controller, and nothing that it has started."""
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def jobs_of(flux, steps, name="s"):
    return [job for job in flux.jobs() if job["name"] == steps.read("submission.json", name)["job_name"]]


def test_a_step_is_built_as_a_job_and_a_second_run_submits_nothing(flux, steps, run_module):
    asked = steps.parameters('echo "in $FLUX_ENCLOSING_ID on $(flux getattr size) nodes"; umask',
                             options={"walltime": "00:10:00", "nodes": 2, "queue": "short"})
    asked["environment"] = {"PATH": os.path.dirname(flux_instance.command()) + ":/usr/bin:/bin"}
    arguments = {key: value for key, value in asked.items() if value is not None and key not in ("follow", "planned")}
    first = run_module("build_step", arguments, environment=flux.environment)
    assert not first.failed, first.console
    assert first.changed
    log = pathlib.Path(first["log"]).read_text()
    assert "in %s on 2 nodes" % first["job_id"] in log.replace("\u0192", "f") and "0022" in log.split()
    again = run_module("build_step", arguments, environment=flux.environment)
    assert not again.failed and not again.changed
    (job,) = jobs_of(flux, steps)
    assert (job["queue"], job["duration"], job["nnodes"], job["cwd"]) == ("short", 600.0, 2, "/")


def test_flux_run_in_a_step_starts_ranks_on_all_nodes_of_the_job(flux, steps, tmp_path):
    place = os.path.dirname(flux_instance.command())
    script = "PATH=%s:$PATH\nflux run --exclusive --nodes=2 --ntasks=2 sh -c '%s'" % (
        place, 'echo rank $FLUX_TASK_RANK of $FLUX_JOB_SIZE, local $FLUX_TASK_LOCAL_ID on $(hostname), PMI $PMI_RANK')
    steps.run(script, options={"nodes": 2})
    assert "rank 0 of 2, local 0 on " in steps.log() and "rank 1 of 2, local 0 on " in steps.log()
    assert "PMI 1" in steps.log()


def test_a_failed_script_is_told_from_an_ended_job(steps):
    failed = steps.failure(steps.run, "echo hello; exit 3")
    assert (failed["reason"], failed["exit_code"], failed["node"]) == ("exit", 3, steps.read("job.json")["host"])
    assert "hello" in failed["log_tail"]


@pytest.mark.parametrize("options, words, advice", [
    ({"queue": "nosuch"}, "queue", "flux queue list"),
    ({"queue": "short", "walltime": "00:30:00"}, "exceeds policy limit of 10m", "shorter walltime"),
    ({"directives": ["--requires='a100&&('"]}, "Unclosed parenthesis", "Correct"),
    ({"directives": ["--no-such-option=1"]}, "unrecognized arguments", "Correct launcher_options"),
], ids=["queue", "walltime", "constraint", "option"])
def test_a_refusal_is_flux_s_own_and_leaves_nothing_behind(flux, steps, options, words, advice):
    count = len(flux.jobs())
    refused = steps.failure(steps.begin, steps.hello, options=options)
    assert (refused["reason"], refused["failed_step"]) == ("rejected", "submit")
    assert words in refused["msg"] and advice in refused["msg"]
    assert len(flux.jobs()) == count
    assert steps.run(steps.hello)["state"] == "done"


@pytest.mark.parametrize("options", [{"cores": 4096}, {"constraint": "a100"}, {"nodes": 9}, {"gpus": 1}])
def test_what_no_node_has_is_told_though_flux_took_the_job(flux, steps, options):
    failed = steps.failure(steps.run, steps.hello, options=options)
    assert failed["reason"] == "never_started"
    assert "given up before it could start" in failed["msg"] and "unsatisfiable request: need" in failed["msg"]
    assert "'flux resource list' shows what there is" in failed["msg"]
    assert len(jobs_of(flux, steps)) == 1


def test_a_held_job_waits_and_says_so_until_it_is_released(flux, steps):
    begun = steps.begin(steps.hello, options=HELD)
    queue = begun["queue"]
    assert (begun["state"], queue["state"], queue["partition"]) == ("running", "held", "batch")
    assert queue["advice"] == "It is held: 'flux job urgency %s default' lets it go on." % begun["job_id"]
    attached = steps.begin(steps.hello)
    assert (attached["attached"], attached["job_id"]) == (True, begun["job_id"])
    flux.run("job", "urgency", begun["job_id"], "default")
    assert steps.finish()["state"] == "done"
    assert len(jobs_of(flux, steps)) == 1


def test_a_waiting_job_has_a_place_and_says_what_stops_it(flux, steps):
    flux.run("queue", "stop", "--queue=batch", "--message=maintenance")
    try:
        steps.begin(steps.hello)
        queue = eventually(lambda: (seen := steps.query()["queue"])["position"] and seen, "its place")
        assert (queue["state"], queue["position"], queue["of"]) == ("pending", 1, 1)
        assert "Scheduling is stopped: maintenance" in queue["reason"]
    finally:
        flux.run("queue", "start", "--queue=batch")
    assert steps.finish()["state"] == "done"


def test_a_directory_that_the_node_does_not_have_is_named(flux, steps, tmp_path):
    begun = steps.begin(steps.hello, options=HELD)
    directory = os.path.join(steps.state, "s")
    os.rename(directory, str(tmp_path / "aside"))
    flux.run("job", "urgency", begun["job_id"], "default")
    eventually(lambda: flux.job(begun["job_id"])["state"] == "INACTIVE", "the end of the job")
    os.rename(str(tmp_path / "aside"), directory)
    failed = steps.failure(steps.query)
    assert failed["reason"] == "killed" and "could not open the log" in failed["msg"]


@pytest.mark.parametrize("victims", ["controller", "both"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_before_or_after_flux_accepts_the_job_there_is_one(flux, steps, tmp_path, moment, victims):
    asked, gate = tmp_path / "asked", tmp_path / "go"
    wait = f"echo $$ > {asked}.new; mv {asked}.new {asked}; until [ -e {gate} ]; do sleep 0.05; done"
    before, after = (wait, "") if moment == "before" else ("", wait)
    batch = '%s\nanswer=$($flux "$@") || exit\n%s\necho "$answer"; exit' % (before, after)
    options = {"bin": commands_with(tmp_path, batch)}
    controller = steps.controller(steps.gated, options=options)
    eventually(asked.exists, "flux batch is called")
    assert steps.read("submission.json")["job_id"] is None
    kill(controller)
    if victims == "both":
        os.kill(int(asked.read_text()), signal.SIGKILL)
    elif moment == "after":
        assert steps.begin(steps.gated, options=options)["attached"], "while flux batch has not answered"
    follower = steps.controller(steps.gated, options=options)
    if (moment, victims) == ("before", "controller"):
        time.sleep(1)
        assert follower.poll() is None, "nobody starts a step while its submission is under way"
    gate.touch()
    answer = steps.answer_of(follower)
    assert answer["state"] == "running", answer
    assert answer["attached"] or (moment, victims) == ("before", "both")
    steps.gate.touch()
    done = steps.finish()
    (job,) = flux.jobs("ts-s-" + done["digest"][:8])
    assert job["name"] == steps.read("submission.json")["job_name"]
    assert steps.log().count("==== attempt") == 1


def test_killed_in_the_queue_and_during_the_build_the_next_run_attaches(flux, steps):
    controller = steps.controller(steps.gated, options=HELD)
    eventually(lambda: (steps.read("submission.json") or {}).get("job_id"), "a job in the queue")
    kill(controller)
    attached = steps.begin(steps.gated, options=HELD)
    assert (attached["attached"], attached["queue"]["state"]) == (True, "held")
    flux.run("job", "urgency", attached["job_id"], "default")
    steps.until("running")
    follower = steps.controller(steps.gated, options=HELD)
    time.sleep(0.5)
    kill(follower)
    again = steps.begin(steps.gated, options=HELD)
    assert (again["attached"], again["queue"], again["node"]) == (True, None, steps.read("job.json")["host"])
    steps.gate.touch()
    assert steps.finish()["state"] == "done"
    assert len(flux.jobs("ts-s-" + again["digest"][:8])) == 1


@pytest.mark.parametrize("runs", [False, True], ids=["in-the-queue", "in-the-build"])
def test_a_step_is_cancelled_on_request_and_built_afterwards(flux, steps, runs):
    assert not steps.cancel()["changed"]
    begun = steps.begin("sleep 600", options={} if runs else HELD)
    if runs:
        steps.until("running")
    assert steps.cancel(check=True)["changed"]
    assert steps.cancel()["changed"]
    eventually(lambda: flux.job(begun["job_id"])["state"] == "INACTIVE", "Flux has ended it")
    assert not steps.cancel()["changed"]
    failed = steps.failure(steps.query)
    assert failed["reason"] == "cancelled"
    assert steps.run(steps.hello)["state"] == "done"


def test_a_job_that_was_cancelled_by_its_user_is_resumed_with_its_objects(flux, steps, tmp_path):
    (tmp_path / "Makefile").write_text(MAKEFILE.format(gate=tmp_path / "gate"))
    begun = steps.begin("make", chdir=str(tmp_path))
    eventually(lambda: "waiting" in steps.log(), "the first object")
    flux.run("cancel", "--message=by the user", begun["job_id"])
    failed = steps.failure(steps.finish)
    assert (failed["reason"], failed["job_id"]) == ("cancelled", begun["job_id"])
    assert "ob %s of step s was cancelled (Flux: CANCELED" % begun["job_id"] in failed["msg"]
    assert "reason by the user" in failed["msg"]
    (tmp_path / "gate").touch()
    resumed = steps.begin("make", chdir=str(tmp_path))
    assert "was cancelled" in resumed["resumed"]
    assert steps.finish()["state"] == "done"
    assert [steps.log().count("compiling " + name) for name in ("first", "second")] == [1, 1]


def test_a_step_beyond_its_walltime_says_so_and_goes_on_where_the_site_says_that(flux, steps, tmp_path):
    for name in ("over", "again"):
        (tmp_path / name).mkdir()
    scripts = {name: exclusive("flux", tmp_path / name) for name in ("over", "again")}
    limit = {"walltime": "00:00:08"}
    steps.begin(scripts["over"], "over", limit)
    steps.begin(scripts["again"], "again", {**limit, "requeue": 3, "requeue_on": ["time_limit"]})
    failed = steps.failure(steps.finish, "over")
    assert (failed["reason"], "Flux: TIMEOUT" in failed["msg"]) == ("time_limit", True)
    nonce = steps.read("job.json", "over")["nonce"]
    eventually(lambda: not processes.job_processes(nonce), "nothing is left of it", 15)
    assert "its supervisor was asked to by signal 15" in steps.log("over"), steps.log("over")
    assert "longer walltime" in failed["msg"]
    starts = tmp_path / "again" / "starts"
    eventually(lambda: steps.query("again") and len(lines_of(starts)) > 1, "it builds again", 240)
    (tmp_path / "again" / "gate").touch()
    assert steps.finish("again")["state"] == "done"
    assert not (tmp_path / "again" / "violation").exists()
    assert len(set(lines_of(starts))) == len(lines_of(starts)) <= 4


def test_a_supervisor_that_is_killed_ends_its_job_and_is_resumed(steps):
    steps.begin("sleep 600")
    job = steps.until("running") and steps.read("job.json")
    os.kill(job["pid"], signal.SIGKILL)
    failed = steps.failure(steps.finish)
    assert (failed["reason"], failed["job_id"], "signal 9" in failed["msg"]) == ("killed", job["job_id"], True)
    assert "ended, and its supervisor has recorded nothing (Flux: FAILED" in failed["msg"]
    assert steps.run("sleep 0.1; true")["state"] == "done"


def test_a_flux_that_does_not_answer_is_not_one_without_jobs(flux, steps, monkeypatch):
    begun = steps.begin(steps.hello, options=HELD)
    monkeypatch.setenv("FLUX_URI", "local:///nowhere/local-0")
    for call in (steps.query, lambda: steps.begin(steps.hello, options=HELD)):
        refused = steps.failure(call)
        assert (refused["failed_step"], "Flux did not answer" in refused["msg"]) == ("scheduler", True)
    flux.be_found(monkeypatch)
    monkeypatch.setattr(commands, "ASK_SECONDS", 2)
    leader = flux.broker(0)
    os.kill(leader, signal.SIGSTOP)
    try:
        refused = steps.failure(steps.query)
        assert (refused["failed_step"], "took longer" in refused["msg"]) == ("scheduler", True)
    finally:
        os.kill(leader, signal.SIGCONT)
    monkeypatch.setattr(commands, "ASK_SECONDS", 60)
    assert steps.query()["queue"]["state"] == "held"
    flux.run("job", "urgency", begun["job_id"], "default")
    assert steps.finish()["state"] == "done"
    assert len(jobs_of(flux, steps)) == 1
