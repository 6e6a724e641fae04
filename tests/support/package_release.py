# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""An open release with a base of small wheels, into which the role python_packages installs."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import base as bases
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import packages
from support import sites

CHECKOUT = pathlib.Path(__file__).parents[2]
PROGRAM = CHECKOUT / "roles" / "python_packages" / "files" / "package.py"
MINOR = "%d.%d" % sys.version_info[:2]
PYTHON = getattr(sys, "_base_executable", sys.executable)


def make_wheel(directory, name, version, files=None, requires=(), commands=()):
    """A wheel of a few text files; its path."""
    directory.mkdir(parents=True, exist_ok=True)
    contents = {"%s/__init__.py" % name: "version = %r\n" % version} if files is None else dict(files)
    info = "%s-%s.dist-info/" % (name, version)
    contents[info + "METADATA"] = "Metadata-Version: 2.1\nName: %s\nVersion: %s\n%s" % (
        name, version, "".join("Requires-Dist: %s\n" % requirement for requirement in requires))
    contents[info + "WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    if commands:
        contents[info + "entry_points.txt"] = "[console_scripts]\n" + "".join("%s = os:getcwd\n" % c for c in commands)
    record = "".join(
        "%s,sha256=%s,%d\n" % (
            path, base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("="), len(text))
        for path, text in contents.items())
    contents[info + "RECORD"] = record + info + "RECORD,,\n"
    path = directory / ("%s-%s-py3-none-any.whl" % (name, version))
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in contents.items():
            archive.writestr(inside, text)
    return path


def locked(path):
    """The lock of a wheel, as an entry has it."""
    name, version = path.name.split("-")[:2]
    return "%s==%s --hash=sha256:%s" % (name, version, hashlib.sha256(path.read_bytes()).hexdigest())


def entry(path, **keys):
    """An entry of ``packages`` for a wheel that lies in a directory."""
    name, version = path.name.split("-")[:2]
    return {"name": name, "version": version, "licence": "MIT", "lock": locked(path), "index": str(path.parent),
            "imports": [name], **keys}


def git(directory, *arguments):
    """Run git as somebody who allows submodules from directories."""
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always"]
    process = subprocess.run(
        ["git", *identity, *arguments], cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False, env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"},
    )
    assert process.returncode == 0, process.stdout
    return process.stdout.strip()


def build_tools(place):
    """The build tools of the local release, as far as packages need them, in a directory that is made."""
    release = sites.load_release(CHECKOUT / "inventories/local/releases/2026-11-20.yml")
    wanted = re.findall(r"^(?:pip|setuptools|wheel|packaging)==(?:.*\\\n)*.*\n", release["locks"]["tools"], re.M)
    subprocess.run([PYTHON, "-m", "venv", str(place)], check=True)
    (place / "lock").write_text("".join(wanted))
    process = subprocess.run(
        [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes",
         "--requirement", str(place / "lock")],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )
    if process.returncode:
        pytest.skip("pip cannot fetch the build tools here: " + process.stdout[-300:])
    for program in ("fetch-locked", "fetch-git", "node_jobs.py"):
        shutil.copy(CHECKOUT / "roles" / "python_tools" / "files" / program, place / "bin")
    (place / "bin" / "explain-fetch").write_text("#!/bin/sh\nexit 1\n")
    for program in ("fetch-locked", "fetch-git", "explain-fetch"):
        (place / "bin" / program).chmod(0o755)
    return place


class Release:
    """An open release whose base has a numpy and a torch of our own."""

    def __init__(self, place, tools, environment):
        self.prefix, self.tools, self.environment = place / "release", tools, environment
        self.base = self.prefix / "base"
        self.site = self.base / "lib" / ("python" + MINOR) / "site-packages"
        self.records = self.prefix / ".torchstack"
        (self.records / "steps").mkdir(parents=True)
        (self.base / "site").mkdir(parents=True)
        shutil.copy(CHECKOUT / "roles" / "python_tools" / "files" / "sitecustomize.py", self.base / "site")
        self.wheels = place / "index"
        for name, version in (("numpy", "2.4.6"), ("torch", "2.13.0+cpu")):
            self.put(make_wheel(self.wheels, name, version))

    def described(self):
        """The base, as roles take it; its tools are those of the test."""
        definition = {"base": {"kind": "python_overlay"}, "locks": {"tools": ""}}
        facts = {"executable": PYTHON, "minor": MINOR, "tag": "", "platform": ""}
        base = bases.describe(definition, str(self.prefix.parent), self.prefix.name, facts)
        base["pip"]["command"][0] = str(self.tools / "bin" / "python")
        return base

    def put(self, wheel):
        """Install a wheel into the base, as its own steps do."""
        environment = {**os.environ, "PYTHONUSERBASE": str(self.base), "PIP_BREAK_SYSTEM_PACKAGES": "1"}
        environment.update(PYTHONPATH="", PYTHONNOUSERSITE="")
        subprocess.run(
            [str(self.tools / "bin" / "python"), "-m", "pip", "--python", PYTHON, "install", "--quiet", "--user",
             "--no-deps", "--no-index", "--no-warn-script-location", str(wheel)], env=environment, check=True)

    def snapshot(self):
        """Content of all below the base by path, but for caches of byte code."""
        return {
            str(path.relative_to(self.base)): path.read_bytes()
            for path in self.base.rglob("*") if path.is_file() and "__pycache__" not in path.parts
        }

    def installed(self):
        """Names and versions of what the base has."""
        return sorted(path.name[: -len(".dist-info")] for path in self.site.glob("*.dist-info"))

    def roll_out(self, entries, *arguments, bundles=(), files=(), **environment):
        """Run the role for these entries, bundles and files; its exit code and what it printed."""
        variables = self.prefix.parent / "variables.json"
        variables.write_text(json.dumps({
            "python_packages_needs": [],
            "release_context": {
                "prefix": str(self.prefix), "records": str(self.records), "tools": str(self.tools), "frozen": False,
                "python": {"executable": PYTHON}, "base": self.described(), "mpi": {"bin": "/usr/bin"},
                "compilers": {"CC": "cc", "CXX": "c++"},
                "definition": {"packages": entries, "bundles": list(bundles), "files": list(files)},
            },
        }))
        playbook = self.prefix.parent / "playbook.yml"
        playbook.write_text("- hosts: localhost\n  gather_facts: false\n  roles: [hpcml.torchstack.python_packages]\n")
        process = subprocess.run(
            [os.path.join(os.path.dirname(sys.executable), "ansible-playbook"), "-i", "localhost,", "-c", "local",
             "-e", "@%s" % variables, str(playbook), *arguments],
            env={**self.environment, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False,
        )
        return process.returncode, " ".join(process.stdout.split())

    def program(self, mode, asked, *wheels):
        """Run the program that installs, with these wheels as what was fetched; its exit code and what it printed."""
        stage = self.prefix / "src" / asked["name"]
        shutil.rmtree(stage, ignore_errors=True)
        (stage / "wheels").mkdir(parents=True)
        (stage / "constraints.txt").touch()
        for wheel in wheels:
            shutil.copy(wheel, stage / "wheels")
        planned = packages.planned_packages([asked])[0]
        settings = {
            **{key: planned[key] for key in ("key", "name", "reports", "owns", "imports", "no_deps", "licence")},
            "base": str(self.base), "minor": MINOR, "python": PYTHON, "site": str(self.site),
            **{key: self.described()[key] for key in ("customization", "pip")},
            "process": self.described()["environment"],
            "records": str(self.records), "wheels": str(self.prefix / "wheels"), "stage": str(stage),
            "environment": [], "config_settings": False, "built": False, "origin": {},
        }
        process = subprocess.run(
            [str(self.tools / "bin" / "python"), str(PROGRAM), mode, json.dumps(settings)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )
        return process.returncode, process.stdout
