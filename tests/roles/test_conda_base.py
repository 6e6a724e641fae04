# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The conda base: planned before its tools are there, completed with what was solved, reduced to what conda brought."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
import yaml
from support import conda_channel

ROLES = pathlib.Path(__file__).parents[2] / "roles"
MINOR = "%d.%d" % sys.version_info[:2]
NOWHERE = getattr(sys, "_base_executable", sys.executable)
"""An interpreter without py-rattler."""


@pytest.fixture(scope="module")
def toys(tmp_path_factory):
    """A channel of packages without a Python, which no test here starts."""
    lacking = conda_channel.needed_tools()
    if lacking:
        pytest.skip("no channel can be built: missing " + ", ".join(lacking))
    channel = conda_channel.Channel(tmp_path_factory.mktemp("channel") / "toys")
    channel.add("toydata", "1.0.0", {"share/toydata": "1\n"})
    channel.add("toyuser", "1.0.0", {"share/toyuser": "1\n"}, ("toydata >=1.0",))
    channel.index()
    return channel


class Release:
    """A release whose base the role makes."""

    def __init__(self, place, channel, environment):
        self.place, self.channel, self.environment = place, channel, environment
        self.base = place / "root" / "2026-11-20" / "base"
        self.records = place / "root" / "2026-11-20" / ".torchstack"
        self.tools = place / "tools"

    def bring_tools(self):
        """An environment with py-rattler, in place of the one that the role makes."""
        (self.tools / "bin").mkdir(parents=True)
        program = self.tools / "bin" / "python"
        program.write_text("#!/bin/sh\nexec %s \"$@\"\n" % sys.executable)
        program.chmod(0o755)
        (self.records / "steps").mkdir(parents=True)

    def play(self, *tasks_from, specs=("toyuser",), arguments=()):
        """Run the role, or only some of its files; exit code and what was printed."""
        context = {
            "root": str(self.place / "root"), "release": "2026-11-20", "records": str(self.records), "frozen": False,
            "python": {"executable": NOWHERE}, "definition": {"locks": {"base": "", "conda": "", "tools": ""}},
            "tools": str(self.tools), "prefix": str(self.place / "root" / "2026-11-20"),
            "base": {"kind": "conda", "prefix": str(self.base), "minor": MINOR, "python": "", "conda": {
                "tools": str(self.tools), "channels": [self.channel.url], "specs": list(specs),
                "cache": str(self.place / "root" / ".torchstack" / "conda-pkgs"),
            }},
        }
        role = {"name": "hpcml.torchstack.conda_base", "public": True}
        tasks = [{"ansible.builtin.include_role": dict(role, **({"tasks_from": name} if name else {}))}
                 for name in tasks_from]
        playbook = self.place / "play.yml"
        playbook.write_text(yaml.safe_dump([{
            "hosts": "localhost", "gather_facts": False, "vars": {"release_context": context}, "tasks": tasks}]))
        program = os.path.join(os.path.dirname(sys.executable), "ansible-playbook")
        process = subprocess.run(
            [program, "-i", "localhost,", "-c", "local", str(playbook), *arguments], env=self.environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )
        return process.returncode, process.stdout

    def versions(self):
        """What conda knows to be there: name to version."""
        found = [json.loads(path.read_text()) for path in (self.base / "conda-meta").glob("*.json")]
        return {record["name"]: record["version"] for record in found}


@pytest.fixture()
def release(tmp_path, toys, ansible_environment):
    return Release(tmp_path, toys.copy(tmp_path / "channel"), ansible_environment)


def test_a_plan_before_there_is_py_rattler_says_after_which_step_and_writes_nothing(release):
    code, said = release.play("", arguments=("--check", "-v"))
    assert code == 0, said
    assert '"planned_after": "conda-tools"' in " ".join(said.split()) or "planned_after: conda-tools" in said, said
    assert not (release.place / "root").exists()
    assert not release.tools.exists()


def test_an_interrupted_release_gets_the_packages_that_were_solved_before(release):
    release.bring_tools()
    code, said = release.play("lock")
    assert code == 0, said
    assert release.versions() == {}
    release.channel.add("toydata", "2.0.0", {"share/toydata": "2\n"})
    release.channel.index()
    code, said = release.play("lock", "prefix")
    assert code == 0, said
    assert release.versions() == {"toydata": "1.0.0", "toyuser": "1.0.0"}
    code, said = release.play("lock", "prefix", specs=["toyuser", "toydata >=2"])
    assert code == 0, said
    assert release.versions() == {"toydata": "2.0.0", "toyuser": "1.0.0"}
    assert len(list((release.records / "conda").glob("[0-9a-f]*.lock"))) == 2


def conda_prefix(place, packages):
    """A prefix with records: package to its files."""
    (place / "conda-meta").mkdir(parents=True)
    for name, files in packages.items():
        (place / "conda-meta" / (name + ".json")).write_text(json.dumps({"name": name, "files": files}))
        for path in files:
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_text("of %s\n" % name)
    return place


def run(program, *arguments):
    """Run a program of a role; exit code and what was printed."""
    process = subprocess.run(
        [sys.executable, "-I", "-S", str(program), *map(str, arguments)], stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False,
    )
    return process.returncode, process.stdout


def test_a_prefix_is_reduced_to_what_conda_installed(tmp_path):
    prefix = conda_prefix(tmp_path / "base", {"toy": ["lib/toy.py", "bin/toy", "share/a/b"]})
    (prefix / "bin" / "link").symlink_to("toy")
    for path in ("lib/pip/installed.py", "lib/__pycache__/toy.pyc", "base.lock", "share/a/more"):
        (prefix / path).parent.mkdir(parents=True, exist_ok=True)
        (prefix / path).write_text("on top\n")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    (prefix / "lib" / "elsewhere").symlink_to(outside)
    code, said = run(ROLES / "conda_base" / "files" / "reduce.py", prefix, MINOR)
    assert code == 0, said
    left = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir()}
    assert left == {"conda-meta/toy.json", "lib/toy.py", "bin/toy", "share/a/b"}
    assert not (prefix / "lib" / "pip").exists()
    assert (outside / "kept").exists()


@pytest.mark.parametrize(("minor", "packages", "words"), [
    ("3.1", {"toy": ["bin/toy"]}, "base.python says 3.1, and the prefix has Python"),
    (MINOR, {}, "has no records of its packages"),
])
def test_a_prefix_that_is_not_what_was_asked_for_is_refused_untouched(tmp_path, minor, packages, words):
    prefix = conda_prefix(tmp_path / "base", packages)
    (prefix / "on-top").touch()
    code, said = run(ROLES / "conda_base" / "files" / "reduce.py", prefix, minor)
    assert code == 1
    assert words in said
    assert (prefix / "on-top").exists()


@pytest.mark.parametrize(("lock", "refused"), [
    ("numpy==2.4.6 \\\n    --hash=sha256:0\n", True),
    ("Num.Py[extra]==2.4.6 \\\n    --hash=sha256:0\n", False),
    ("pip_tool==1 \\\n    --hash=sha256:0\n", True),
    ("other==1 \\\n    --hash=sha256:0\n", False),
])
def test_a_lock_that_would_replace_what_conda_installed_is_refused(tmp_path, lock, refused):
    packages = "lib/python%s/site-packages" % MINOR
    prefix = conda_prefix(tmp_path / "base", {
        "numpy": [packages + "/numpy-1.26.4.dist-info/METADATA"],
        "tool": [packages + "/pip_tool-1.dist-info/METADATA"],
    })
    for name, version in (("numpy", "1.26.4"), ("pip-tool", "1")):
        place = prefix / packages / ("%s-%s.dist-info" % (name.replace("-", "_"), version))
        (place / "METADATA").write_text("Metadata-Version: 2.1\nName: %s\nVersion: %s\n" % (name, version))
    mine = prefix / packages / "other-1.dist-info"
    mine.mkdir()
    (mine / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    (prefix / "base.lock").write_text(lock)
    code, said = run(ROLES / "python_tools" / "files" / "refuse_replacements.py", prefix, prefix / packages)
    assert (code == 1) is refused, said
    assert ("Take it out of locks.base" in said) is refused
