# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Archive a checkout of a git commit, with its submodules and its repositories.

A step that unpacks it finds the commit there already, and asks no server. Its name holds the digest of its content.
"""

from __future__ import annotations

import os
import re
import shutil
import tarfile
from typing import Iterator

from ..core.digests import sha256_of
from ..core.download import half_name
from ..core.errors import StackError, system_remedy
from ..core.files import flush_directory
from ..core.run_command import Outcome, run

STEP = "fetch"
TIMEOUT = 3600.0
"""Seconds that one git command may take."""

_NAME = re.compile(r"(?P<commit>[0-9a-f]{40})\.(?P<sha256>[0-9a-f]{64})\.tar\Z")


def archives(directory: str, commit: str) -> dict[str, str]:
    """Return the archives of a commit in a directory: path to the digest that it must have."""
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return {}
    matches = [_NAME.match(name) for name in names]
    return {
        os.path.join(directory, match.group(0)): match.group("sha256")
        for match in matches if match is not None and match.group("commit") == commit}


def fetch(repository: str, commit: str, directory: str) -> tuple[str, str]:
    """Make the archive of a commit, which git checks the content against; return its path and its sha256.

    Raises StackError: git cannot give the commit, or the archive cannot be written.
    """
    half = half_name(os.path.join(directory, commit + ".tar"))
    tree = half_name(os.path.join(directory, commit))
    try:
        os.makedirs(directory, exist_ok=True)
        shutil.rmtree(tree, ignore_errors=True)
        _check_out(repository, commit, tree)
        with tarfile.open(half, "w", format=tarfile.PAX_FORMAT) as archive:
            archive.add(tree, "source", filter=_plain)
        digest = sha256_of(half)
        path = os.path.join(directory, "%s.%s.tar" % (commit, digest))
        os.chmod(half, 0o644)
        os.replace(half, path)
        flush_directory(directory)
    except OSError as error:
        raise StackError(
            "The archive of %s cannot be written: %s." % (repository, error.strerror or error), STEP,
            system_remedy(error, "Check that this account may write there") + ", then run it again.", directory,
        ) from error
    finally:
        shutil.rmtree(tree, ignore_errors=True)
    return path, digest


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return an entry that belongs to nobody, so that whoever unpacks it owns it."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _check_out(repository: str, commit: str, tree: str) -> None:
    """Make the checkout that a step would make of the same commit."""
    _git("init", "--quiet", tree)
    _git("-C", tree, "remote", "add", "origin", repository)
    # Not every server gives a single commit; then all of its branches and tags are fetched.
    if not _has(tree, commit, "fetch", "--quiet", "--depth", "1", "origin", commit):
        complaint = "its branches and tags do not have it"
        asked = _ask(tree, "fetch", "--quiet", "--tags", "origin", "+refs/heads/*:refs/remotes/origin/*")
        if not _has(tree, commit):
            raise StackError(
                "%s cannot be fetched from %s: %s." % (
                    commit, repository, complaint if asked.ok else asked.complaint.rstrip(".")), STEP,
                "Correct repository and commit in the release file, or reach that server, then run it again.")
    _git("-C", tree, "-c", "advice.detachedHead=false", "checkout", "--quiet", "--force", "--detach", commit)
    # Git's own command for submodules would clone all of their history, and refuses addresses of directories.
    if os.path.exists(os.path.join(tree, ".gitmodules")):
        _git("-C", tree, "submodule", "--quiet", "init")
        for path, address, pinned in list(_submodules(tree)):
            _check_out(address, pinned, os.path.join(tree, path))


def _submodules(tree: str) -> Iterator[tuple[str, str, str]]:
    """Return the submodules of a checkout: path below it, repository and commit."""
    listed = _ask(tree, "config", "--file", ".gitmodules", "--get-regexp", r"^submodule\..*\.path$").output
    for line in listed.splitlines():
        key, _space, path = line.partition(" ")
        address = _ask(tree, "config", key[: -len(".path")] + ".url").output.strip()
        # As "160000 <commit> 0<tab><path>"; one that is only listed is not there.
        entry = _ask(tree, "ls-files", "--stage", "--", path).output.split()
        if entry and entry[0] == "160000":
            yield path, address, entry[1]


def _has(tree: str, commit: str, *before: str) -> bool:
    """Tell whether a commit is there, after another command of git."""
    if before:
        _ask(tree, *before)
    return _ask(tree, "cat-file", "-e", commit + "^{commit}").ok


def _variables() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in (
        "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")}
    return dict(kept, GIT_TERMINAL_PROMPT="0")


def _ask(tree: str, *words: str) -> Outcome:
    return run(["git", "-C", tree, *words], TIMEOUT, environment=_variables())


def _git(*words: str) -> None:
    """Run git, which must succeed."""
    outcome = run(["git", *words], TIMEOUT, environment=_variables())
    if not outcome.ok:
        raise StackError(
            "git %s: %s." % (" ".join(words), outcome.complaint.rstrip(".")), STEP,
            "Correct repository and commit in the release file, or reach that server, then run it again.")
