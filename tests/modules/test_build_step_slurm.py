# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""build_step with a real Slurm: what reaches it, how a job waits, is refused and cancelled, what an operator sees."""

from __future__ import annotations

import os
import re
import tempfile

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.files import write_json
from support import slurm_cluster
from support.polling import eventually

SLEEP = "echo running; sleep 600"


@pytest.fixture(name="cluster", scope="module")
def one_cluster(tmp_path_factory):
    with slurm_cluster.running(tmp_path_factory.mktemp("w")) as world:
        yield world


@pytest.fixture(name="steps")
def some_steps(cluster, tmp_path, monkeypatch):
    with slurm_cluster.steps_on(cluster, tmp_path / "it's 100% the \"$state\"", monkeypatch) as steps:
        yield steps


def test_check_do_check_do(cluster, run_module, tmp_path):
    options = {
        "name": "s", "state_dir": str(tmp_path / "steps"), "script": "hostname > made", "creates": ["made"],
        "chdir": str(tmp_path), "launcher": "slurm", "launcher_options": {"cores": 1, "walltime": "00:05:00"},
    }
    environment = dict(cluster.environment, PATH=os.environ["PATH"] + ":" + cluster.environment["PATH"])
    planned = run_module("build_step", options, check=True, environment=environment)
    assert (planned.changed, planned["state"]) == (True, "planned")
    assert not (tmp_path / "steps").exists()
    done = run_module("build_step", options, environment=environment)
    assert (done["state"], done["node"]) == ("done", (tmp_path / "made").read_text().strip())
    assert [job["name"] for job in cluster.jobs(done["job_name"])] == [done["job_name"]]
    count = len(cluster.jobs())
    again = run_module("build_step", options, environment=environment)
    assert (again.changed, again["state"], len(cluster.jobs())) == (False, "unchanged", count)


def test_s03_neither_login_files_nor_a_job_around_it_nor_the_umask_reach_the_build(steps, tmp_path, monkeypatch):
    startup = tmp_path / "startup"
    startup.write_text("export FROM_STARTUP=1\n")
    for name, value in (
        ("BASH_ENV", startup), ("ENV", startup), ("SBATCH_PARTITION", "short"), ("SBATCH_TIMELIMIT", "5"),
        ("SLURM_JOB_ID", "999999"), ("SLURM_NTASKS", "77"), ("SQUEUE_FORMAT", "%P"), ("MAX_JOBS", "7"), ("CC", "fake"),
    ):
        monkeypatch.setenv(name, str(value))
    previous = os.umask(0o077)
    try:
        done = steps.run(
            'echo "<${FROM_STARTUP-gone}> <$SLURM_JOB_PARTITION> <${SLURM_NTASKS-1}> <$MAX_JOBS> <${CC-gone}> $(umask)"'
            "; touch made; ls"
        )
    finally:
        os.umask(previous)
    assert done["state"] == "done"
    assert "<gone> <main> <1> <7> <gone> 0022\n" in steps.log()
    directory = os.path.join(steps.state, "s")
    modes = {name: os.stat(os.path.join(directory, name)).st_mode & 0o777 for name in os.listdir(directory)}
    assert {name for name, mode in modes.items() if mode != (0o755 if name.endswith(".sh") else 0o644)} == set()
    names = {name for name in modes if not name.startswith(".")}
    expected = {"script.sh", "inputs.json", "log", "exit", "stamp.json", "job.json", "made", "batch.sh"}
    assert names == expected | {"submission.json"}


def test_temporary_files_have_a_short_directory_of_the_jobs_own_which_goes_with_it(steps):
    with tempfile.TemporaryDirectory() as place:
        script = "test -d $TMPDIR && mkdir $TMPDIR/deep && touch $TMPDIR/deep/file && echo TMPDIR=$TMPDIR"
        for name, end in (("well", "true"), ("badly", "exit 3"), ("broken-off", "sleep 600")):
            steps.begin("%s; %s" % (script, end), name, {"tmpdir": place})
        eventually(lambda: "TMPDIR=" in steps.log("broken-off"), "the build")
        steps.cancel("broken-off")
        assert steps.finish("well")["state"] == "done"
        assert steps.failure(steps.finish, "badly")["exit_code"] == 3
        made = {re.search("^TMPDIR=(.*)$", steps.log(name), re.M).group(1) for name in ("well", "badly", "broken-off")}
        assert {os.path.dirname(path) for path in made} == {place}
        assert (len(made), max(map(len, made)) - len(place)) == (3, 11)
        eventually(lambda: not os.listdir(place), "what the jobs had there is gone")
        failed = steps.failure(steps.run, "true", "nowhere", {"tmpdir": place + "/none"})
    assert (failed["reason"], "/none on %s: No such file" % failed["node"] in failed["msg"]) == ("tmpdir", True)
    assert "Correct launcher_options: tmpdir" in failed["msg"]


