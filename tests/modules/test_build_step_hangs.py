# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""build_step and steps that fall silent: where their Python ranks hang, and what the site does about it.

The ranks are real processes that meet over sockets. What they run knows nothing of stack dumps.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

SILENCE = 5
"""Seconds of silence that are allowed; whatever has to happen before prints."""

RANK = '''
import os, socket, sys, threading, time
rank, place = int(sys.argv[1]), sys.argv[2]

def barrier():
    """Wait for three ranks; there are two."""
    if rank == 0:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(place + ".new")
        listener.listen(4)
        os.rename(place + ".new", place)
        first = listener.accept()
        open("waits0", "w").close()
        listener.accept()
    else:
        while not os.path.exists(place):
            time.sleep(0.01)
        other = socket.socket(socket.AF_UNIX)
        other.connect(place)
        open("waits1", "w").close()
        other.recv(1)

def train():
    barrier()

threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
train()
'''

BOTH_WAIT = """
until test -e waits0 && test -e waits1; do echo waits; sleep 0.1; done
wait
"""

LAUNCHER = '''
import os, signal, subprocess, sys, threading
ranks = [
    subprocess.Popen([sys.executable, "rank.py", str(rank), "place"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    for rank in range(2)
]

def forward(rank, stream):
    for line in stream:
        os.write(1, b"[%d] %s" % (rank, line))

threads = [threading.Thread(target=forward, args=(rank, ranks[rank].stdout)) for rank in range(2)]
for thread in threads:
    thread.start()
pid, status = os.wait()
for rank in ranks:
    if rank.pid != pid:
        rank.kill()
for thread in threads:
    thread.join()
sys.exit(1)
'''


@pytest.fixture(name="step")
def one_step(run_module, tmp_path):
    """Run step ``s``, whose files are in the directory that its script starts in."""
    state, place = tmp_path / "steps", tmp_path / "work"
    place.mkdir()

    def run(script, caller=None, **options):
        options = {"name": "s", "state_dir": str(state), "chdir": str(place), "script": script, "grace": 2, **options}
        result = run_module("build_step", options, environment=caller)
        # The record that Ansible writes of a failed task has no word of the failure; the console has.
        result["failed"] = "| FAILED! =>" in result.console
        return result

    run.place, run.log = place, (state / "s" / "log").read_text
    return run


def stacks_in(text):
    """How many stacks of ranks that wait are in a text."""
    return text.count("in barrier")


def test_s32_two_ranks_that_hang_in_a_barrier_are_stopped_and_say_where(step):
    (step.place / "rank.py").write_text(RANK)
    python = sys.executable
    failed = step(
        "%s rank.py 0 place & %s rank.py 1 place &\n%s" % (python, python, BOTH_WAIT), no_output_timeout=SILENCE
    )
    assert failed["reason"] == "no_output_timeout"
    assert stacks_in(step.log()) == stacks_in("\n".join(failed["stacks"])) == 2
    shown = "\n".join(failed["stacks"])
    assert shown.count("in train") == shown.count("Fatal Python error: Aborted\n") == 2, "one runs into the other"
    assert stacks_in(failed.console.partition("where its processes were")[2].partition("last lines")[0]) == 2
    assert not list(step.place.glob("core*"))


def test_s32_a_launcher_that_passes_on_and_ends_all_does_not_cut_a_stack_off(step):
    """Both stacks go through pipes of a Python launcher, which kills every rank as soon as one has ended."""
    (step.place / "rank.py").write_text(RANK)
    (step.place / "launcher.py").write_text(LAUNCHER)
    failed = step("%s launcher.py &\n%s" % (sys.executable, BOTH_WAIT), no_output_timeout=SILENCE)
    assert failed["reason"] == "no_output_timeout"
    for rank in (0, 1):
        assert len([line for line in failed["stacks"] if line.startswith("[%d]" % rank) and "in barrier" in line]) == 1
    begun = [line[:3] for line in failed["stacks"] if "Fatal Python error: Aborted" in line]
    assert sorted(begun) == ["[0]", "[1]"]


def test_s32_the_sites_commands_are_told_and_their_failure_hides_nothing(step, tmp_path):
    told = tmp_path / "told"
    failed = step(
        "sleep 600", no_output_timeout=1, grace=1,
        on_hang={
            "notify": ["sh", "-c", "echo \"$0\" > '%s'; exit 7" % told, "{step} {host} {log}"],
            "kill": ["/does/not/exist", "{pid}"],
        },
    )
    assert (failed["reason"], failed["failed_step"]) == ("no_output_timeout", "run")
    assert told.read_text() == "s %s %s\n" % (os.uname().nodename, tmp_path / "steps" / "s" / "log")
    assert len(failed["notes"]) == 2
    assert "notify, sh, ended with status 7" in failed["notes"][0]
    assert "cannot be run: No such file or directory" in failed["notes"][1]
    refused = step("true", no_output_timeout=1, on_hang={"notify": ["mail", "{who}"]})
    assert (refused.failed, refused["failed_step"]) == (True, "options")


SEEN = "import json, os, sys; print('seen:', json.dumps([dict(os.environ), sys.path, 'sitecustomize' in sys.modules]))"


def test_s32_what_a_build_sees_is_the_same_but_for_one_variable(step, tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import sys; sys.path.append('/from/sitecustomize')\n")
    found = []
    for silence in (0, 600):
        step(
            "%s -c %s" % (sys.executable, json.dumps(SEEN)), inputs=silence, no_output_timeout=silence,
            environment={"PYTHONPATH": str(site)},
        )
        line = [line for line in step.log().splitlines() if line.startswith("seen:")][-1]
        found.append(json.loads(line.partition(" ")[2]))
    (plain, path, customized), (guarded, guarded_path, guarded_customized) = found
    assert guarded_path == path and "/from/sitecustomize" in path
    assert customized and guarded_customized
    assert set(guarded) - set(plain) == {"PYTHONFAULTHANDLER"} and set(plain) <= set(guarded)
    assert guarded["PYTHONFAULTHANDLER"] == "1"
    same = [key for key in plain if key.startswith(("PATH", "PYTHON", "LD_"))]
    assert [guarded[key] for key in same] == [plain[key] for key in same]


@pytest.mark.skipif(shutil.which("pgrep") is None, reason="not installed: pgrep")
def test_s32_py_spy_is_asked_first_where_it_is(step, tmp_path):
    """It looks without ending anybody, and into interpreters that read no variables."""
    tool = tmp_path / "bin" / "py-spy"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho \"py-spy was given $*\"\n")
    tool.chmod(0o755)
    failed = step(
        "%s -I -c 'import time; open(\"up\", \"w\"); time.sleep(600)' &\n" % sys.executable
        + "until test -e up; do echo waits; sleep 0.1; done\nwait", no_output_timeout=SILENCE,
        caller={"PATH": "%s:%s" % (tool.parent, os.environ["PATH"])},
    )
    assert [line for line in failed["stacks"] if line.startswith("py-spy was given dump --pid ")]
    assert "SIGABRT" not in step.log()
    left = subprocess.run(["pgrep", "-f", str(step.place)], stdout=subprocess.PIPE, check=False).stdout
    assert left == b""
