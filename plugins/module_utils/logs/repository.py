# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Commit files to a branch of a git repository, beside whatever its owner is doing there.

A commit is made of plumbing commands with an index of its own, so that neither somebody's index nor his working tree
takes part, and a bare repository will do. Where the branch is checked out, the new files would look deleted afterwards;
so the paths of the commit, and no others, are brought to the index and the working tree too, as ``git checkout`` does:
it refuses, before anything has changed, where one of them has local changes.

Git's configuration of the account and of the machine is not read, hooks do not run, nothing is fetched or pushed. In
check mode new objects go to a scratch directory that is removed.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
from typing import Iterator, NamedTuple, Sequence

from ..core.errors import StackError
from ..core.processes import run_program
from ..core.text import readable
from .archive import Member, content_of

STEP = "commit the logs"

_SETTINGS = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "gc.auto=0")


class Commit(NamedTuple):
    """What became, or would become, of the branch."""

    branch: str
    before: str
    """The branch's commit; empty where there is none."""
    after: str
    """The commit with the files; empty where it is only planned."""
    changes: list[str]
    """Status letter and path of each file that changes, as ``git diff --name-status`` has them."""


class Target(NamedTuple):
    """Where files are committed."""

    repository: str
    """A bare repository, or the top of a working tree."""
    subdirectory: str
    """Where in its tree; each step has a directory in it, which holds the step's files and no others afterwards."""
    branch: str
    """Empty for the one that HEAD names."""
    message: str
    author: str
    """Name and address: ``torchstack <torchstack@localhost>``."""


def check_target(target: Target) -> None:
    """Check what can be checked without git; StackError: the subdirectory, the author or the message is none."""
    parts = target.subdirectory.split("/")
    if "\0" in target.subdirectory or any(part in ("", ".", "..") or part.lower() == ".git" for part in parts):
        raise StackError(
            "%r is no directory in a repository." % target.subdirectory, STEP,
            "Give subdirectory as a relative path without . and .. parts, such as 2026-11-20.",
        )
    if not re.fullmatch(r"[^<>\n\0]*[^<>\s\0][^<>\n\0]* <[^<>\s\0]+>", target.author):
        raise StackError("%r is no author." % target.author, STEP, "Write it as Name <address>.")
    if not target.message.strip() or "\0" in target.message:
        raise StackError("The message of the commit is empty.", STEP, "Give a commit_message.")


