# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Steps of a rollout take everything from a mirror, and a rollout without something refuses to begin."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import base as bases
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror import mirror
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror.environment import mirror_context
from ansible_collections.hpcml.torchstack.plugins.modules import release_mirror
from support import sites
from support.package_release import CHECKOUT, MINOR, PYTHON, git, locked, make_wheel

LOCAL = CHECKOUT / "inventories" / "local" / "releases" / "2026-11-20.yml"
REFUSED = "http://127.0.0.1:9"
PROJECT = """
from setuptools import setup
setup(name=%r, version="1.0", py_modules=["%s"])
"""
PLAYBOOK = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.include_role:
        name: hpcml.torchstack.python_tools
        tasks_from: environment
        apply: {environment: "{{ release_context.mirror.environment }}"}
    - ansible.builtin.include_role:
        name: hpcml.torchstack.python_packages
"""


def play(place, environment, name, text, variables, *arguments, closed=True):
    """Run a playbook, by default without network; its exit code and what it printed."""
    (place / (name + ".json")).write_text(json.dumps(variables))
    (place / (name + ".yml")).write_text(text)
    command = [
        os.path.join(os.path.dirname(sys.executable), "ansible-playbook"), "-i", "localhost,", "-c", "local",
        "-e", "@%s" % (place / (name + ".json")), str(place / (name + ".yml")), *arguments]
    unshare = ["unshare", "--map-current-user", "--net"]
    if closed and subprocess.run([*unshare, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
        command = unshare + command
    shut = {name: REFUSED for name in ("http_proxy", "https_proxy", "all_proxy")} if closed else {}
    kept = {name: value for name, value in environment.items() if not name.startswith(("PIP_", "TORCHSTACK_"))}
    process = subprocess.run(
        command, env={**kept, **shut, "PIP_CONFIG_FILE": os.devnull}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=False)
    return process.returncode, " ".join(process.stdout.split())


def make_project(place, name):
    """A git repository of a project with a submodule, and a source archive of another one; the entries for both."""
    part, tree, source = place / "part", place / name, place / "far-1.0"
    for directory in (part, tree, source):
        directory.mkdir()
    for directory in (part, tree):
        git(directory, "init", "--quiet", "--initial-branch=main")
    (part / "part.txt").write_text("part")
    git(part, "add", ".")
    git(part, "commit", "--quiet", "--message=one")
    (tree / "setup.py").write_text("open('part/part.txt').close()\n" + PROJECT % (name, name))
    (tree / (name + ".py")).write_text("")
    git(tree, "submodule", "--quiet", "add", str(part), "part")
    git(tree, "add", ".")
    git(tree, "commit", "--quiet", "--message=one")
    (source / "setup.py").write_text(PROJECT % ("far", "far"))
    (source / "far.py").write_text("")
    (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: far\nVersion: 1.0\n")
    archive = place / "far-1.0.tar.gz"
    with tarfile.open(archive, "w:gz") as stream:
        stream.add(source, "far-1.0")
    return [
        {"name": name, "version": "1.0", "licence": "MIT", "imports": [name], "repository": str(tree),
         "commit": git(tree, "rev-parse", "HEAD")},
        {"name": "far", "version": "1.0", "licence": "MIT", "imports": ["far"], "archive": archive.as_uri(),
         "sha256": hashlib.sha256(archive.read_bytes()).hexdigest()},
    ]


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A mirror of the local release's build tools and of three packages, whose origins are gone."""
    place = tmp_path_factory.mktemp("offline")
    locks = sites.load_release(LOCAL)["locks"]
    tools = "".join(re.findall(r"^(?:pip|setuptools|wheel|packaging)==(?:.*\\\n)*.*\n", locks["tools"], re.M))
    wheel = make_wheel(place / "origins" / "wheels", "tiny", "1.0")
    (place / "origins").mkdir(exist_ok=True)
    entries = make_project(place / "origins", "near")
    entries.append({"name": "tiny", "version": "1.0", "licence": "MIT", "imports": ["tiny"], "lock": locked(wheel),
                    "index": str(wheel.parent)})
    definition = {
        "release": "offline", "base": {"kind": "python_overlay"}, "locks": {"tools": tools, "base": ""},
        "packages": entries}
    params = {
        "path": str(place / "the mirror"), "state": "present", "definition": definition, "parts": ["python"],
        "python": PYTHON, "interpreter": {}, "mpi_wheel": False, "conda_channels": [], "conda_mirrors": {},
        "conda_platform": "", "timeout": 60, "phase": None, "files": []}
    allowed = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "protocol.file.allow", "GIT_CONFIG_VALUE_0": "always"}
    before = {name: os.environ.get(name) for name in allowed}
    os.environ.update(allowed)
    try:
        release_mirror.carry_out(mirror.Mirror(params, os.environ, str(place)), params, False)
    except StackError as error:
        if "tiny" in error.message or "cannot be found" not in error.message:
            raise
        pytest.skip("the build tools cannot be fetched here: " + error.message[:300])
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    shutil.rmtree(place / "origins")
    return place, definition


