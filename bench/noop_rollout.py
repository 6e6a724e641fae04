# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How long a rollout takes that finds everything done, as a ratio to a playbook with ten stat tasks in the same run."""

from __future__ import annotations

import functools
import os
import pathlib
import subprocess
import sys
import tempfile

import ratios

CHECKOUT = pathlib.Path(__file__).resolve().parents[1]
PEER = """---
- name: Look at ten files
  hosts: local
  gather_facts: false
  tasks:
"""
TASK = """    - name: Look at file {0}
      ansible.builtin.stat:
        path: /etc/passwd
"""


def play(playbook: str, environment: dict[str, str]) -> None:
    """Run a playbook."""
    command = [os.path.join(os.path.dirname(sys.executable), "ansible-playbook"), playbook]
    process = subprocess.run(
        command, cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if process.returncode:
        sys.exit(process.stdout.decode(errors="replace"))


def main() -> None:
    """Print the medians, their ratio, and the goal."""
    root = ratios.release().parent
    collections = pathlib.Path(sys.prefix) / "collections"
    environment = {**os.environ, "TORCHSTACK_ROOT": str(root), "ANSIBLE_COLLECTIONS_PATH": str(collections)}
    with tempfile.TemporaryDirectory() as scratch:
        peer = pathlib.Path(scratch) / "peer.yml"
        peer.write_text(PEER + "".join(TASK.format(number) for number in range(10)))
        medians = ratios.compare({
            "ten stat tasks": functools.partial(play, str(peer), environment),
            "no-op rollout": functools.partial(play, "playbooks/local.yml", environment),
        }, 5)
    ratios.say_ratio(medians["no-op rollout"], medians["ten stat tasks"], "at most 4")


if __name__ == "__main__":
    main()
