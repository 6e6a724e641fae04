# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What fetch-git leaves: one commit with its submodules at theirs, all of it or nothing."""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import signal
import subprocess
import tarfile
import zlib

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror import git_archive
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror.contents import Contents
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
        self.configuration.write_text(
            '[url "file://%s/server/"]\n\tinsteadOf = https://git.invalid/\n'
            '[protocol "file"]\n\tallow = always\n' % place)

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
    git_archive.fetch("https://git.invalid/top", world.wanted, str(archives))
    (world.place / "server").rename(world.place / "gone")
    code, said = world.fetch(world.wanted, "v1.0", TORCHSTACK_MIRROR=str(archives.parent))
    assert code == 0, said
    assert world.files() == FIRST
    code, said = world.fetch(world.newer, TORCHSTACK_MIRROR=str(archives.parent))
    assert code == 1
    assert "has no archive of https://git.invalid/top, commit %s. Fetch it: make mirror." % world.newer in said


class Mirror:
    """A repository without submodules and the mirror's archive of it, which somebody else may write."""

    def __init__(self, place):
        self.place, self.top = place, place / "up"
        self.out, self.git = place / "out", place / "m" / "git"
        self.top.mkdir()
        git(self.top, "init", "--quiet", "--initial-branch=main")
        self.commit = commit(self.top, "one", **{"good.py": "ANSWER = 41\n"})
        self.blob = git(self.top, "rev-parse", "HEAD:good.py")
        path, self.digest = git_archive.fetch(self.top.as_uri(), self.commit, str(self.git))
        self.genuine = pathlib.Path(path)

    def fetch(self):
        """Run fetch-git with the mirror only; the exit code and what it printed."""
        process = subprocess.run(
            ["sh", str(PROGRAM), str(self.out), self.top.as_uri(), self.commit], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False, env={**QUIET, "TORCHSTACK_MIRROR": str(self.git.parent)})
        return process.returncode, process.stdout

    def put(self, source, name=""):
        """Pack a directory as an archive of the commit, by a name that holds a digest or its own."""
        half = self.place / "half.tar"
        with tarfile.open(half, "w") as archive:
            for path in sorted(source.iterdir()):
                archive.add(path, path.name)
        digest = name or hashlib.sha256(half.read_bytes()).hexdigest()
        return half.replace(self.git / ("%s.%s.tar" % (self.commit, digest)))

    def falsified(self):
        """Make a checkout of the commit in which the blob's file holds another content, as archives once were."""
        tree = self.place / "x" / "source"
        git(self.place, "clone", "--quiet", str(self.top), str(tree))
        loose = tree / ".git" / "objects" / self.blob[:2] / self.blob[2:]
        loose.chmod(0o644)
        loose.write_bytes(zlib.compress(b"blob 13\0ANSWER = 666\n"))
        (tree / ".git" / "index").unlink()
        (tree / "good.py").unlink()
        return tree.parent

    def packed(self, *texts):
        """Make a directory with a pack of the commit and its tree, and of blobs."""
        names = [self.commit, git(self.top, "rev-parse", "HEAD^{tree}")]
        for number, text in enumerate(texts):
            (self.place / str(number)).write_text(text)
            names.append(git(self.top, "hash-object", "-w", str(self.place / str(number))))
        directory = self.place / "packs"
        directory.mkdir()
        with open(directory / (self.commit + ".pack"), "wb") as pack:
            subprocess.run(["git", "-C", str(self.top), "pack-objects", "--quiet", "--stdout"],
                           input="\n".join(names).encode(), stdout=pack, check=True)
        return directory

    def lacks(self):
        """What the check of the mirror says that its archives are not."""
        contents = Contents(str(self.git.parent), {}, {})
        return [contents.commit_problem("git/" + path.name, self.commit) for path in sorted(self.git.iterdir())]


@pytest.fixture()
def mirror(tmp_path):
    return Mirror(tmp_path)


def test_the_genuine_archive_is_a_whole_repository_that_git_finds_nothing_wrong_with(mirror):
    assert mirror.lacks() == [""]
    code, said = mirror.fetch()
    assert code == 0, said
    assert (mirror.out / "good.py").read_text() == "ANSWER = 41\n"
    git(mirror.out, "fsck", "--strict")
    assert git(mirror.out, "status", "--porcelain") == ""


def test_a_false_content_under_the_name_of_a_genuine_one_is_neither_taken_nor_called_complete(mirror):
    mirror.genuine.unlink()
    mirror.put(mirror.falsified())
    assert "an earlier version made archives of checkouts" in mirror.lacks()[0]
    code, said = mirror.fetch()
    assert code == 1 and "has no whole pack of commit %s" % mirror.commit in said
    assert not mirror.out.exists()


