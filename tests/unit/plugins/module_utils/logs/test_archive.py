# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Logs of steps in one archive, and committed beside whatever else happens in a repository (archive, repository)."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import tarfile

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.logs import archive as archive_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.logs import repository as repository_module

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git command")


def write(path, content, bits=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(bits)


@pytest.fixture()
def steps(tmp_path):
    steps = tmp_path / "steps"
    for step in ("pytorch", "base"):
        write(steps / step / "log", b"log of " + step.encode())
        write(steps / step / "script.sh", b"#!/bin/sh\n", 0o755)
        write(steps / step / ".supervisor.zip", b"not for keeping")
        (steps / step / ".lock").write_text("")
    write(steps / "base" / "parts" / "one", b"1")
    (steps / "base" / "link").symlink_to("/etc/passwd")
    os.mkfifo(str(steps / "base" / "pipe"))
    (steps / "loose").write_text("no step")
    return steps


def packed(steps):
    return archive_module.pack(archive_module.members(str(steps)), "logs")


def test_s09_the_archive_holds_every_file_of_every_step_sorted_and_nothing_else(steps, tmp_path):
    made = packed(steps)
    (tmp_path / "logs.tar.gz").write_bytes(made.content)
    with tarfile.open(str(tmp_path / "logs.tar.gz")) as archive:
        entries = archive.getmembers()
        assert [(entry.name, entry.mode) for entry in entries] == [
            ("logs/base/log", 0o644), ("logs/base/parts/one", 0o644), ("logs/base/script.sh", 0o755),
            ("logs/pytorch/log", 0o644), ("logs/pytorch/script.sh", 0o755),
        ]
        facts = {(entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname) for entry in entries}
        assert facts == {(0, 0, 0, "", "")}
        assert archive.extractfile("logs/pytorch/log").read() == b"log of pytorch"
    assert made.listing[2] == "logs/base/script.sh (10 bytes, executable)"


def test_the_archive_is_the_same_bytes_whenever_and_wherever_it_is_made(steps, tmp_path):
    first = packed(steps)
    other = tmp_path / "other"
    shutil.copytree(str(steps), str(other), symlinks=True, ignore=shutil.ignore_patterns("pipe"))
    for path in (other / "base" / "log", other / "pytorch" / "log"):
        os.utime(str(path), (1, 1))
        path.chmod(0o600)
    assert packed(other).content == first.content
    assert first.digest == hashlib.sha256(first.content).hexdigest()
    assert first.tar_digest == hashlib.sha256(gzip.decompress(first.content)).hexdigest()
    assert first.content[3:8] == b"\0\0\0\0\0", "neither a file name nor a time in the header of gzip"


def test_gnu_tar_unpacks_it(steps, tmp_path):
    if shutil.which("tar") is None:
        pytest.skip("there is no tar command")
    with open(os.path.join(os.fsencode(str(steps / "base")), b"caf\xe9\n"), "wb") as stream:
        stream.write(b"odd")
    archive_module.write_archive(str(tmp_path / "logs.tar.gz"), packed(steps))
    subprocess.run(["tar", "-xzf", "logs.tar.gz"], cwd=str(tmp_path), check=True)
    found = os.path.join(os.fsencode(str(tmp_path)), b"logs", b"base", b"caf\xe9\n")
    with open(found, "rb") as stream:
        assert stream.read() == b"odd"


def test_an_archive_on_disk_is_recognised_by_what_it_unpacks_to(steps, tmp_path):
    made = packed(steps)
    place = tmp_path / "logs.tar.gz"
    assert archive_module.read_archive(str(place)) is None
    place.write_bytes(gzip.compress(gzip.decompress(made.content), 1))
    found = archive_module.read_archive(str(place))
    assert found.digest != made.digest
    assert (found.tar_digest, found.listing) == (made.tar_digest, made.listing)


@pytest.mark.parametrize("damage", [lambda content: content[:-30], lambda content: b"no archive", lambda content: b""])
def test_a_damaged_archive_is_not_taken_for_a_good_one(steps, tmp_path, damage):
    place = tmp_path / "logs.tar.gz"
    place.write_bytes(damage(packed(steps).content))
    found = archive_module.read_archive(str(place))
    assert found.tar_digest != packed(steps).tar_digest


def test_a_log_that_is_still_written_is_an_error(steps, monkeypatch):
    real = os.fdopen

    def disturbed(descriptor, mode):
        stream = real(descriptor, mode)
        if os.readlink("/proc/self/fd/%d" % descriptor).endswith("/base/log"):
            stream.read, read = (lambda size: log_grows(read(size))), stream.read
        return stream

    def log_grows(content):
        with open(str(steps / "base" / "log"), "ab") as log:
            log.write(b"more")
        return content

    monkeypatch.setattr(archive_module.os, "fdopen", disturbed)
    with pytest.raises(StackError, match="base/log changed while it was read"):
        packed(steps)


def test_no_steps_are_an_error(tmp_path):
    with pytest.raises(StackError, match="No such file"):
        archive_module.members(str(tmp_path / "nothing"))
    (tmp_path / "steps" / "empty").mkdir(parents=True)
    with pytest.raises(StackError, match="no step with a log"):
        archive_module.members(str(tmp_path / "steps"))


@pytest.fixture()
def git(monkeypatch, tmp_path):
    """Git as somebody else uses it, with an identity of his own."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()

    def run(*words, fails=False, text=True):
        settings = ("-c", "user.name=Somebody", "-c", "user.email=somebody@site", "-c", "init.defaultBranch=main")
        done = subprocess.run(
            ["git", *settings, *words], cwd=str(tmp_path), check=not fails, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=text,
        )
        return done.stdout

    return run


@pytest.fixture()
def bare(git, tmp_path):
    git("init", "-q", "--bare", "bare.git")
    return tmp_path / "bare.git"


@pytest.fixture()
def work(git, tmp_path):
    """Somebody's working tree, with one commit, one staged file and one changed file."""
    git("init", "-q", "work")
    (tmp_path / "work" / "README").write_text("first\n")
    git("-C", "work", "add", "README")
    git("-C", "work", "commit", "-q", "-m", "first")
    (tmp_path / "work" / "README").write_text("changed\n")
    (tmp_path / "work" / "staged").write_text("staged\n")
    git("-C", "work", "add", "staged")
    return tmp_path / "work"


def commit(repository, steps, apply=True, subdirectory="site/2026-11-20", branch="", **more):
    target = repository_module.Target(
        str(repository), subdirectory, branch, more.pop("message", "Logs"),
        more.pop("author", "torchstack <torchstack@localhost>"),
    )
    return repository_module.commit(target, archive_module.members(str(steps)), apply)


def snapshot(directory):
    """Every file of a directory with its content and times."""
    found = {}
    for where, _names, files in os.walk(str(directory)):
        for name in files:
            path = os.path.join(where, name)
            with open(path, "rb") as stream:
                found[path] = (stream.read(), os.stat(path).st_mtime_ns)
    return found


FILES = ["base/log", "base/parts/one", "base/script.sh", "pytorch/log", "pytorch/script.sh"]


@needs_git
def test_s09_logs_are_committed_to_a_bare_repository_without_any_configuration(git, bare, steps):
    done = commit(bare, steps, message="Logs of 2026-11-20")
    assert done.changes == ["A site/2026-11-20/" + name for name in FILES]
    assert git("-C", "bare.git", "rev-parse", done.branch).strip() == done.after
    tree = git("-C", "bare.git", "ls-tree", "-r", done.after).splitlines()
    assert [line.split("\t")[1] for line in tree] == ["site/2026-11-20/" + name for name in FILES]
    assert [line[:6] for line in tree] == ["100644", "100644", "100755", "100644", "100755"]
    assert git("-C", "bare.git", "show", done.after + ":site/2026-11-20/pytorch/log") == "log of pytorch"
    assert git("-C", "bare.git", "log", "--format=%an <%ae> %cn %s") == (
        "torchstack <torchstack@localhost> torchstack Logs of 2026-11-20\n"
    )
    git("-C", "bare.git", "fsck", "--strict")


@needs_git
def test_s09_credentials_in_logs_from_before_are_in_neither_archive_nor_repository(git, bare, steps):
    log = b"git clone https://me:pa55word@example.org/x\n\xff\nexport HF_TOKEN=0123456789\n"
    masked = b"git clone https://***@example.org/x\n\xff\nexport HF_TOKEN=***\n"
    write(steps / "pytorch" / "log", log)
    with tarfile.open(fileobj=io.BytesIO(packed(steps).content)) as archive:
        assert archive.extractfile("logs/pytorch/log").read() == masked
    done = commit(bare, steps)
    shown = git("-C", "bare.git", "show", done.after + ":site/2026-11-20/pytorch/log", text=False)
    assert shown == masked
    assert (steps / "pytorch" / "log").read_bytes() == log


@needs_git
def test_nothing_is_committed_when_nothing_changed(git, bare, steps):
    first = commit(bare, steps)
    before = snapshot(bare / "refs")
    again = commit(bare, steps)
    assert (again.changes, again.after, again.before) == ([], first.after, first.after)
    assert snapshot(bare / "refs") == before
    assert git("-C", "bare.git", "rev-list", "--count", first.after).strip() == "1"


@needs_git
def test_a_plan_names_what_would_be_committed_and_leaves_the_repository_untouched(git, bare, work, steps):
    for repository in (bare, work):
        before = snapshot(repository)
        planned = commit(repository, steps, apply=False)
        assert planned.changes == ["A site/2026-11-20/" + name for name in FILES] and not planned.after
        assert snapshot(repository) == before
        assert commit(repository, steps).changes == planned.changes


@needs_git
def test_a_later_commit_replaces_what_a_step_had_and_leaves_the_rest(git, bare, steps):
    first = commit(bare, steps)
    commit(bare, steps, subdirectory="site/2026-12-01")
    (steps / "base" / "log").write_text("another log")
    (steps / "base" / "parts" / "one").unlink()
    (steps / "base" / "exit").write_text("0")
    shutil.rmtree(str(steps / "pytorch"))
    done = commit(bare, steps)
    assert done.changes == [
        "A site/2026-11-20/base/exit", "M site/2026-11-20/base/log", "D site/2026-11-20/base/parts/one"
    ]
    assert git("-C", "bare.git", "rev-list", "--parents", "-n1", done.after).split() == [done.after, done.before]
    assert git("-C", "bare.git", "show", first.after + ":site/2026-11-20/base/log") == "log of base"
    names = git("-C", "bare.git", "ls-tree", "-r", "--name-only", done.after)
    assert "site/2026-11-20/pytorch/log" in names and "site/2026-12-01/pytorch/log" in names


@needs_git
def test_somebodys_changes_in_the_working_tree_take_no_part_and_stay(git, work, steps):
    done = commit(work, steps)
    assert git("-C", "work", "show", "--name-only", "--format=", done.after).split() == [
        "site/2026-11-20/" + name for name in FILES
    ]
    assert git("-C", "work", "status", "--porcelain").splitlines() == [" M README", "A  staged"]
    assert (work / "README").read_text() == "changed\n"
    assert (work / "site" / "2026-11-20" / "base" / "log").read_bytes() == b"log of base"
    assert git("-C", "work", "show", done.after + ":README") == "first\n"


@needs_git
def test_another_branch_than_the_one_checked_out_touches_no_working_tree(git, work, steps):
    before = {path: found for path, found in snapshot(work).items() if "/.git/" not in path}
    index = (work / ".git" / "index").read_bytes()
    done = commit(work, steps, branch="logs")
    assert {path: found for path, found in snapshot(work).items() if "/.git/" not in path} == before
    assert (work / ".git" / "index").read_bytes() == index
    assert git("-C", "work", "rev-list", "--count", "logs").strip() == "1", "the branch begins with this commit"
    assert git("-C", "work", "rev-parse", "logs").strip() == done.after


@needs_git
@pytest.mark.parametrize("staged", [True, False])
def test_local_changes_where_the_logs_belong_are_an_error_before_anything_is_committed(git, work, steps, staged):
    if staged:
        commit(work, steps)
        (work / "site" / "2026-11-20" / "base" / "log").write_text("edited by hand")
        git("-C", "work", "add", "site")
        (steps / "base" / "log").write_text("another log")
    else:
        write(work / "site" / "2026-11-20" / "base" / "log", b"a file that git does not know")
    head, before = git("-C", "work", "rev-parse", "HEAD"), git("-C", "work", "status", "--porcelain")
    for apply in (False, True):
        with pytest.raises(StackError, match="cannot take the logs") as caught:
            commit(work, steps, apply=apply)
        assert "bare repository" in caught.value.remedy
    assert git("-C", "work", "rev-parse", "HEAD") == head
    assert git("-C", "work", "status", "--porcelain") == before


@needs_git
def test_a_first_commit_in_an_empty_working_tree_is_checked_out(git, tmp_path, steps):
    git("init", "-q", "empty")
    done = commit(tmp_path / "empty", steps)
    assert (done.before, git("-C", "empty", "status", "--porcelain")) == ("", "")
    assert (tmp_path / "empty" / "site" / "2026-11-20" / "base" / "script.sh").stat().st_mode & 0o100


@needs_git
def test_a_branch_that_moved_meanwhile_is_not_overwritten(git, work, steps, monkeypatch):
    real = repository_module.Repository.git

    def disturbed(self, *words, **options):
        if words[0] == "update-ref":
            git("-C", "work", "commit", "-q", "--allow-empty", "--only", "-m", "meanwhile")
        return real(self, *words, **options)

    monkeypatch.setattr(repository_module.Repository, "git", disturbed)
    with pytest.raises(StackError, match="update-ref failed"):
        commit(work, steps)
    assert git("-C", "work", "log", "--format=%s").split() == ["meanwhile", "first"]
    assert git("-C", "work", "status", "--porcelain").splitlines() == [" M README", "A  staged"]
    assert not (work / "site").exists()


@needs_git
def test_hooks_do_not_run_and_the_accounts_configuration_is_not_read(git, work, steps, tmp_path):
    for name in ("pre-commit", "post-commit", "reference-transaction", "post-checkout", "commit-msg"):
        hook = "#!/bin/sh\ntouch %s\nexit 1\n" % (tmp_path / "ran")
        write(work / ".git" / "hooks" / name, hook.encode(), 0o755)
    (tmp_path / "home" / ".gitconfig").write_text("[user]\nname = Config\n[commit]\ngpgSign = true\n[broken\n")
    done = commit(work, steps)
    assert not (tmp_path / "ran").exists()
    (tmp_path / "home" / ".gitconfig").unlink()
    assert git("-C", "work", "log", "-1", "--format=%an %H").split() == ["torchstack", done.after]


@needs_git
def test_variables_of_a_git_hook_that_runs_this_do_not_lead_elsewhere(git, bare, work, steps, monkeypatch):
    monkeypatch.setenv("GIT_DIR", str(work / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(work / ".git" / "index"))
    done = commit(bare, steps)
    monkeypatch.delenv("GIT_DIR")
    monkeypatch.delenv("GIT_INDEX_FILE")
    assert git("-C", "bare.git", "cat-file", "-t", done.after) == "commit\n"


@needs_git
def test_what_is_no_repository_is_refused_in_one_sentence(git, work, steps, tmp_path):
    (work / "below").mkdir()
    (tmp_path / "plain").mkdir()
    for path in (tmp_path / "nothing", tmp_path / "plain", work / "below", work / ".git"):
        with pytest.raises(StackError, match="neither a bare git repository nor the top of a working tree") as caught:
            commit(path, steps)
        assert "git init --bare" in caught.value.remedy
    git("-C", "work", "checkout", "-q", "--detach")
    with pytest.raises(StackError, match="HEAD is on no branch"):
        commit(work, steps)
    with pytest.raises(StackError, match="is no branch"):
        commit(work, steps, branch="no..branch")


@needs_git
def test_a_branch_that_another_working_tree_has_checked_out_is_refused(git, work, steps, tmp_path):
    git("-C", "work", "worktree", "add", "-q", "-b", "logs", str(tmp_path / "second"))
    with pytest.raises(StackError, match=r"is checked out in .*second"):
        commit(work, steps, branch="logs")
    assert commit(tmp_path / "second", steps).after


@pytest.mark.parametrize("subdirectory", ["", ".", "a/../b", "/a", "a/", "a//b", ".git/hooks", "a\0b", ".GIT"])
def test_a_subdirectory_that_leads_elsewhere_is_refused(subdirectory, steps, tmp_path):
    with pytest.raises(StackError, match="is no directory in a repository"):
        commit(tmp_path, steps, subdirectory=subdirectory)


@pytest.mark.parametrize("author", ["", "nobody", "<a@b>", "Name <a b>", "Name <a@b> more", "A\nB <a@b>"])
def test_an_author_is_a_name_and_an_address(author, steps, tmp_path):
    with pytest.raises(StackError, match="is no author"):
        commit(tmp_path, steps, author=author)


def test_without_git_the_operator_is_told(steps, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StackError, match="git command cannot be run"):
        commit(tmp_path, steps)
