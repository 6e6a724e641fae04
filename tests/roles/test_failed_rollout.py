# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What is left of a rollout that fails in a step, its report and no lock, and of another one: a page for users."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
from support import sites

TOP = pathlib.Path(__file__).resolve().parents[2]
RELEASE = "2026-11-20"


@pytest.fixture(name="roll_out")
def rollout_of_one_step(ansible_environment, tmp_path):
    """Run the tasks of a rollout with one step in place of its roles; the process, and the place of the records."""
    records = tmp_path / ".torchstack" / RELEASE
    records.mkdir(parents=True, exist_ok=True)

    def run(script, *words):
        (rollout,) = sites.load(TOP / "playbooks" / "rollout.yml")
        (tasks,) = rollout["tasks"]
        steps = str(tmp_path / RELEASE / ".torchstack" / "steps")
        step = {"hpcml.torchstack.build_step": {"name": "horovod", "state_dir": steps, "script": script}}
        place = {"root": str(tmp_path), "release": RELEASE}
        context = {**place, "base": {"kind": "python_overlay"}, "definition": {}}
        opened = {"ansible.builtin.set_fact": {"release_context": context}}
        tasks["block"] = [{"hpcml.torchstack.rollout_lock": place}, opened, step, tasks["block"][-1]]
        play = {"hosts": "localhost", "gather_facts": False, "tasks": [tasks],
                "vars": {"torchstack_root": str(tmp_path), "torchstack_release": RELEASE, "torchstack_site": "mysite",
                         "torchstack_hooks": [{"run": ["cp", "/dev/stdin", str(tmp_path / "told")]}]}}
        playbook = tmp_path / "play.yml"
        playbook.write_text(json.dumps([play]))
        program = os.path.join(os.path.dirname(sys.executable), "ansible-playbook")
        done = subprocess.run(
            [program, "-i", "localhost,", "-c", "local", str(playbook), *words], env=ansible_environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return done, records

    return run


def test_it_has_failed_and_its_report_says_why(roll_out):
    done, records = roll_out("echo begun; echo 'a.c:1:10: fatal error: mpi.h: No such file or directory'; exit 4")
    assert done.returncode == 2, done.stdout
    line = "a.c:1:10: fatal error: mpi.h: No such file or directory"
    page, facts = (records / "report.html").read_text(), json.loads((records / "report.json").read_text())
    assert page.count(line) == 1 and "Install what has that header" in page
    assert facts["verdict"]["word"] == "Not built" and facts["steps"][0]["errors"][0]["lines"][0]["text"] == line
    assert not (records / "lock.json").exists() and not (records / "use.md").exists()
    assert done.stdout.count("The rollout has stopped. What failed is said above, and in %s" % records) == 1
    told = json.loads((records.parents[1] / "told").read_text())
    assert (told["site"], told["events"]) == ("mysite", ["failed"])
    assert told["verdict"]["problems"][0]["lines"][0]["text"] == line


@pytest.mark.parametrize("script", ["echo 'ERROR: the disk is full'; exit 4", "true"])
def test_where_no_report_can_be_written_the_lock_goes_back_and_the_site_is_told(script, roll_out, tmp_path):
    # As on a disk that is full: what is in the place of the report cannot be replaced.
    (tmp_path / ".torchstack" / RELEASE / "report.json" / "x").mkdir(parents=True)
    done, records = roll_out(script)
    assert done.returncode == 2 and "report.json cannot be written" in done.stdout, done.stdout
    assert not (records / "lock.json").exists() and "report.html" not in done.stdout
    told = json.loads((tmp_path / "told").read_text())["events"] if (tmp_path / "told").exists() else []
    assert told == (["failed"] if "exit" in script else [])


def test_one_that_has_not_failed_says_nothing_of_that_and_has_a_page_for_users(roll_out):
    done, records = roll_out("echo 'ERROR: of no importance'")
    assert done.returncode == 0 and "The rollout has stopped" not in done.stdout, done.stdout
    assert json.loads((records.parents[1] / "told").read_text())["events"] == ["finished"]
    assert "of no importance" not in (records / "report.html").read_text()
    page = records / "use.md"
    assert page.read_text().startswith("# Use ")
    page.unlink()
    planned = roll_out("echo", "--check")[0].stdout.partition("Write how it is used]")[2]
    assert planned.split()[1] == "changed:" and not page.exists()
