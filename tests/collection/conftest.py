# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The collection's tarball, and an empty home in which it is installed."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tarfile

import pytest

TOP = pathlib.Path(__file__).parents[2]
PROGRAMS = pathlib.Path(sys.executable).parent


class Installed:
    """A home with nothing in it but the installed collection."""

    def __init__(self, home):
        self.home = home
        self.collections = home / "collections"
        self.place = self.collections / "ansible_collections" / "hpcml" / "torchstack"
        self.environment = {
            "HOME": str(home), "PATH": "%s:/usr/local/bin:/usr/bin:/bin" % PROGRAMS, "LC_ALL": "C.UTF-8",
            "ANSIBLE_NOCOLOR": "1", "ANSIBLE_COLLECTIONS_PATH": str(self.collections),
            "ANSIBLE_COLLECTIONS_SCAN_SYS_PATH": "false",
        }

    def run(self, *words, cwd=None, **environment):
        """Run a program; its exit code and all that it said, in one line."""
        done = subprocess.run(
            [str(word) for word in words], cwd=cwd or self.home, env={**self.environment, **environment}, text=True,
            check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, " ".join(done.stdout.split())


@pytest.fixture(scope="session")
def tarball(tmp_path_factory):
    """What `ansible-galaxy collection build` makes of the files that git has, or would have."""
    copy = tmp_path_factory.mktemp("copy")
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=TOP,
        check=True, stdout=subprocess.PIPE)
    with tarfile.open(copy / "files.tar.gz", "w") as archive:
        for name in filter(None, os.fsdecode(listed.stdout).split("\0")):
            if os.path.lexists(TOP / name):
                archive.add(TOP / name, name)
    with tarfile.open(copy / "files.tar.gz") as archive:
        archive.extractall(copy)
    # What work in a clone leaves behind is not shipped either.
    for name in (".venv-dev", ".cache", ".pytest_cache", ".env.yml"):
        (copy / name).mkdir()
        (copy / name / "left").touch()
    out = tmp_path_factory.mktemp("built")
    subprocess.run([PROGRAMS / "ansible-galaxy", "collection", "build", "--output-path", out, copy], check=True)
    (built,) = out.iterdir()
    return built


@pytest.fixture(scope="session")
def installed(tarball, tmp_path_factory):
    made = Installed(tmp_path_factory.mktemp("home"))
    code, said = made.run("ansible-galaxy", "collection", "install", "--offline", tarball, "-p", made.collections)
    assert code == 0, said
    return made