def test_tools_wheels_archives_and_commits_come_from_the_mirror_with_the_network_closed(filled, ansible_environment):
    place, definition = filled
    prefix = place / "release"
    (prefix / ".torchstack" / "steps").mkdir(parents=True)
    (prefix / "base" / "site").mkdir(parents=True)
    shutil.copy(CHECKOUT / "roles" / "python_tools" / "files" / "sitecustomize.py", prefix / "base" / "site")
    facts = {"executable": PYTHON, "minor": MINOR, "tag": "", "platform": ""}
    base = bases.describe(definition, str(place), "release", facts)
    context = {
        "prefix": str(prefix), "records": str(prefix / ".torchstack"), "tools": base["tools"], "frozen": False,
        "python": {"executable": PYTHON}, "base": base, "mpi": {"bin": "/usr/bin"},
        "compilers": {"CC": "cc", "CXX": "c++"}, "definition": definition,
        "mirror": mirror_context(str(place / "the mirror"), definition, ())}
    variables = {"python_packages_needs": [], "release_context": context}
    code, said = play(place, ansible_environment, "rollout", PLAYBOOK, variables)
    logs = "".join(path.read_text()[-2000:] for path in (prefix / ".torchstack" / "steps").glob("*/log"))
    assert code == 0, said[-2000:] + logs
    site = pathlib.Path(base["site_packages"])
    assert sorted(path.name for path in site.glob("*.dist-info")) == [
        "far-1.0.dist-info", "near-1.0.dist-info", "tiny-1.0.dist-info"]
    # The same steps without the mirror have been done already: the mirror is no part of what they are.
    context["mirror"] = mirror_context("", definition, ())
    code, said = play(place, ansible_environment, "again", PLAYBOOK, variables)
    assert code == 0 and re.search(r"ok=\d+ +changed=0 ", said), said[-2000:]


def test_a_rollout_whose_mirror_lacks_something_says_all_of_it_and_does_not_begin(tmp_path, ansible_environment):
    (tmp_path / "mirror").mkdir()
    variables = {
        "torchstack_root": str(tmp_path / "root"), "torchstack_release": "2026-11-20", "torchstack_site": "local",
        "torchstack_required_bytes": 1000, "torchstack_required_inodes": 10, "release_file": str(LOCAL),
        "release_python": PYTHON, "torchstack_mirror": str(tmp_path / "mirror")}
    text = "- hosts: localhost\n  gather_facts: false\n  roles: [hpcml.torchstack.release]\n"
    code, said = play(tmp_path, ansible_environment, "rollout", text, variables)
    assert code != 0 and "things that release 2026-11-20 needs" in said, said[-2000:]
    horovod = sites.load_release(LOCAL)["horovod"]
    assert "horovod %s (sha256 %s), for horovod" % (horovod["version"], horovod["sha256"]) in said
    assert "for locks.tools" in said and "for package einops" in said
    assert not (tmp_path / "root").exists() and os.listdir(tmp_path / "mirror") == []