def test_what_the_site_asks_for_reaches_slurm(steps, cluster):
    options = {
        "account": "proj1", "partition": "urgent", "walltime": "00:20:00", "nodes": 1, "cores": 2, "memory": "500M",
        "directives": ["--hold", "--comment=by_the_site"], "requeue": 1,
    }
    begun = steps.begin("true", options=options)
    job = cluster.show(begun["job_id"])
    asked = ("Account", "Partition", "TimeLimit", "NumNodes", "CPUs/Task", "MinMemoryNode", "Comment", "Requeue")
    assert [job[key] for key in asked] == ["proj1", "urgent", "00:20:00", "1-1", "2", "500M", "by_the_site", "1"]


def test_a_held_job_waits_and_says_so_until_it_is_released(steps, cluster):
    for _job in range(2):
        cluster.submit("--begin=now+3600", "--wrap", "true")
    begun = steps.begin("echo hi", options={"directives": ["--hold"]})
    queue = begun["queue"]
    assert (begun["state"], queue["state"], queue["reason"]) == ("running", "held", "JobHeldUser")
    assert queue["advice"] == "It is held: 'scontrol release %s' lets it go on." % begun["job_id"]
    assert (begun["node"], queue["position"]) == (None, None)
    attached = steps.begin("echo hi")
    assert (attached["attached"], attached["job_id"]) == (True, begun["job_id"])
    refused = steps.failure(steps.begin, "echo something else")
    assert "with other inputs" in refused["msg"]
    assert "state: cancelled" in refused["msg"]
    cluster.run("scontrol", "release", begun["job_id"])
    done = steps.finish()
    assert (done["state"], done["queue"]) == ("done", None)
    assert len(cluster.jobs("ts-s-")) >= 1


def test_a_waiting_job_has_a_place_and_a_time(steps, cluster):
    busy = [cluster.submit("--ntasks=2", "--time=10", "--wrap", "sleep 600") for _node in cluster.nodes]
    eventually(lambda: all(cluster.state_of(job) == "RUNNING" for job in busy), "the nodes are busy")
    cluster.submit("--ntasks=2", "--wrap", "true")
    steps.begin("true")
    queue = eventually(lambda: steps.query()["queue"], "the queue")
    assert (queue["state"], queue["position"], queue["of"], queue["partition"]) == ("pending", 2, 2, "main")
    queue = eventually(lambda: steps.query()["queue"]["estimated_start"] and steps.query()["queue"], "an estimate")
    assert queue["estimated_start"].endswith("Z")
    assert queue["reason"] in ("Priority", "Resources")


@pytest.mark.parametrize("down, up, options, reason, advice", [
    (["PartitionName=short", "State=DOWN"], ["PartitionName=short", "State=UP"], {"partition": "short"},
     "PartitionDown", "The partition is down"),
    (["NodeName=n1,n2", "State=DRAIN", "Reason=test"], ["NodeName=n1,n2", "State=RESUME"], {},
     "DRAINED", "'sinfo -R' says why"),
], ids=["partition-down", "drained-nodes"])
def test_a_job_that_nothing_starts_says_why(steps, cluster, down, up, options, reason, advice):
    cluster.update(*down)
    try:
        steps.begin("echo hi", options={"walltime": "00:05:00", **options})
        queue = eventually(lambda: reason in steps.query()["queue"]["reason"] and steps.query()["queue"], reason)
        assert queue["state"] == "pending"
        assert advice in queue["advice"]
    finally:
        cluster.update(*up)
    assert steps.finish()["state"] == "done"


