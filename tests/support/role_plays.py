# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Tasks of a role, run on this machine with the variables of a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys


def play_tasks(role, tasks_from, variables, cases, environment, directory, *options):
    """Run tasks of a role once for each case, in one play.

    Args:
        role: its name in the collection.
        tasks_from: which of its task files.
        variables: of the role, which may name the case's own as ``{{ case.<key> }}``.
        cases: the cases.
        environment: of ansible-playbook.
        directory: where the playbook is written.
        options: further words of the command line.

    Returns:
        the process, with all that it printed as ``stdout``.
    """
    task = {
        "ansible.builtin.include_role": {"name": "hpcml.torchstack." + role, "tasks_from": tasks_from},
        "vars": variables, "loop": "{{ cases }}", "loop_control": {"loop_var": "case"},
    }
    playbook = directory / "play.yml"
    playbook.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": [task]}]))
    command = [os.path.join(os.path.dirname(sys.executable), "ansible-playbook"), "-i", "localhost,", "-c", "local"]
    return subprocess.run(
        [*command, "-e", json.dumps({"cases": cases}), *options, str(playbook)], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )
