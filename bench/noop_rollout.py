# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A rollout that finds everything done, beside a playbook with ten stat tasks."""

from __future__ import annotations

import os
import pathlib
import re
import sys
import tempfile

from measuring import UnavailableError, alternate
from plays import CHECKOUT, play, run
from table import Goal, Kind, Outcome, Row

ROUNDS = 3
STAT: dict[str, object] = {"ansible.builtin.stat": {"path": "/etc/passwd"}}


def finished_root() -> pathlib.Path:
    """The root directory of a finished release of the local site.

    That is TORCHSTACK_ROOT, or where `make rollout` and the end-to-end tests build theirs.
    """
    named = os.environ.get("TORCHSTACK_ROOT")
    tested = os.environ.get("TORCHSTACK_TEST_ROOT", "~/torchstack-test")
    places = [pathlib.Path(place).expanduser() for place in ([named] if named else ["~/torchstack", tested])]
    for root in places:
        if any(root.glob(".torchstack/*/publish.jsonl")):
            return root
    raise UnavailableError(
        "there is no finished release in %s: `make rollout` builds one, TORCHSTACK_ROOT says where one is"
        % " or ".join(map(str, places))
    )


def changes(output: str) -> int:
    """How many changed tasks the end of a playbook's output counts."""
    return sum(map(int, re.findall(r"^\S+ *: ok=\d+ +changed=(\d+)", output, re.MULTILINE)))


def compare() -> Outcome:
    """The row, and what Ansible itself takes of both."""
    root = finished_root()
    environment = {
        "TORCHSTACK_ROOT": str(root), "ANSIBLE_COLLECTIONS_PATH": str(pathlib.Path(sys.prefix) / "collections"),
    }
    rollout = CHECKOUT / "playbooks" / "local.yml"
    if changes(run(rollout, environment, "--check")[1]):
        raise UnavailableError(
            "the release in %s is not what this checkout makes: `make rollout` brings it up to date" % root
        )
    with tempfile.TemporaryDirectory() as scratch:
        ten = pathlib.Path(scratch) / "ten.yml"
        ten.write_text(play("Look at ten files", [STAT] * 10, "local"))
        one = pathlib.Path(scratch) / "one.yml"
        one.write_text(play("Look at one file", [STAT], "local"))
        medians = alternate(
            {
                "ten": lambda: run(ten, environment)[0],
                "rollout": lambda: run(rollout, environment)[0],
                "one": lambda: run(one, environment)[0],
            },
            ROUNDS,
        )
    row = Row(
        "no-op rollout of local", "ansible-playbook, ten stat tasks", medians["ten"], medians["rollout"],
        medians["one"], Goal(Kind.AT_MOST, 4), within=True,
    )
    note = "no-op rollout: both are whole runs of ansible-playbook; one with a single stat task shows the overhead."
    return Outcome([row], [note])
