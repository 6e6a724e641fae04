# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The batch script for Flux: what it asks for, and how it hands on signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch import registry
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch.flux_script import batch_script
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import processes
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError

SUPERVISOR = """
import signal, sys
for number in (1, 2, 3, 14):
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [15])
print("ready", flush=True)
print("asked by", int(signal.sigwait([15])), flush=True)
sys.exit(7)
"""


def script(log="/soft/log", command=("/usr/bin/python3", "-I"), **options):
    return batch_script("ts-pytorch-6f1ed002-9c0a11d4", registry.check_options("flux", options), str(log), command)


def directives(**options):
    lines = script(**options).splitlines()
    return [line[len("#flux: "):] for line in lines if line.startswith("#flux: ")]


def test_everything_that_a_site_says_is_a_directive():
    assert directives(
        account="proj1", queue="gpu", walltime="1-02:30:00", nodes=2, cores=64, gpus=4, constraint="a100&hbm",
        exclusive=True, directives=["--setattr=burstbuffer=1"],
    ) == [
        "--setattr=burstbuffer=1", "--bank=proj1", "--queue=gpu", "--requires='a100&hbm'", "--time-limit=95400s",
        "--nodes=2", "--nslots=2", "--cores-per-slot=64", "--gpus-per-slot=4", "--exclusive",
        "--job-name=ts-pytorch-6f1ed002-9c0a11d4", "--cwd=/", "--output=kvs",
    ]


def test_without_cores_a_job_has_whole_nodes():
    assert directives()[:3] == ["--nodes=1", "--nslots=1", "--exclusive"]
    assert "--exclusive" not in directives(cores=8)


def test_a_site_may_count_slots_itself():
    assert directives(directives=["-n 4 -c 16"]) == [
        "-n 4 -c 16", "--job-name=ts-pytorch-6f1ed002-9c0a11d4", "--cwd=/", "--output=kvs"]


@pytest.mark.parametrize(("key", "instead"), [
    ("partition", "queue"), ("memory", "exclusive"), ("memory_per_gpu", "exclusive"), ("gpu_type", "constraint"),
    ("qos", "directives"), ("reservation", "directives"), ("licenses", "directives"), ("hint", "directives"),
])
def test_what_flux_does_not_have_is_refused_with_what_says_it_there(key, instead):
    value = {"memory": "240G", "memory_per_gpu": "60G", "hint": "nomultithread"}.get(key, "x")
    (told,) = registry.problems("flux", {key: value})
    assert told == "launcher_options: Flux has no %s. Say what is meant with %s." % (key, instead)


@pytest.mark.parametrize("line", [
    "--job-name=mine", "--output=mine.out", "--cwd /tmp", "--wrap", "--dry-run", "-o output.mode=truncate",
    "#flux: --queue=debug", "--quiet",
])
def test_what_is_build_step_s_own_is_refused(line):
    assert "is not allowed" in registry.problems("flux", {"directives": [line]})[0]


@pytest.mark.parametrize(("line", "gpus"), [("-g 4", 4), ("-g8", 8), ("--gpus-per-slot=2", 2), ("-c 8", 0)])
def test_gpus_are_counted_in_directives(line, gpus):
    assert registry.asked_gpus("flux", {"directives": [line]}) == gpus


@pytest.mark.parametrize("given", [{"log": "/soft/l\nrm -rf /"}, {"directives": ["--requires='a"]}])
def test_what_would_become_another_command_is_refused(given):
    with pytest.raises(StackError) as caught:
        script(**given)
    assert caught.value.failed_step == "options"


def run(tmp_path, *command, environment=None):
    path = tmp_path / "batch.sh"
    path.write_text(script(tmp_path / "the log's", command), encoding="utf-8")
    # What nohup ignores of the signals, a shell would never trap.
    return subprocess.Popen(
        ["/bin/sh", str(path)], env=dict(os.environ, **(environment or {})), start_new_session=True,
        preexec_fn=processes.default_signals)


def test_the_log_is_appended_to_and_the_exit_code_is_the_command_s(tmp_path):
    (tmp_path / "the log's").write_text("what was there\n")
    job = {"FLUX_ENCLOSING_ID": "\u01928VWnWSj"}
    process = run(tmp_path, "/bin/sh", "-c", "umask; echo $FLUX_ENCLOSING_ID >&2; exit 3", environment=job)
    assert process.wait() == 3
    assert (tmp_path / "the log's").read_text() == "what was there\n0022\nf8VWnWSj\n"


def test_a_log_that_cannot_be_opened_has_an_exit_code_of_its_own(tmp_path):
    path = tmp_path / "batch.sh"
    path.write_text(script("/nowhere/log", ["/bin/true"]), encoding="utf-8")
    assert subprocess.run(["/bin/sh", str(path)], stderr=subprocess.DEVNULL, check=False).returncode == 73


@pytest.mark.parametrize("asked", [signal.SIGALRM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM])
def test_by_whatever_signal_flux_ends_a_job_the_supervisor_is_told_by_sigterm(tmp_path, asked):
    program = tmp_path / "supervisor.py"
    program.write_text(SUPERVISOR)
    process = run(tmp_path, sys.executable, str(program), environment={"FLUX_ENCLOSING_ID": "f1"})
    log = tmp_path / "the log's"
    while not log.exists() or "ready" not in log.read_text():
        assert process.poll() is None
        time.sleep(0.02)
    os.kill(process.pid, asked)
    assert process.wait(60) == 7
    assert log.read_text() == "ready\nasked by 15\n"
