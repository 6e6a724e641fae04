# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How long a rollout takes that finds everything done, as a ratio to a playbook with ten stat tasks in the same run."""

from __future__ import annotations

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

CHECKOUT = pathlib.Path(__file__).resolve().parents[1]
RUNS = 5
GOAL = 4.0
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


def seconds(playbook: str, environment: dict[str, str]) -> float:
    """Wall time of one run, in seconds."""
    command = [os.path.join(os.path.dirname(sys.executable), "ansible-playbook"), playbook]
    begun = time.monotonic()
    process = subprocess.run(
        command, cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if process.returncode:
        sys.exit(process.stdout.decode(errors="replace"))
    return time.monotonic() - begun


def main() -> None:
    """Print one line: the medians, their ratio, and the goal."""
    root = pathlib.Path(os.environ.get("TORCHSTACK_ROOT", "~/torchstack")).expanduser()
    if not (root / "modulefiles").is_dir():
        sys.exit("There is no finished release in %s to compare with: roll one out, or set TORCHSTACK_ROOT." % root)
    collections = pathlib.Path(sys.prefix) / "collections"
    environment = {**os.environ, "TORCHSTACK_ROOT": str(root), "ANSIBLE_COLLECTIONS_PATH": str(collections)}
    with tempfile.TemporaryDirectory() as scratch:
        peer = pathlib.Path(scratch) / "peer.yml"
        peer.write_text(PEER + "".join(TASK.format(number) for number in range(10)))
        playbooks = {"ten stat tasks": str(peer), "no-op rollout": "playbooks/local.yml"}
        times: dict[str, list[float]] = {name: [] for name in playbooks}
        for _run in range(RUNS):
            for name, playbook in playbooks.items():
                times[name].append(seconds(playbook, environment))
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, value in medians.items():
        print("%-16s %6.2f s (median of %d)" % (name, value, RUNS))
    print("%-16s %6.2f (goal: at most %.1f)" % ("ratio", medians["no-op rollout"] / medians["ten stat tasks"], GOAL))


if __name__ == "__main__":
    main()
