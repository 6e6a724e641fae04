# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the tests of conda_environment share: a channel, places for prefixes, and the module's work without Ansible."""

from __future__ import annotations

import json
import os
import pathlib
import stat
import subprocess
import sys

import pytest
from support import conda_channel

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
DRIVER = """
import json, os, signal, sys
from ansible_collections.hpcml.torchstack.plugins.module_utils.conda import environment as conda_prefixes
from ansible_collections.hpcml.torchstack.plugins.module_utils.conda import rattler_worker as conda_worker
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
if os.environ.get("FAULTS_ACTION") == "kill":
    conda_worker.Worker.stop = lambda _: os.kill(os.getpid(), signal.SIGKILL)
try:
    params = json.loads(sys.argv[1])
    environment = conda_prefixes.Environment(params, sys.argv[2] == "apply", sys.argv[3])
    outcome = environment.absent() if params["state"] == "absent" else environment.present()
    print(json.dumps(conda_prefixes.as_result(outcome, "linux-64", params["optional_specs"])))
except StackError as error:
    print(json.dumps(dict(error.as_result(), failed=True)))
"""
DEFAULTS = {
    "state": "present", "channels": [], "specs": None, "optional_specs": [], "lock": None, "shared_caches": [],
    "mirrors": None, "virtual_packages": None, "channel_priority": "strict", "platform": None, "link_method": "copy",
    "link_scripts": False, "verify": "files", "accept_defaults_licence": False, "state_dir": None, "log": None,
}
DIRECTLY = {"no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}
"""Variables by which a server on this machine is asked without a proxy."""

_channels: list[conda_channel.Channel] = []


def channel(tmp_path_factory):
    """The channel of real packages, built once for all tests; they leave it as it is."""
    lacking = conda_channel.needed_tools()
    if lacking:
        pytest.skip("no channel can be built: missing " + ", ".join(lacking))
    if not _channels:
        directory = tmp_path_factory.mktemp("channel") / "toys"
        _channels.append(conda_channel.build(directory, tmp_path_factory.mktemp("stages")))
    return _channels[0]


def spoil(channel, kind, tmp_path):
    """A copy of the channel in which a package is damaged in one way."""
    bad = channel.copy(tmp_path / "bad")
    archive = bad.package("libtoy")
    if kind == "another package":
        index = bad.directory / conda_channel.SUBDIR / "repodata.json"
        text = json.loads(index.read_text())
        text["packages.conda"][archive.name]["sha256"] = "1" * 64
        index.write_text(json.dumps(text))
    elif kind == "truncated":
        archive.write_bytes(archive.read_bytes()[:3000])
    elif kind == "missing":
        archive.unlink()
    return bad


class Place:
    """A release to be, with the module's options for the small packages."""

    def __init__(self, channel, cache, directory):
        self.channel = channel
        self.cache = cache
        self.release = directory / "release"
        self.release.mkdir()

    def __call__(self, *specs, **more):
        found = {
            "prefix": str(self.release / "base"), "channels": [self.channel.url], "cache": str(self.cache),
            "specs": list(specs or ("libtoy",)),
        }
        found.update(more)
        return {key: value for key, value in found.items() if value is not None}


class Driver:
    """Runs the module's work in a process of its own, without Ansible around it."""

    def __init__(self, collections_path, tmp_path_factory):
        self.environment = dict(os.environ, PYTHONPATH=str(collections_path), PYTHONDONTWRITEBYTECODE="1")
        self.scratch = tmp_path_factory

    def __call__(self, arguments, variables=None, check=False):
        return subprocess.run(
            command(arguments, "check" if check else "apply", self.scratch.mktemp("scratch")),
            env={**self.environment, **(variables or {})}, capture_output=True, text=True, check=False,
        )

    def begin(self, arguments, variables=None):
        """Start it; the caller waits for the answer."""
        environment = {**self.environment, **(variables or {})}
        return subprocess.Popen(command(arguments), env=environment, stdout=subprocess.PIPE, text=True)


def names(packages):
    return [package["name"] for package in packages]


def prefix_of(arguments):
    return pathlib.Path(arguments["prefix"])


def tree(prefix):
    """Everything in a prefix, but for the date in its history."""
    found = {}
    for path in sorted(prefix.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        if path.is_symlink():
            found[str(path.relative_to(prefix))] = os.readlink(path)
        elif path.is_file():
            content = path.read_bytes()
            if path.name == "history":
                content = b"".join(line for line in content.splitlines(True) if not line.startswith(b"==>"))
            found[str(path.relative_to(prefix))] = (mode, content)
        else:
            found[str(path.relative_to(prefix))] = mode
    return found


def command(arguments, how="apply", scratch="/nonexistent"):
    return [sys.executable, "-c", DRIVER, json.dumps(dict(DEFAULTS, **arguments)), how, str(scratch)]


def answer(process):
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)
