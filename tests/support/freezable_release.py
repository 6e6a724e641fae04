# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A small release that the role freeze is to freeze, and the plays of a test over it."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import Any, Mapping

import yaml

NAME = "2026-11-20"


class Release:
    """A release below ``<top>/root``; ``environment`` is that of ansible-playbook."""

    def __init__(self, top: pathlib.Path, environment: Mapping[str, str]) -> None:
        self.top, self.environment = top, environment
        self.root = top / "root"
        self.make()

    def make(self) -> None:
        packages = self.root / NAME / "base" / "lib" / "python3" / "site-packages"
        packages.mkdir(parents=True)
        (packages / "good.py").write_text("ANSWER = 42\n")
        (packages / "template.py").write_text("class {{ name }}: pass\n")
        (self.root / NAME / "src").mkdir()
        (self.root / NAME / "src" / "big.c").write_text("int a;\n")
        step = self.root / NAME / ".torchstack" / "steps" / "base"
        step.mkdir(parents=True)
        (step / "stamp.json").write_text('{"nonce": "1", "digest": "d"}')
        (step / "log").write_text("a log\n")
        (self.root / ".torchstack" / NAME).mkdir(parents=True)
        resolved = {"release": NAME, "site": "mysite", "digest": "d", "python": {"executable": sys.executable}}
        (self.root / NAME / ".torchstack" / "release.yml").write_text(yaml.safe_dump(resolved))

    def play(self, tasks: list) -> str:
        """Run tasks; the console."""
        playbook = self.top / "play.yml"
        playbook.write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
        command = [os.path.join(os.path.dirname(sys.executable), "ansible-playbook"), "-i", "localhost,", "-c", "local"]
        process = subprocess.run(
            [*command, str(playbook)], env=dict(self.environment, PYTHONUNBUFFERED="1"),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )
        assert process.returncode == 0, process.stdout[-6000:]
        return process.stdout

    def role(self, root: pathlib.Path, name: str, **what: Any) -> dict:
        """The task that runs a role, or a part of it, on the release in a root."""
        of_release = {
            "torchstack_root": str(root), "torchstack_release": NAME, "torchstack_site": "mysite",
            "release_file": "/nonexistent", "torchstack_required_bytes": 0, "torchstack_required_inodes": 0,
        }
        return {"ansible.builtin.include_role": {"name": "hpcml.torchstack." + name, **what}, "vars": of_release}
