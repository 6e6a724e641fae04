# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What fetch-git leaves: one commit with its submodules at theirs, all of it or nothing."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror import git_archive as mirror_git
from support.polling import eventually

PROGRAM = pathlib.Path(__file__).parents[2] / "roles" / "python_tools" / "files" / "fetch-git"
ADDRESS = "https://git.invalid/top"
QUIET = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}


def git(directory, *arguments, **environment):
    """Run git as somebody who allows submodules from directories."""
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always"]
    process = subprocess.run(
        ["git", *identity, *arguments], cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False, env={**QUIET, **environment},
    )
    assert process.returncode == 0, process.stdout
    return process.stdout.strip()


def commit(directory, message, **files):
    """Write files, commit them, and return the commit."""
    for name, text in files.items():
        (directory / name).write_text(text)
    git(directory, "add", ".")
    git(directory, "commit", "--quiet", "--allow-empty", "--message", message)
    return git(directory, "rev-parse", "HEAD")


class World:
    """A repository with a submodule that has one itself, behind the address of a server."""

    def __init__(self, place):
        self.place = place
        self.destination = place / "release" / "src" / "top"
        self.part = self.destination.with_name("top.part")
        repositories = {name: place / "server" / name for name in ("inner", "middle", "top")}
        for directory in repositories.values():
            directory.mkdir(parents=True)
            git(directory, "init", "--quiet", "--initial-branch=main")
        inner, middle, self.top = repositories.values()
        commit(inner, "first", text="inner 1")
        git(middle, "submodule", "--quiet", "add", str(inner), "parts/inner")
        commit(middle, "first", text="middle 1")
        # Upstream's .gitmodules are relative, or name the server.
        git(self.top, "submodule", "--quiet", "add", "../middle", "third_party/middle")
        git(self.top, "config", "--file", ".gitmodules", "submodule.third_party/middle.url", "https://git.invalid/middle")
        self.wanted = commit(self.top, "wanted", text="top 1")
        git(self.top, "tag", "--annotate", "--message", "release", "v1.0")
        for directory in ("kept/deep", "left"):
            (self.top / directory).mkdir(parents=True)
            (self.top / directory / "text").write_text(directory)
        self.wide = commit(self.top, "wide")
        commit(inner, "second", text="inner 2")
        commit(middle, "second", text="middle 2")
        git(self.top, "rm", "--quiet", "-r", "kept", "left")
        self.newer = commit(self.top, "newer", text="top 2")
        git(self.top, "tag", "v2.0")
        self.configuration = place / "gitconfig"
        self.configuration.write_text('[url "file://%s/server/"]\n\tinsteadOf = https://git.invalid/\n' % place)

    def start(self, *words, only="", **environment):
        return subprocess.Popen(
            [str(PROGRAM), *(["--only", only] if only else []), str(self.destination), ADDRESS, *words], text=True,
            env={**QUIET, "GIT_CONFIG_GLOBAL": str(self.configuration), **environment},
            start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )

    def fetch(self, *words, **environment):
        """Run it; the exit code and what it printed."""
        process = self.start(*words, **environment)
        said = process.communicate()[0]
        return process.returncode, said

    def files(self):
        """What the checkout holds, but for git's own files."""
        return {
            str(path.relative_to(self.destination)): path.read_text()
            for path in self.destination.rglob("*") if path.is_file() and ".git" not in str(path.name)
            and ".git" not in path.parts
        }


FIRST = {"text": "top 1", "third_party/middle/text": "middle 1", "third_party/middle/parts/inner/text": "inner 1"}


@pytest.fixture()
def world(tmp_path):
    return World(tmp_path)


def test_a_commit_is_checked_out_with_its_submodules_at_theirs_and_without_history(world):
    code, said = world.fetch(world.wanted, "v1.0")
    assert code == 0, said
    assert world.files() == FIRST and not world.part.exists()
    assert git(world.destination, "rev-parse", "HEAD", "v1.0^{commit}").split() == [world.wanted] * 2
    assert git(world.destination, "status", "--porcelain") == ""
    states = git(world.destination, "submodule", "status", "--recursive").splitlines()
    assert [line.split()[1] for line in states] == ["third_party/middle", "third_party/middle/parts/inner"]
    assert not [line for line in states if line[0] in "-+U"]
    assert git(world.destination, "rev-list", "--count", "--all") == "1"