class Repository:
    """A repository, found where it was said to be and nowhere above; StackError: there is none, or no git command."""

    def __init__(self, target: Target, scratch: str, keep: bool) -> None:
        self.target = target
        self.environment = {
            "PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "HOME": scratch, "XDG_CONFIG_HOME": scratch,
            "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_ATTR_NOSYSTEM": "1",
            "GIT_CEILING_DIRECTORIES": os.path.dirname(os.path.realpath(target.repository)), "GIT_TERMINAL_PROMPT": "0",
        }
        name, _bracket, address = target.author.rstrip(">").rpartition(" <")
        for role in ("AUTHOR", "COMMITTER"):
            self.environment.update({"GIT_%s_NAME" % role: name, "GIT_%s_EMAIL" % role: address})
        self.directory = self._find()
        self.bare = self.git("rev-parse", "--is-bare-repository") == b"true"
        self.index = dict(GIT_INDEX_FILE=os.path.join(scratch, "index"))
        if not keep:
            objects = os.path.join(scratch, "objects")
            os.mkdir(objects)
            own = os.path.join(os.fsdecode(self.git("rev-parse", "--git-common-dir")), "objects")
            self.environment["GIT_OBJECT_DIRECTORY"] = objects
            own = os.path.join(self.directory, own).replace("\\", "\\\\").replace('"', '\\"')
            self.environment["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = '"%s"' % own

    def _find(self) -> str:
        """Find where commands run: the top of the working tree, or the bare repository."""
        path = os.path.realpath(self.target.repository)
        if not os.path.isdir(path):
            raise _no_repository(self.target.repository, "there is no such directory")
        self.directory = path
        try:
            facts = self.git("rev-parse", "--is-inside-work-tree", "--is-bare-repository").split()
            inside = self.git("rev-parse", "--show-prefix") if facts[0] == b"true" else b""
        except StackError as error:
            if error.details.get("git") is None:
                raise
            raise _no_repository(self.target.repository, str(error.details["git"])) from error
        if inside or facts == [b"false", b"false"]:
            raise _no_repository(self.target.repository, "it lies inside of one")
        return path

    def git(self, *words: str, text: bytes = b"", more: dict[str, str] | None = None) -> bytes:
        """Run a git command, and return what it prints, without its final line feed.

        StackError: it cannot be run, or failed; ``git`` in its details is what it complained of.
        """
        command = ["git", *(word for setting in _SETTINGS for word in ("-c", setting)), *words]
        try:
            done = run_program(
                command, cwd=self.directory, env=dict(self.environment, **(more or {})), input=text,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )
        except OSError as error:
            raise StackError(
                "The git command cannot be run (%s)." % (error.strerror or error), STEP,
                "Put git on the PATH, or name no repository.",
            ) from error
        if done.returncode:
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["exit code %d" % done.returncode]
            complaint = " ".join(line.strip() for line in lines[:3])
            raise StackError(
                "git %s failed in %s: %s." % (words[0], self.target.repository, complaint.rstrip(".")), STEP,
                "Correct that in the repository, then run this again: the archive is in place.",
                self.target.repository, git=complaint,
            )
        return done.stdout[:-1] if done.stdout.endswith(b"\n") else done.stdout

    def branch(self) -> str:
        """Find the full name of the branch; StackError: it is none, or HEAD is on none."""
        if self.target.branch:
            name = "refs/heads/" + self.target.branch
            words = ["check-ref-format", name]
        else:
            words = ["symbolic-ref", "-q", "HEAD"]
        try:
            found = self.git(*words)
        except StackError as error:
            what = "%r is no branch" % self.target.branch if self.target.branch else "HEAD is on no branch"
            raise StackError(
                "%s in %s." % (what, self.target.repository), STEP, "Name a branch.", self.target.repository
            ) from error
        return name if self.target.branch else found.decode("utf-8", "surrogateescape")

    def head(self, branch: str) -> str:
        """Find the branch's commit; empty where the branch does not exist yet."""
        found = self.git("for-each-ref", "--format=%(objectname) %(refname)", branch).decode("utf-8", "surrogateescape")
        return next((line.split()[0] for line in found.splitlines() if line.split(None, 1)[1] == branch), "")

    def tree(self, files: Sequence[Member], before: str) -> str:
        """Write the tree of the branch with these files in the subdirectory."""
        self.git("read-tree", before or "--empty", more=self.index)
        lines = []
        for member in files:
            blob = self.git("hash-object", "-w", "--stdin", "--no-filters", text=content_of(member))
            mode = b"100755" if member.executable else b"100644"
            lines.append(mode + b" " + blob + b"\t" + self._place(member.name))
        steps = tuple({self._place(member.name.partition("/")[0]) + b"/" for member in files})
        for path in self.git("ls-files", "-z", "--cached", more=self.index).split(b"\0"):
            if path.startswith(steps):
                lines.insert(0, b"0 " + b"0" * len(blob) + b"\t" + path)
        self.git("update-index", "-z", "--index-info", text=b"".join(line + b"\0" for line in lines), more=self.index)
        return self.git("write-tree", more=self.index).decode("ascii")

    def _place(self, name: str) -> bytes:
        return os.fsencode(self.target.subdirectory + "/" + name)

    def changes(self, before: str, tree: str) -> list[str]:
        """List what differs between two trees."""
        words = self.git("diff-tree", "-r", "-z", "--no-renames", "--name-status", before, tree).split(b"\0")[:-1]
        pairs = zip(words[::2], words[1::2])
        return ["%s %s" % (letter.decode("ascii"), readable(os.fsdecode(path))) for letter, path in pairs]

    def checked_out_elsewhere(self, branch: str) -> str:
        """Find the other working tree that has the branch checked out, or an empty string."""
        place = ""
        for line in self.git("worktree", "list", "--porcelain").decode("utf-8", "surrogateescape").splitlines():
            key, _space, value = line.partition(" ")
            if key == "worktree":
                place = value
            elif key == "branch" and value == branch and os.path.realpath(place) != self.directory:
                return place
        return ""


def commit(target: Target, files: Sequence[Member], apply: bool) -> Commit:
    """Commit files, or say what a commit would change; nothing is committed where nothing differs.

    StackError: the repository cannot be used, or the working tree has local changes in the way.
    """
    check_target(target)
    with tempfile.TemporaryDirectory() as scratch:
        repository = Repository(target, scratch, apply)
        branch = repository.branch()
        before = repository.head(branch)
        tree = repository.tree(files, before)
        # The tree without entries is known to every repository, but its object may not be there.
        start = before or repository.git("hash-object", "-w", "-t", "tree", "--stdin").decode("ascii")
        changes = repository.changes(start, tree)
        short = branch[len("refs/heads/"):]
        if not changes:
            return Commit(short, before, before, [])
        elsewhere = repository.checked_out_elsewhere(branch)
        if elsewhere:
            raise StackError(
                "Branch %s is checked out in %s." % (short, elsewhere), STEP,
                "Name that directory as the repository, or another branch.", target.repository,
            )
        checked_out = not repository.bare and _head_is(repository, branch)
        if checked_out:
            with _working_tree(target):
                repository.git("read-tree", "-m", "-u", "-n", start, tree)
        if not apply:
            return Commit(short, before, "", changes)
        parents = ["-p", before] if before else []
        after = repository.git(
            "commit-tree", tree, *parents, "-F", "-", text=target.message.strip().encode("utf-8", "replace") + b"\n"
        ).decode("ascii")
        # Before the branch moves: stopped in between, the files are staged and the next run commits them.
        if checked_out:
            with _working_tree(target):
                repository.git("read-tree", "-m", "-u", start, tree)
        try:
            repository.git("update-ref", "-m", "commit: logs", branch, after, before)
        except StackError:
            if checked_out:
                repository.git("read-tree", "-m", "-u", tree, start)
            raise
        return Commit(short, before, after, changes)


def _head_is(repository: Repository, branch: str) -> bool:
    try:
        return repository.git("symbolic-ref", "-q", "HEAD").decode("utf-8", "surrogateescape") == branch
    except StackError:
        return False


@contextlib.contextmanager
def _working_tree(target: Target) -> Iterator[None]:
    try:
        yield
    except StackError as error:
        raise StackError(
            "The working tree %s cannot take the logs: %s."
            % (target.repository, str(error.details.get("git", error)).rstrip(".")), STEP,
            "Commit what is there or put it elsewhere, or name a bare repository.", target.repository,
        ) from error


def _no_repository(path: str, reason: str) -> StackError:
    return StackError(
        "%s is neither a bare git repository nor the top of a working tree: %s." % (path, reason.rstrip(".")), STEP,
        "Make one with git init --bare, or name one that this account owns.", path,
    )
