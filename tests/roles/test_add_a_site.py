# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""docs/how-to/add-a-site.md, followed to the letter: a third Cray site, with data only."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from support import cray_site

TOP = pathlib.Path(__file__).parents[2]
# A file under its name, or commands.
BLOCKS = re.compile(r"^(?:`(?P<path>[^`\n]+)`:\n\n)?```(?P<kind>yaml|sh)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
PARTS = ("inventories", "playbooks", "plugins", "rehearsal", "roles", "meta")


class Reader:
    """Somebody with a checkout who does what the document says."""

    def __init__(self, directory):
        self.checkout = directory / "ansible_collections" / "hpcml" / "torchstack"
        self.place = cray_site.Place(directory / "opt", "examplecray-login1")
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "TORCHSTACK_"))},
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_COLLECTIONS_PATH": str(directory),
            "ANSIBLE_HOME": str(directory / "ansible"),
            "ANSIBLE_NOCOLOR": "1",
            "PATH": "%s:%s" % (os.path.dirname(sys.executable), os.environ["PATH"]),
        }
        for part in PARTS:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(TOP / part, self.checkout / part, ignore=ignored, symlinks=True)
        for name in ("ansible.cfg", "galaxy.yml"):
            shutil.copy(TOP / name, self.checkout)

    def follow(self, text):
        """Write every file and run every command; the output of the last command."""
        done = None
        for block in BLOCKS.finditer(text):
            if block["kind"] == "sh":
                done = self.place.run("bash", "-euc", block["text"], cwd=self.checkout, env=self.environment)
                assert done.returncode == 0, "%s\n%s" % (block["text"], done.stdout)
            else:
                path = self.checkout / block["path"]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block["text"])
        return done.stdout

    def run_elsewhere(self, *command):
        return subprocess.run(
            command, cwd=self.checkout, env=self.environment, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    lacks = cray_site.missing_means() or ("" if shutil.which("patch") else "not installed: GNU patch")
    if lacks:
        pytest.skip("The site cannot be played: %s." % lacks)
    reader = Reader(tmp_path_factory.mktemp("reader"))
    reader.place.furnish()
    return reader


@pytest.fixture(scope="module")
def plan(reader):
    """What the last command of the document printed: the check on the site."""
    return " ".join(reader.follow((TOP / "docs" / "how-to" / "add-a-site.md").read_text()).split())


def test_the_documented_site_is_planned_to_the_last_step_with_data_only(plan):
    for step in ("nccl", "nccl-plugin", "pytorch-source", "pytorch", "mpi4py", "package-torchvision"):
        assert re.search(r"[ -]%s\b" % step, plan), step
    assert "failed=0" in plan


def test_on_any_other_machine_the_check_is_one_sentence_that_names_the_rehearsal(reader, plan):
    del plan
    done = reader.run_elsewhere("ansible-playbook", "playbooks/examplecray.yml", "--check", "--diff")
    assert done.returncode != 0
    said = " ".join(done.stdout.split())
    assert "is not the site examplecray: its host name is not like examplecray-login*, and it has no " in said
    assert "run its rehearsal: make rehearse SITE=examplecray." in said


def test_without_an_account_nothing_is_submitted_and_one_sentence_says_so(reader, plan):
    del plan
    done = reader.place.run(
        "ansible-playbook", "playbooks/examplecray.yml", cwd=reader.checkout, env=reader.environment)
    assert done.returncode != 0
    said = " ".join(done.stdout.split())
    assert "Jobs of site examplecray are charged to a project, and none is named. Set TORCHSTACK_ACCOUNT" in said
    assert not (reader.place.directory / "software" / "torchstack").exists()