def test_a_tree_that_was_worked_in_is_made_as_it_was_without_a_server(world):
    assert world.fetch(world.wanted)[0] == 0
    (world.destination / "text").write_text("patched")
    (world.destination / "third_party" / "middle" / "parts" / "inner" / "text").unlink()
    (world.destination / "build").mkdir()
    (world.destination / "build" / "cache").write_text("old")
    (world.place / "server").rename(world.place / "gone")
    code, said = world.fetch(world.wanted)
    assert code == 0, said
    assert world.files() == FIRST


def test_another_commit_of_the_same_tree_is_what_is_there_afterwards(world):
    assert world.fetch(world.wanted)[0] == 0
    code, said = world.fetch(world.newer, "v2.0")
    assert code == 0, said
    assert world.files() == {**FIRST, "text": "top 2"}


@pytest.mark.parametrize(
    ("tag", "words"), [("v2.0", "Tag v2.0 of https://git.invalid/top is commit {newer}"),
                       ("v3.0", "is commit (there is no such tag)")])
def test_a_tag_that_is_not_the_commit_is_refused(world, tag, words):
    code, said = world.fetch(world.wanted, tag)
    assert code == 1
    assert words.format(newer=world.newer) in said
    assert "and the release file says %s. Correct one of the two." % world.wanted in said
    assert not world.destination.exists()


def test_a_commit_that_the_repository_does_not_have_is_refused_by_its_name(world):
    code, said = world.fetch("0" * 40)
    assert code == 1
    assert "https://git.invalid/top has no commit %s on its branches and tags." % ("0" * 40) in said
    assert not world.destination.exists()


HANGING = """#!/bin/sh
case " $* " in *"/third_party/middle fetch "*)
  touch "$SEEN"
  sleep 600
esac
exec "$GIT" "$@"
"""


def test_a_run_that_was_killed_is_gone_on_with(world, tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "git").write_text(HANGING)
    (programs / "git").chmod(0o755)
    real = subprocess.run(["sh", "-c", "command -v git"], check=True, capture_output=True, text=True).stdout.strip()
    seen = tmp_path / "seen"
    process = world.start(world.wanted, PATH="%s:%s" % (programs, os.environ["PATH"]), GIT=real, SEEN=str(seen))
    eventually(seen.exists, "the submodule is fetched")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert not world.destination.exists()
    # Git leaves its locks when it is killed, and the repository is not asked again for what is there.
    (world.part / ".git" / "index.lock").touch()
    (world.part / ".git" / "shallow.lock").touch()
    (world.place / "server" / "top").rename(world.place / "gone")
    code, said = world.fetch(world.wanted)
    assert code == 0, said
    assert world.files() == FIRST


def test_only_one_directory_is_there_where_no_more_is_asked_for(world):
    code, said = world.fetch(world.wide, only="kept")
    assert code == 0, said
    assert world.files() == {"text": "top 1", "kept/deep/text": "kept/deep"}
    code, said = world.fetch(world.wide)
    assert code == 0, said
    assert world.files() == {**FIRST, "kept/deep/text": "kept/deep", "left/text": "left"}


def test_a_mirror_is_unpacked_and_no_server_asked(world, monkeypatch):
    archives = world.place / "mirror" / "git"
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(world.configuration))
    # Making a mirror uses git's own command for submodules, which refuses directories unless it is told to.
    git(world.place, "config", "--file", str(world.configuration), "protocol.file.allow", "always")
    mirror_git.fetch("https://git.invalid/top", world.wanted, str(archives))
    (world.place / "server").rename(world.place / "gone")
    code, said = world.fetch(world.wanted, "v1.0", TORCHSTACK_MIRROR=str(archives.parent))
    assert code == 0, said
    assert world.files() == FIRST
    code, said = world.fetch(world.newer, TORCHSTACK_MIRROR=str(archives.parent))
    assert code == 1
    assert "has no archive of https://git.invalid/top, commit %s. Fetch it: make mirror." % world.newer in said
