# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A freeze that was interrupted after any of its phases is completed by the next one."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys

import pytest
import yaml

PHASES = ("begin", "drop", "bytecode", "logs", "permissions", "record")


class Releases:
    """One small release for each phase after which a freeze stops, all in one root."""

    def __init__(self, root, environment):
        self.root, self.environment = root, environment
        self.names = ["stopped-after-" + phase for phase in PHASES]
        for name in self.names:
            self.make(name)

    def make(self, name):
        packages = self.root / name / "base" / "lib" / "python3" / "site-packages"
        packages.mkdir(parents=True)
        (packages / "good.py").write_text("ANSWER = 42\n")
        (packages / "template.py").write_text("class {{ name }}: pass\n")
        (self.root / name / "src").mkdir()
        (self.root / name / "src" / "big.c").write_text("int a;\n")
        step = self.root / name / ".torchstack" / "steps" / "base"
        step.mkdir(parents=True)
        (step / "stamp.json").write_text('{"nonce": "1", "digest": "d"}')
        (step / "log").write_text("a log\n")
        (self.root / ".torchstack" / name).mkdir(parents=True)
        resolved = {"release": name, "site": "mysite", "digest": "d", "python": {"executable": sys.executable}}
        (self.root / name / ".torchstack" / "release.yml").write_text(yaml.safe_dump(resolved))

    def play(self, tasks):
        """Run tasks with the root known; the console."""
        play = {"hosts": "localhost", "gather_facts": False, "vars": {"torchstack_root": str(self.root)}}
        play["tasks"] = tasks
        playbook = self.root.parent / "play.yml"
        playbook.write_text(yaml.safe_dump([play]))
        command = [os.path.join(os.path.dirname(sys.executable), "ansible-playbook"), "-i", "localhost,", "-c", "local"]
        process = subprocess.run(
            [*command, str(playbook)], env=dict(self.environment, PYTHONUNBUFFERED="1"),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )
        assert process.returncode == 0, process.stdout[-6000:]
        return process.stdout

    def freeze(self, name, phases=()):
        """The tasks that freeze one release, or only do the first phases of that."""
        of_release = {
            "torchstack_release": name, "torchstack_site": "mysite", "release_file": "/nonexistent",
            "torchstack_required_bytes": 0, "torchstack_required_inodes": 0,
        }

        def role(name, **what):
            return {"ansible.builtin.include_role": {"name": "hpcml.torchstack." + name, **what}, "vars": of_release}

        found = role("release", tasks_from="context")
        return [found, *([role("freeze", tasks_from=phase) for phase in phases] if phases else [role("freeze")])]


@pytest.fixture(scope="module")
def completed(tmp_path_factory, ansible_environment):
    """Releases whose freezes were stopped and then completed."""
    releases = Releases(tmp_path_factory.mktemp("freeze") / "root", ansible_environment)
    stopped = []
    for index, name in enumerate(releases.names):
        stopped += releases.freeze(name, PHASES[: index + 1])
    releases.play(stopped)
    for name in releases.names[:-1]:
        # The marker is the phase's only trace where nothing else was done.
        assert (releases.root / ".torchstack" / name / "freezing.json").exists()
    releases.play([task for name in releases.names for task in releases.freeze(name)])
    yield releases
    subprocess.run(["chmod", "-R", "u+w", str(releases.root)], check=True)


@pytest.fixture(params=PHASES)
def release(completed, request):
    return completed.root / ("stopped-after-" + request.param)


def test_an_interrupted_freeze_is_completed(release):
    records = release.parent / ".torchstack" / release.name
    assert not (records / "freezing.json").exists()
    frozen = json.loads((records / "frozen.json").read_text())
    assert frozen["digest"] == "d"
    assert frozen["manifest"]["files"] > 3
    assert frozen["logs"]["archive"] == str(records / "logs.tar.gz")
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
