# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A freeze that was interrupted after any of its phases is completed by the next one."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys

import pytest
import yaml

PHASES = ("begin", "drop", "bytecode", "logs", "sbom", "permissions", "record")


NAME = "2026-11-20"


class Release:
    """A small release, and a copy of its root for each phase after which its freeze stops."""

    def __init__(self, top, environment):
        self.top, self.environment = top, environment
        self.root = top / "root"
        self.make()

    def make(self):
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

    def stopped(self, phase):
        """The root as it was after a phase."""
        return self.top / ("stopped-after-" + phase)

    def play(self, tasks):
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

    def role(self, root, name, **what):
        """The task that runs a role, or a part of it, on the release in a root."""
        of_release = {
            "torchstack_root": str(root), "torchstack_release": NAME, "torchstack_site": "mysite",
            "release_file": "/nonexistent", "torchstack_required_bytes": 0, "torchstack_required_inodes": 0,
        }
        return {"ansible.builtin.include_role": {"name": "hpcml.torchstack." + name, **what}, "vars": of_release}


@pytest.fixture(scope="module")
def completed(tmp_path_factory, ansible_environment):
    """A release whose freeze was stopped, in one place after each phase, and then completed."""
    release = Release(tmp_path_factory.mktemp("freeze"), ansible_environment)
    stopping = [release.role(release.root, "release", tasks_from="context")]
    for phase in PHASES:
        copy = {"argv": ["cp", "-a", str(release.root), str(release.stopped(phase))]}
        stopping += [release.role(release.root, "freeze", tasks_from=phase), {"ansible.builtin.command": copy}]
    release.play(stopping)
    for phase in PHASES[:-1]:
        # The marker is the phase's only trace where nothing else was done.
        assert (release.stopped(phase) / ".torchstack" / NAME / "freezing.json").exists()
    completing = []
    for phase in PHASES:
        completing.append(release.role(release.stopped(phase), "release", tasks_from="context"))
        completing.append(release.role(release.stopped(phase), "freeze"))
    release.play(completing)
    yield release
    subprocess.run(["chmod", "-R", "u+w", str(release.top)], check=True)


@pytest.fixture(params=PHASES)
def release(completed, request):
    return completed.stopped(request.param) / NAME


def test_an_interrupted_freeze_is_completed(release):
    records = release.parent / ".torchstack" / release.name
    assert not (records / "freezing.json").exists()
    frozen = json.loads((records / "frozen.json").read_text())
    assert frozen["digest"] == "d"
    assert frozen["manifest"]["files"] > 3
    assert frozen["logs"]["archive"].endswith("/.torchstack/%s/logs.tar.gz" % NAME)
    assert (records / "logs.tar.gz").exists()
    assert not (release / "src").exists()
    for path in [release, *release.rglob("*")]:
        assert stat.S_IMODE(path.lstat().st_mode) & 0o222 == 0, path


def test_what_cannot_be_compiled_is_counted_and_the_rest_has_bytecode(release):
    record = json.loads((release / ".torchstack" / "bytecode.json").read_text())
    assert record["failed"] == ["base/lib/python3/site-packages/template.py"]
    assert record["files"] == 2
    assert [path.name.split(".")[0] for path in release.rglob("*.pyc")] == ["good"]
    assert "template.py: SyntaxError" in (release / ".torchstack" / "steps" / "bytecode" / "log").read_text()


def test_the_manifest_is_the_one_that_the_freeze_names(release):
    frozen = json.loads((release.parent / ".torchstack" / release.name / "frozen.json").read_text())
    manifest = json.loads((release / ".torchstack" / "manifest.json").read_text())
    paths = [entry["path"] for entry in manifest["entries"]]
    assert "base/lib/python3/site-packages/good.py" in paths
    assert frozen["manifest"]["digest"] in json.dumps({key: manifest[key] for key in manifest if key != "entries"})


def test_the_statement_of_where_it_comes_from_is_about_that_manifest(release):
    statement = json.loads((release.parent / ".torchstack" / release.name / "provenance.json").read_text())
    (subject,) = statement["subject"]
    content = (release / ".torchstack" / "manifest.json").read_bytes()
    assert subject["digest"]["sha256"] == hashlib.sha256(content).hexdigest()
    build = statement["predicate"]["buildDefinition"]
    assert [step["name"] for step in build["internalParameters"]["steps"]] == ["base", "bytecode"]
