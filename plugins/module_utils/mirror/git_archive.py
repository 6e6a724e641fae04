# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Archive the objects of a git commit and of its submodules' commits, and prove that an archive has them.

An archive is a tar file of packs, ``<commit>.pack``: objects only, without configuration, hooks or work tree. Its name
holds the digest of its content, against damage. What proves it is the commit, as git computes the name of each object
of a pack anew from its content.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from typing import IO, Iterator, cast

from ..core.digests import sha256_of
from ..core.download import half_name
from ..core.errors import StackError, system_remedy
from ..core.files import flush_directory
from ..core.processes import start_program
from ..core.run_command import Outcome, run

STEP = "fetch"
TIMEOUT = 3600.0
"""Seconds that one git command may take."""

_NAME = re.compile(r"(?P<commit>[0-9a-f]{40})\.(?P<sha256>[0-9a-f]{64})\.tar\Z")
_SUBMODULE = "160000"
_READS_ONLY = {"GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


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
    """Make the archive of a commit; return its path and its sha256.

    Raises StackError: git cannot give the commit, or the archive cannot be written.
    """
    half = half_name(os.path.join(directory, commit + ".tar"))
    work = half_name(os.path.join(directory, commit))
    try:
        os.makedirs(directory, exist_ok=True)
        shutil.rmtree(work, ignore_errors=True)
        os.mkdir(work)
        packs: dict[str, str] = {}
        _gather(repository, commit, work, packs, ())
        with tarfile.open(half, "w", format=tarfile.PAX_FORMAT) as archive:
            for name, pack in sorted(packs.items()):
                archive.add(pack, name + ".pack", filter=_plain)
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
        shutil.rmtree(work, ignore_errors=True)
    return path, digest


def problem(path: str, commit: str, scratch: str | None = None) -> str:
    """Tell why an archive does not prove a commit and its submodules, as the end of a sentence; empty where it does.

    Everything is unpacked below ``scratch``, or the system's temporary directory, and taken away again.
    """
    name = os.path.basename(path)
    try:
        with tempfile.TemporaryDirectory(dir=scratch or None) as store, tarfile.open(path) as archive:
            _ask(".", "init", "--quiet", "--bare", "--template=", store, **_READS_ONLY)
            waiting, proved = [commit], set()
            while waiting:
                wanted = waiting.pop()
                if wanted in proved:
                    continue
                proved.add(wanted)
                said = _unpack(archive, wanted, store)
                if said:
                    return "%s does not prove commit %s: %s" % (name, wanted, said)
                waiting.extend(pinned for _path, pinned in _submodules(store, wanted))
    except (OSError, tarfile.TarError) as error:
        return "%s cannot be read: %s" % (name, error)
    return ""


def _unpack(archive: tarfile.TarFile, commit: str, store: str) -> str:
    """Take the pack of a commit into a repository, each object by its content; return what is wrong with it, or ""."""
    try:
        pack = archive.extractfile(commit + ".pack")
    except KeyError:
        pack = None
    if pack is None:
        return "it has no pack of it; an earlier version made archives of checkouts"
    with start_program(
        ["git", "-C", store, "index-pack", "--stdin"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, env=_variables(_READS_ONLY),
    ) as process:
        try:
            with cast(IO[bytes], process.stdin) as into:
                shutil.copyfileobj(pack, into, 1 << 20)
        except BrokenPipeError:
            pass  # its exit code says it
    if process.returncode != 0:
        return "git refuses its pack"
    with open(os.path.join(store, "shallow"), "a", encoding="ascii") as stream:
        stream.write(commit + "\n")
    outcome = _ask(store, "rev-list", "--objects", "--quiet", commit, **_READS_ONLY)
    return "" if outcome.ok else outcome.complaint.rstrip(".")


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return an entry that belongs to nobody and has no time."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o644
    return member


def _gather(address: str, commit: str, work: str, packs: dict[str, str], above: tuple[str, ...]) -> None:
    """Fetch a commit and those of its submodules, and pack the objects of each: ``packs`` is path by commit.

    ``above`` says what it is a submodule of, outermost first: "PATH of ADDRESS".
    """
    if commit in packs:
        return
    tree = os.path.join(work, commit)
    # Git's own protection: a submodule of a server may not name a directory of this machine, unless the user allows it.
    variables = {"GIT_PROTOCOL_FROM_USER": "0"} if above else {}
    _git(".", "init", "--quiet", "--template=", tree)
    _git(tree, "remote", "add", "origin", address)
    # Not every server gives a single commit; then all of its branches and tags are fetched.
    _ask(tree, "fetch", "--quiet", "--depth", "1", "origin", commit, **variables)
    if not _has(tree, commit):
        asked = _ask(tree, "fetch", "--quiet", "--tags", "origin", "+refs/heads/*:refs/remotes/origin/*", **variables)
        if not _has(tree, commit):
            raise _not_fetched(address, commit, asked, above)
    packs[commit] = os.path.join(work, commit + ".pack")
    _pack(tree, commit, packs[commit])
    for path, pinned in list(_submodules(tree, commit)):
        _gather(_address(tree, commit, path), pinned, work, packs, (*above, "%s of %s" % (path, address)))
    shutil.rmtree(tree)


def _not_fetched(address: str, commit: str, asked: Outcome, above: tuple[str, ...]) -> StackError:
    said = "its branches and tags do not have it" if asked.ok else asked.complaint.rstrip(".")
    place, remedy = "", "Correct repository and commit in the release file, or reach that server, then run it again."
    if above:
        place = ", the submodule %s" % above[-1]
        remedy = (
            "Repository and commit are those of its .gitmodules and its tree, and not of the release file. Reach that "
            "server, or name a repository in the release file that has what can be reached there, then run it again.")
    if above and "not allowed" in said:
        remedy = (
            "Git takes no submodule from a directory of this machine, since whoever writes .gitmodules could name any. "
            "If it is yours: git config --global protocol.file.allow always. Then run it again.")
    return StackError("%s cannot be fetched from %s%s: %s." % (commit, address, place, said), STEP, remedy)


def _pack(tree: str, commit: str, path: str) -> None:
    """Write the objects of one commit, without its history."""
    listed = path + ".objects"
    with open(listed, "wb") as stream:
        stream.write(_git(tree, "rev-list", "--objects", "--no-walk", commit).output.encode())
    with open(listed, "rb") as names, open(path, "wb") as pack, start_program(
        ["git", "-C", tree, "pack-objects", "--quiet", "--stdout"], stdin=names, stdout=pack,
        stderr=subprocess.PIPE, env=_variables({}),
    ) as process:
        errors = process.communicate()[1].decode("utf-8", "replace").strip()
    os.unlink(listed)
    if process.returncode != 0:
        raise StackError("git cannot pack commit %s: %s." % (commit, errors), STEP, "Run it again.", path)


def _submodules(repository: str, commit: str) -> Iterator[tuple[str, str]]:
    """Return the submodules of a commit, path and commit; one that is only listed is not there."""
    named = set(_listed(repository, commit).values())
    entries = _ask(repository, "ls-tree", "-r", "-z", "--full-tree", commit).output if named else ""
    for entry in entries.split("\0"):
        facts, _tab, path = entry.partition("\t")
        if facts.startswith(_SUBMODULE) and path in named:
            yield path, facts.split()[2]


def _listed(repository: str, commit: str) -> dict[str, str]:
    """Return the paths of .gitmodules by their names there."""
    listed = _ask(
        repository, "config", "--blob", commit + ":.gitmodules", "--null", "--get-regexp", r"^submodule\..*\.path$")
    entries = (entry.partition("\n") for entry in listed.output.split("\0") if entry)
    return {key[len("submodule."):-len(".path")]: path for key, _line, path in entries}


def _address(tree: str, commit: str, path: str) -> str:
    """Return from where git fetches a submodule: relative addresses follow that of the repository."""
    name = next(name for name, place in _listed(tree, commit).items() if place == path)
    _git(tree, "read-tree", commit)
    with open(os.path.join(tree, ".gitmodules"), "w", encoding="utf-8") as stream:
        stream.write(_git(tree, "cat-file", "blob", commit + ":.gitmodules").output)
    _git(tree, "submodule", "--quiet", "init", "--", path)
    return _git(tree, "config", "submodule.%s.url" % name).output.strip()


def _has(tree: str, commit: str) -> bool:
    return _ask(tree, "cat-file", "-e", commit + "^{commit}").ok


def _variables(more: dict[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in (
        "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR", "GIT_SHALLOW_FILE")}
    return {**kept, "GIT_TERMINAL_PROMPT": "0", **more}


def _ask(tree: str, *words: str, **variables: str) -> Outcome:
    return run(["git", "-C", tree, *words], TIMEOUT, environment=_variables(variables))


def _git(tree: str, *words: str) -> Outcome:
    """Run git, which must succeed."""
    outcome = _ask(tree, *words)
    if not outcome.ok:
        raise StackError(
            "git %s: %s." % (" ".join(words), outcome.complaint.rstrip(".")), STEP,
            "Correct repository and commit in the release file, or reach that server, then run it again.")
    return outcome
