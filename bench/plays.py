# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Whole runs of ansible-playbook and how long they take."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Mapping

CHECKOUT = pathlib.Path(__file__).resolve().parents[1]


def play(name: str, tasks: list[dict[str, object]], hosts: str = "localhost") -> str:
    """A playbook with one play; JSON is YAML."""
    return json.dumps([{"name": name, "hosts": hosts, "gather_facts": False, "tasks": tasks}], indent=1) + "\n"


def collection_environment(home: pathlib.Path) -> dict[str, str]:
    """Variables under which Python and Ansible find this checkout as the collection; files of theirs go to ``home``."""
    namespace = home / "ansible_collections" / "hpcml"
    namespace.mkdir(parents=True)
    (namespace / "torchstack").symlink_to(CHECKOUT)
    place = str(home)
    return {
        **os.environ, "PYTHONPATH": place, "ANSIBLE_COLLECTIONS_PATH": place, "ANSIBLE_HOME": place,
        "ANSIBLE_REMOTE_TEMP": place, "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
    }


def run(playbook: str | pathlib.Path, environment: Mapping[str, str], *arguments: str) -> tuple[float, str]:
    """Wall time in seconds of one run, and its output; a run that fails raises RuntimeError with the output."""
    command = [os.path.join(os.path.dirname(sys.executable), "ansible-playbook"), str(playbook), *arguments]
    begun = time.monotonic()
    process = subprocess.run(
        command, cwd=CHECKOUT, env={**os.environ, "ANSIBLE_NOCOLOR": "1", **environment},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )
    took = time.monotonic() - begun
    output = process.stdout.decode(errors="replace")
    if process.returncode:
        raise RuntimeError("%s failed:\n%s" % (" ".join(command), output))
    return took, output