@pytest.mark.parametrize("options, words, advice", [
    ({"partition": "nosuch"}, "invalid partition specified: nosuch", "'sinfo -s' lists them"),
    ({"partition": "members", "account": "wrong"}, "Invalid account or account/partition", "Correct account"),
    ({"partition": "short", "walltime": "00:30:00"}, "Requested time limit is invalid", "shorter walltime"),
    ({"directives": ["--constraint=a100"]}, "Invalid feature specification", "sinfo -o"),
], ids=["partition", "account", "walltime", "feature"])
def test_a_refusal_is_slurms_own_and_leaves_nothing_behind(steps, cluster, options, words, advice):
    count = len(cluster.jobs())
    if "account" in options:
        asked = ["--account=wrong", "--partition=members", "--wrap=true"]
        if cluster.run("sbatch", "--test-only", *asked, check=False).returncode == 0:
            pytest.skip("this Slurm takes any account where it keeps no accounts")
    refused = steps.failure(steps.begin, "echo hi", options=options)
    assert (refused["reason"], refused["failed_step"]) == ("rejected", "submit")
    assert words in refused["msg"]
    assert advice in refused["msg"]
    assert len(cluster.jobs()) == count
    done = steps.run("echo hi")
    assert done["state"] == "done"
    assert words in done.get("resumed", words)


def test_a_directory_that_the_node_does_not_have_is_named(steps, cluster, tmp_path):
    begun = steps.begin("true", options={"directives": ["--hold"]})
    directory = os.path.join(steps.state, "s")
    os.rename(directory, str(tmp_path / "aside"))
    cluster.run("scontrol", "release", begun["job_id"])
    eventually(lambda: cluster.state_of(begun["job_id"]) == "FAILED", "the end of the job")
    if os.path.exists(directory):
        pytest.skip("this Slurm makes the directory of a log")
    os.rename(str(tmp_path / "aside"), directory)
    failed = steps.failure(steps.query)
    assert failed["reason"] == "killed"
    assert "could not open the log" in failed["msg"]


def test_cancelled_on_request_while_it_waits_and_while_it_builds(steps, cluster):
    assert not steps.cancel()["changed"]
    begun = steps.begin(SLEEP, options={"directives": ["--hold"]})
    assert steps.cancel(check=True)["changed"]
    assert cluster.state_of(begun["job_id"]) == "PENDING"
    assert (steps.cancel()["changed"], cluster.state_of(begun["job_id"])) == (True, "CANCELLED")
    assert not steps.cancel()["changed"]
    assert steps.failure(steps.query)["reason"] == "cancelled"
    again = steps.begin(SLEEP)
    assert "was cancelled" in again["resumed"]
    steps.until("running")
    cancelled = steps.cancel()
    assert (cancelled["changed"], cancelled["job_id"]) == (True, again["job_id"])
    failed = steps.failure(steps.query)
    assert failed["reason"] == "cancelled"
    assert "was cancelled" in failed["msg"]
    assert steps.run("echo other")["state"] == "done"


def test_a_failed_script_is_told_from_an_ended_job(steps):
    failed = steps.failure(steps.run, "echo hello; exit 3")
    assert (failed["reason"], failed["exit_code"], failed["node"]) == ("exit", 3, steps.read("job.json")["host"])
    assert "hello" in failed["log_tail"]


def test_a_scheduler_that_does_not_answer_is_not_one_without_jobs(steps, cluster, tmp_path):
    begun = steps.begin("echo hi", options={"directives": ["--hold"]})
    broken = tmp_path / "bin"
    broken.mkdir()
    (broken / "squeue").write_text(
        "#!/bin/sh\necho 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2\nexit 1\n"
    )
    (broken / "squeue").chmod(0o755)
    job, path = steps.read("job.json"), os.path.join(steps.state, "s", "job.json")
    write_json(path, dict(job, options=dict(job["options"], bin=str(broken))))
    for call in (steps.query, lambda: steps.begin("echo hi")):
        refused = steps.failure(call)
        assert (refused["failed_step"], "Unable to contact" in refused["msg"]) == ("scheduler", True)
    write_json(path, job)
    cluster.run("scontrol", "release", begun["job_id"])
    assert steps.finish()["state"] == "done"
