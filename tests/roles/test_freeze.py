# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A freeze that was interrupted after any of its phases is completed by the next one."""

from __future__ import annotations

import hashlib
import json
import stat
import subprocess

import pytest
from support.freezable_release import NAME, Release

PHASES = ("begin", "drop", "bytecode", "logs", "sbom", "permissions", "record")


def stopped(release, phase):
    """The root as it was after a phase."""
    return release.top / ("stopped-after-" + phase)


@pytest.fixture(scope="module")
def completed(tmp_path_factory, ansible_environment):
    """A release whose freeze was stopped, in one place after each phase, and then completed."""
    release = Release(tmp_path_factory.mktemp("freeze"), ansible_environment)
    stopping = [release.role(release.root, "release", tasks_from="context")]
    for phase in PHASES:
        copy = {"argv": ["cp", "-a", str(release.root), str(stopped(release, phase))]}
        stopping += [release.role(release.root, "freeze", tasks_from=phase), {"ansible.builtin.command": copy}]
    release.play(stopping)
    for phase in PHASES[:-1]:
        # The marker is the phase's only trace where nothing else was done.
        assert (stopped(release, phase) / ".torchstack" / NAME / "freezing.json").exists()
    completing = []
    for phase in PHASES:
        completing.append(release.role(stopped(release, phase), "release", tasks_from="context"))
        completing.append(release.role(stopped(release, phase), "freeze"))
    release.play(completing)
    yield release
    subprocess.run(["chmod", "-R", "u+w", str(release.top)], check=True)


@pytest.fixture(params=PHASES)
def release(completed, request):
    return stopped(completed, request.param) / NAME


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
