# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What became of each release of a matrix by the record of its run, and the table of all."""

from __future__ import annotations

import json
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import run_records
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.matrix import runs

STEPS = [{"step": "tools", "state": "cached"}, {"step": "base", "state": "done", "seconds": 12.0}]
FETCH = {"task": "pytorch: Fetch PyTorch", "step": "pytorch-fetch", "message": "Step pytorch-fetch failed.\nmore"}
NODES = {"task": "node_health: Look at the nodes", "step": "", "message": "No node answers.", "rescued": True}
LATER = {"task": "report: Write it", "step": "", "message": "Another one."}


def ran(tmp_path, name, record, code=0, said=""):
    """Run a program that leaves a record, as Ansible does, and prints what is no record."""
    text = None if record is None else record if isinstance(record, str) else json.dumps(record)
    program = "import os, pathlib; print(%r)\n" % said
    if text is not None:
        program += "pathlib.Path(os.environ['TORCHSTACK_RUN_RECORD']).write_text(%r)\n" % text
    return runs.run(name, [sys.executable, "-c", "%sexit(%d)" % (program, code)], tmp_path / ("%s.log" % name))


def test_steps_are_counted_by_the_record_whatever_was_printed(tmp_path):
    found = ran(tmp_path, "a", {"steps": [*STEPS, STEPS[1]], "failures": [], "finished": True}, said="Steps: x 1 s")
    assert (found.outcome, found.built, found.taken_over, found.place, found.said) == ("done", 1, 1, "", "")


def test_it_failed_where_the_record_has_the_first_failure_that_nothing_caught(tmp_path):
    record = {"steps": STEPS, "failures": [NODES, FETCH, LATER], "finished": True}
    found = ran(tmp_path, "a", record, 2, "[ERROR]: Task failed: something else")
    assert (found.place, found.said) == ("pytorch-fetch", "Step pytorch-fetch failed.")
    assert ran(tmp_path, "a", {"failures": [LATER]}, 2)[5:7] == ("report: Write it", "Another one.")


@pytest.mark.parametrize(("record", "said"), [
    (None, "ansible-playbook has ended with code 4 before it played anything: its log says why"),
    ("{", "ansible-playbook has ended with code 4 before it played anything: its log says why"),
    ({"failures": [], "finished": False}, "ansible-playbook has ended with code 4 in the middle: its log says why"),
    ({"failures": [NODES], "finished": True}, "ansible-playbook has ended with code 4: its log says why"),
])
def test_without_a_failure_in_the_record_it_is_the_exit_code(tmp_path, record, said):
    assert ran(tmp_path, "a", record, 4)[5:7] == ("", said)


def test_the_record_of_an_earlier_run_is_not_that_of_this_one(tmp_path):
    ran(tmp_path, "a", {"failures": [FETCH], "finished": True}, 2)
    assert ran(tmp_path, "a", None, 1).place == ""


def test_what_a_site_has_enabled_stays_enabled(tmp_path, monkeypatch):
    monkeypatch.setenv("ANSIBLE_CALLBACKS_ENABLED", "ansible.posix.profile_tasks")
    enabled = run_records.recording(tmp_path / "a.json")["ANSIBLE_CALLBACKS_ENABLED"]
    assert enabled == "ansible.posix.profile_tasks,hpcml.torchstack.run_record"


def test_a_table_has_a_line_for_each_with_the_step_that_failed_and_below_it_why(tmp_path):
    rows = [(("3.12",), ran(tmp_path, "a", {"steps": STEPS})._replace(seconds=61.6)),
            (("3.13",), ran(tmp_path, "b", {"failures": [FETCH]}, 2)._replace(seconds=0.4))]
    lines = list(runs.table(["python"], rows))
    assert lines[0].split() == ["release", "python", "result", "time", "built", "taken", "over", "failed", "at"]
    assert lines[2].split() == ["a", "3.12", "done", "1:02", "1", "1"]
    assert lines[3].split() == ["b", "3.13", "failed", "0:00", "0", "0", "pytorch-fetch"]
    assert lines[4:] == ["b: Step pytorch-fetch failed. (%s)" % (tmp_path / "b.log")]
    assert "failed" not in next(iter(runs.table(["python"], rows[:1])))
