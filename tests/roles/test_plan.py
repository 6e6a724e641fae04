# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The plan of a release says of PyTorch's wheels only what would be fetched."""

from __future__ import annotations

import json
import pathlib
import subprocess

import pytest

TEMPLATE = pathlib.Path(__file__).parents[2] / "roles" / "release" / "templates" / "plan.j2"
FROM_INDEX, THERE = "PyTorch 2.13.0: 2.5 GiB, from pytorch.example.", "PyTorch 2.13.0: 2.5 GiB, fetched already."
ORIGIN = {"release": "2026-11-20", "seconds": 90.0}


def fetching(state, taken_over=None):
    return [{"step": "pytorch-fetch", "state": state, "digest": "d" * 64, "taken_over": taken_over}]


@pytest.mark.parametrize(("plan", "frozen", "says"), [
    (fetching("planned"), None, FROM_INDEX),
    (fetching("planned", ORIGIN), None, THERE),
    (fetching("unchanged"), None, THERE),
    ([], None, FROM_INDEX),
    ([], {"frozen_at": "2026-11-20T08:15:00Z"}, THERE),
])
def test_what_is_there_or_taken_over_is_not_said_to_come_from_an_index(
        plan, frozen, says, ansible_environment, tmp_path):
    variables = {
        "release_name": "2026-11-24", "release_site": "local",
        "release_context": {"definition": {"pytorch": {"version": "2.13.0"}}, "base": {}, "frozen": bool(frozen)},
        "release_collected": {"frozen": frozen}, "ansible_facts": {"torchstack_planned": {"plan": plan}},
        "release_pytorch": {"described": FROM_INDEX, "described_there": THERE, "offer": {"build": "cpu"}}}
    tasks = [{"ansible.builtin.debug": {"msg": "{{ lookup('ansible.builtin.template', '%s') }}" % TEMPLATE}}]
    (tmp_path / "play.yml").write_text(json.dumps([{
        "hosts": "localhost", "gather_facts": False, "vars": variables, "tasks": tasks}]))
    done = subprocess.run(
        ["ansible-playbook", str(tmp_path / "play.yml")], env=ansible_environment, text=True, check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    assert [said in done.stdout for said in (FROM_INDEX, THERE)] == [says == FROM_INDEX, says == THERE], done.stdout