@pytest.mark.parametrize("texts", [(), ("ANSWER = 666\n",)])
def test_a_pack_without_a_content_of_the_commit_is_neither_taken_nor_called_complete(mirror, texts):
    mirror.genuine.unlink()
    mirror.put(mirror.packed(*texts))
    assert "missing blob object" in mirror.lacks()[0]
    code, said = mirror.fetch()
    assert code == 1 and "does not have all of commit %s: it is not what was committed" % mirror.commit in said
    assert not mirror.out.exists()


def test_a_spoilt_archive_is_replaced_and_the_next_run_takes_the_genuine_one(mirror):
    genuine = mirror.genuine.rename(mirror.place / mirror.genuine.name)
    false = mirror.put(mirror.packed())
    assert mirror.fetch()[0] == 1
    false.unlink()
    genuine.rename(mirror.genuine)
    code, said = mirror.fetch()
    assert code == 0, said
    assert (mirror.out / "good.py").read_text() == "ANSWER = 41\n"


def test_an_archive_that_lies_about_its_digest_is_passed_over(mirror):
    mirror.put(mirror.falsified(), "f" * 64)
    assert [bool(problem) for problem in mirror.lacks()] == [False, True]
    code, said = mirror.fetch()
    assert code == 0, said
    assert (mirror.out / "good.py").read_text() == "ANSWER = 41\n"
    mirror.genuine.unlink()
    shutil.rmtree(mirror.out)
    code, said = mirror.fetch()
    assert code == 1 and "does not have the sha256 that is in its name" in said


@pytest.mark.parametrize("name, text", [
    ("config", '[core]\n\tfsmonitor = "touch {0}; false"\n'),
    ("config", '[filter "z"]\n\tsmudge = "sh -c \'touch {0}; cat\'"\n\trequired = true\n'),
    ("hooks/post-checkout", "#!/bin/sh\ntouch {0}\n"),
])
def test_no_configuration_filter_or_hook_of_an_archive_runs(mirror, name, text):
    seen = mirror.place / "seen"
    source = mirror.packed("ANSWER = 41\n")
    git(mirror.place, "clone", "--quiet", str(mirror.top), str(source / "source"))
    place = source / "source" / ".git" / name
    with open(place, "a", encoding="utf-8") as stream:
        stream.write(text.format(seen))
    place.chmod(0o755)
    (source / "source" / ".git" / "info" / "attributes").write_text("*.py filter=z\n")
    (source / "source" / "good.py").unlink()
    mirror.genuine.unlink()
    mirror.put(source)
    code, said = mirror.fetch()
    assert code == 0, said
    assert not seen.exists()
    assert "fsmonitor" not in (mirror.out / ".git" / "config").read_text()
    assert not (mirror.out / ".git" / "hooks").exists()


def test_a_submodule_may_not_name_a_directory_of_the_operator(world):
    private = world.place / "private"
    private.mkdir(mode=0o700)
    git(private, "init", "--quiet", "--initial-branch=main")
    secret = commit(private, "mine", key="secret")
    (world.top / ".gitmodules").write_text('[submodule "sub"]\n\tpath = sub\n\turl = %s\n' % private.as_uri())
    git(world.top, "add", ".gitmodules")
    git(world.top, "rm", "--quiet", "--cached", "-r", "third_party")
    git(world.top, "update-index", "--add", "--cacheinfo", "160000,%s,sub" % secret)
    git(world.top, "commit", "--quiet", "--message", "bad")
    wanted = git(world.top, "rev-parse", "HEAD")
    world.configuration.write_text('[url "file://%s/server/"]\n\tinsteadOf = https://git.invalid/\n' % world.place)
    code, said = world.fetch(wanted)
    assert code == 1 and "transport 'file' not allowed" in said
    assert "git config --global protocol.file.allow always" in said
    assert not world.destination.exists()


def test_a_mirror_takes_no_submodule_from_a_directory_of_the_operator(world, monkeypatch):
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(world.configuration))
    world.configuration.write_text('[url "file://%s/server/"]\n\tinsteadOf = https://git.invalid/\n' % world.place)
    with pytest.raises(StackError, match="transport 'file' not allowed") as refused:
        git_archive.fetch("https://git.invalid/top", world.wanted, str(world.place / "mirror"))
    assert " of https://git.invalid/top: " in refused.value.message.partition(", the submodule third_party/")[2]
    assert "git config --global protocol.file.allow always" in refused.value.remedy
