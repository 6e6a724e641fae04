# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Git repositories of the small sources in ``rehearsal/sources``, with the same commits on every machine.

``tags`` names the directories there that are repositories, each of one commit, with their tags, and ``submodules``
the directories that are submodules: repositories of their own, which the outer one has at their commit, by an address
beside its own.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .checkout import CHECKOUT, files_of
from .trouble import TroubleError

SOURCES = CHECKOUT / "rehearsal" / "sources"
BRANCH = "refs/heads/main"
WHO = "The hpcml.torchstack contributors <rehearsal@example.org> 1700000000 +0000"
"""Author and committer of every commit, with the time, as in git-fast-import(1)."""

MESSAGE = "Stand-in for a rehearsal\n"
RELEASES = "inventories/*/releases/rehearsal.yml"
NAMED = r"(repository: *file://\S*/{name}\.git\n(?: +(?!repository:)\S.*\n)*? +commit: *[\"']?)[0-9a-f]{{40}}"
"""A release file's commit of a repository: a key below the one with its address, in the same mapping."""


class Repository(NamedTuple):
    """A repository that was made."""

    name: str
    commit: str
    tags: tuple[str, ...]


def make_repositories(place: pathlib.Path, sources: pathlib.Path = SOURCES) -> list[Repository]:
    """Make a bare repository ``<name>.git`` of each source that is one; what is there with the right commit stays.

    Args:
        place: the directory that they are made in; it is made where it is missing.
        sources: the directory of the sources.

    Returns:
        All repositories, submodules included, by name.

    Raises:
        TroubleError: git is missing or failed, or ``tags`` or ``submodules`` names what is not there.
    """
    files, submodules = _files(sources), _lines(sources / "submodules")
    tags: dict[str, list[str]] = {}
    for line in _lines(sources / "tags"):
        name, _space, tag = line.partition(" ")
        tags.setdefault(name, []).append(tag.strip())
    for listed, paths in (("tags", list(tags)), ("submodules", submodules)):
        for path in paths:
            if not any(name.startswith(path + "/") for name in files):
                raise TroubleError("rehearsal/sources/%s names '%s', which has no files." % (listed, path))
    place.mkdir(parents=True, exist_ok=True)
    commits: dict[str, str] = {}
    # The innermost first, as the outer ones name their commits.
    for path in sorted({*tags, *submodules}, key=lambda name: (-name.count("/"), name)):
        stream = _import_stream(sources, path, files, submodules, commits)
        commits[path] = _make(place / (repository_name(path) + ".git"), stream, tags.get(path, []))
    made = [Repository(repository_name(path), commit, tuple(tags.get(path, []))) for path, commit in commits.items()]
    return sorted(made)


def repository_name(path: str) -> str:
    """The name of the repository of a directory of the sources: ``pytorch-third_party-fmt``."""
    return path.replace("/", "-")


def renew_releases(commits: Mapping[str, str], checkout: pathlib.Path = CHECKOUT) -> list[pathlib.Path]:
    """Write the commits that come out into the release files of rehearsals; the files that changed.

    Args:
        commits: repository to its commit.
        checkout: the checkout that the files lie in.
    """
    changed = []
    for path in sorted(checkout.glob(RELEASES)):
        before = after = path.read_text()
        for name, commit in commits.items():
            after = re.sub(NAMED.format(name=re.escape(name)), r"\g<1>" + commit, after)
        if after != before:
            path.write_text(after)
            changed.append(path)
    return changed


def _files(sources: pathlib.Path) -> list[str]:
    """The files of the sources, relative to them; in the checkout only those that belong to it."""
    if sources == SOURCES:
        above = sources.relative_to(CHECKOUT).as_posix() + "/"
        return [name[len(above) :] for name in files_of(CHECKOUT) if name.startswith(above)]
    found = (path for path in sources.rglob("*") if path.is_symlink() or not path.is_dir())
    return sorted(path.relative_to(sources).as_posix() for path in found)


def _lines(path: pathlib.Path) -> list[str]:
    """The lines of a list, without those that begin with a number sign."""
    if not path.exists():
        return []
    return [line.strip() for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]


def _import_stream(
    sources: pathlib.Path, path: str, files: Sequence[str], submodules: Sequence[str], commits: Mapping[str, str]
) -> bytes:
    """What git-fast-import(1) reads for the repository of a directory.

    Args:
        sources: the directory of the sources.
        path: the repository's directory, relative to the sources.
        files: all files of the sources.
        submodules: the directories that are submodules.
        commits: those of the submodules inside this one.
    """
    inside = [name for name in submodules if name.startswith(path + "/")]
    mine = [name for name in inside if not any(name.startswith(other + "/") for other in inside)]
    head = "commit %s\nauthor %s\ncommitter %s\ndata %d\n%s" % (BRANCH, WHO, WHO, len(MESSAGE), MESSAGE)
    parts = [head.encode()]
    for name in files:
        if name.startswith(path + "/") and not any(name.startswith(other + "/") for other in mine):
            parts.append(_entry(sources / name, name[len(path) + 1 :]))
    modules = ""
    for name in mine:
        below = name[len(path) + 1 :]
        parts.append(("M 160000 %s %s\n" % (commits[name], below)).encode())
        modules += '[submodule "%s"]\n\tpath = %s\n\turl = ../%s.git\n' % (below, below, repository_name(name))
    if modules:
        parts.append(b"M 100644 inline .gitmodules\ndata %d\n%s\n" % (len(modules), modules.encode()))
    return b"".join(parts)


def _entry(path: pathlib.Path, name: str) -> bytes:
    if path.is_symlink():
        mode, content = "120000", os.fsencode(os.readlink(path))
    else:
        mode, content = "100755" if path.stat().st_mode & 0o100 else "100644", path.read_bytes()
    return b"M %s inline %s\ndata %d\n%s\n" % (mode.encode(), name.encode(), len(content), content)


def _make(repository: pathlib.Path, stream: bytes, tags: Sequence[str]) -> str:
    """Make a repository beside its place, and put it there unless the same one is there; its commit."""
    new = pathlib.Path(tempfile.mkdtemp(prefix=".%s-" % repository.name, dir=repository.parent))
    try:
        _git(new, "init", "--quiet", "--bare", "--template=", ".")
        _git(new, "symbolic-ref", "HEAD", BRANCH)
        _git(new, "fast-import", "--quiet", "--date-format=raw", data=stream)
        commit = _git(new, "rev-parse", BRANCH).strip()
        for tag in tags:
            _git(new, "update-ref", "refs/tags/" + tag, commit)
        if not repository.exists() or _references(repository) != _references(new):
            new.chmod(0o755)
            shutil.rmtree(repository, ignore_errors=True)
            new.rename(repository)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return commit


def _references(repository: pathlib.Path) -> str:
    return _git(repository, "for-each-ref", "--format=%(refname) %(objectname)")


def _git(repository: pathlib.Path, *words: str, data: bytes = b"") -> str:
    """Run git in a repository, with nothing of the caller's own settings; what it printed.

    Raises:
        TroubleError: there is no git, or it failed; with its own words.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment = {**kept, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    command = ["git", "-c", "safe.directory=*", *words]
    try:
        done = subprocess.run(command, cwd=repository, env=environment, input=data, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise TroubleError("There is no git to make the rehearsal's sources with; install it.") from error
    if done.returncode != 0:
        raise TroubleError("`git %s` failed: %s" % (words[0], done.stderr.decode(errors="replace").strip()))
    return done.stdout.decode()
