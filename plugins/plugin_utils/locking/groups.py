# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Say what is resolved together for the locks of a release, and which of them gets what was found. Pure."""

from __future__ import annotations

import itertools
import re
from typing import Any, Container, FrozenSet, Iterator, Mapping, NamedTuple, Sequence

from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import components, locks
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition.packages import canonical, requirements

from .around import Around, around, names, own, without_comments

BASE, TORCH, OF_CUDA = "locks.base", "pytorch.lock", "pytorch.cuda_lock"
RATTLER = 10
"""The oldest minor version of Python 3 that makes a conda base, whatever Python is in it."""

OLDEST, NEWEST = 11, 14
"""The minor versions of Python 3 that overlays are made for, unless the release file says another oldest one."""

_WITH_CUDA = re.compile(r"(nvidia|cuda)-.*|triton")
"""Packages that a CUDA build of PyTorch needs, and no other one does."""

_HASHES = re.compile(r"--hash=\S+")

MACHINES = ("x86_64", "aarch64")
Kinds = FrozenSet["tuple[int, str]"]
"""Minor versions of Python and machines."""


class Block(NamedTuple):
    """One requirement of a lock, as it is written."""

    name: str
    version: str
    kinds: Kinds
    """on which it is installed"""
    text: str

    @property
    def hashes(self) -> frozenset[str]:
        """Return the words with sha256 of the files that it admits."""
        return frozenset(_HASHES.findall(self.text))

    @property
    def pin(self) -> tuple[str, str, Kinds]:
        """Return what it says, but for the files."""
        return self[:3]


class Group(NamedTuple):
    """Locks that are resolved together.

    Attributes:
        paths: the dotted paths of their keys.
        roots: what is asked for, as pip reads it.
        pythons: the minor versions of Python 3 that it is for.
        alone: whether what the roots need is left out.
        strange: why what was not locked before is not taken in; empty where it is.
        known: hashes that the release has from elsewhere, which are right though the index does not have them.
        around: what a bundle has to fit to; None for anything else.
    """

    paths: tuple[str, ...]
    roots: tuple[str, ...]
    pythons: range
    alone: bool = False
    strange: str = ""
    known: frozenset[str] = frozenset()
    around: Around | None = None


def kinds(marker: str, pythons: range) -> Kinds:
    """Tell on which of some Pythons and of all machines a marker holds; these have Linux and CPython."""
    from packaging.markers import Marker  # of ansible-core; what only imports this file can do without it

    every = itertools.product(pythons, MACHINES)
    if not marker:
        return frozenset(every)
    judged = Marker(marker)
    return frozenset((minor, machine) for minor, machine in every if judged.evaluate({
        "python_version": "3.%d" % minor, "python_full_version": "3.%d.1" % minor, "platform_machine": machine,
        "sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "implementation_name": "cpython",
        "platform_python_implementation": "CPython", "extra": ""}))


def blocks(lock: str, pythons: range = range(RATTLER, NEWEST + 1)) -> list[Block]:
    """Cut a lock into its requirements, but for those that no kind of machine installs.

    Of one that all install, the text has no marker. Raises ValueError: something is not pinned, see
    :func:`requirements`.
    """
    found: list[str] = []
    for line in lock.splitlines(keepends=True):
        if found and (line[:1].isspace() or found[-1].endswith("\\\n")):
            found[-1] += line
        elif line.strip() and not line.startswith("#"):
            found.append(line if line.endswith("\n") else line + "\n")
    every, cut = kinds("", pythons), []
    for text in found:
        for one in requirements(text):
            where = kinds(one.marker, pythons)
            if one.marker and where == every:
                text = re.sub(r"\s*;.*?(?=\s*(\\\n|--hash|\n))", "", text, count=1)
            if where:
                cut.append(Block(canonical(one.name), one.version, where, text))
    return cut


def without_hashes(lock: str) -> str:
    """Leave the names, versions and markers of a lock."""
    return "".join(re.sub(r"\s*\\?\s*--hash=\S+", "", block.text).rstrip(" \\\n") + "\n" for block in blocks(lock))


def groups(content: Mapping[str, Any], asked: Mapping[str, str], files: Container[str] = ()) -> Iterator[Group]:
    """Yield what is resolved together.

    Args:
        content: the data of a release file, with its locks as texts.
        asked: by the path of a lock, the text of the file that says what it is made of; without one, a lock is made of
            what it has.
        files: the paths of locks that are files, also where nothing is in them yet.

    Bundles come last, and fit to what ``content`` has then: who renews a lock before puts it there.

    Raises ValueError: a lock cannot be read.
    """
    texts = {lock.path: lock.value for lock in locks.texts(content) if lock.value or lock.path in files}

    def roots(path: str) -> tuple[str, ...]:
        if path in asked:
            return tuple(line for line in (re.sub(r"(^|\s)#.*", "", line).strip() for line in asked[path].splitlines())
                         if line)
        return tuple(dict.fromkeys(block.name for block in blocks(texts[path])))

    pythons = pythons_of(content)
    wheel = content.get("pytorch") or {}
    together = [BASE] if BASE in texts else []
    torch: list[str] = []
    if TORCH in texts and not wheel.get("index"):
        torch = ["torch==%s" % wheel.get("version")]
        together += [path for path in (TORCH, OF_CUDA) if path in texts]
    if together:
        conda = str((content.get("base") or {}).get("kind")) == "conda"
        strange = "the base may bring it; name it in %s, if it does not" % asked_name("base") if conda else ""
        of_cpu = (components.value_at(content, ("pytorch", "cpu", "hashes")) or {}).values()
        known = frozenset("--hash=" + digest for digests in of_cpu for digest in digests)
        yield Group(
            tuple(together), (*torch, *(roots(BASE) if BASE in texts else ())), pythons, strange=strange, known=known)
    alone = left_alone(content)
    for path in texts:
        if path in alone:
            continue
        if path.startswith("packages["):
            pinned = ["%s==%s" % (block.name, block.version) for block in blocks(texts[path])]
            yield Group((path,), tuple(pinned), pythons, alone=True)
        elif path not in (BASE, TORCH, OF_CUDA, ".".join(locks.OF_CONDA)) and not path.startswith("bundles["):
            yield Group((path,), roots(path), range(RATTLER, NEWEST + 1) if path == "locks.conda" else pythons)
    for number, entry in enumerate(content.get("bundles") or []):
        left = names(list(entry.get("left_out") or {}))
        wanted = tuple(text for text in entry["packages"] if not names([text]) & left)
        yield Group(("bundles[%d].lock" % number,), wanted, pythons, around=around(content, number))


def incomplete_bundle(content: Mapping[str, Any], release: str) -> str:
    """Say what the first bundle lacks of which there can be no lock without it; empty where none does.

    Args:
        release: the name of the release, for the name of a lock that is proposed.
    """
    bundles = content.get("bundles")
    for entry in bundles if isinstance(bundles, list) else ():
        bundle = entry if isinstance(entry, dict) else {}
        if not bundle.get("name"):
            return "a bundle has no 'name'; give it one, as in name: science."
        if not bundle.get("packages"):
            return "the bundle '%s' has no 'packages'; list there what it is made of." % bundle["name"]
        if not isinstance(bundle.get("lock"), str):
            return (
                "the bundle '%s' has no 'lock'; name a file that need not be there yet, as in "
                "lock: %s/bundles/%s.txt." % (bundle["name"], release, bundle["name"]))
    return ""


def resolved_blocks(group: Group, text: str) -> list[Block]:
    """Cut what uv resolved for a group into its requirements; for a bundle, those that are its own."""
    found = blocks(text, group.pythons)
    if group.around is None:
        return found
    texts: dict[str, str] = {}
    for block in found:
        texts[block.name] = texts.get(block.name, "") + block.text
    mine = own(texts, names(group.roots), group.around.given)
    return [block._replace(text=without_comments(block.text)) for block in found if block.name in mine]


def left_alone(content: Mapping[str, Any]) -> dict[str, str]:
    """Name the locks that no resolution is made for, with the reason."""
    wheel = content.get("pytorch") or {}
    found = {}
    for lock in locks.texts(content):
        index = lock.holder.get("index") if lock.path.startswith("packages[") else ""
        if index:
            found[lock.path] = "it comes from %s" % index
        if lock.path == ".".join(locks.OF_CONDA) and lock.value:
            found[lock.path] = "no file beside it says what it is made of"
        elif lock.path in (TORCH, OF_CUDA) and wheel.get("index"):
            found[lock.path] = "PyTorch comes from %s" % wheel["index"]
    return found


def asked_name(lock: str) -> str:
    """Name the file that says what a lock is made of."""
    return lock + ".in"


def deal(
    group: Group, before: Mapping[str, str], found: Sequence[Block]
) -> tuple[dict[str, str], list[str]]:
    """Give each lock of a group its part of what was resolved.

    What is pinned as before keeps its text: files that an index got later are no change; a hash of none of its files
    is one.

    Args:
        group: what was resolved.
        before: the texts of the locks, by path.
        found: what was resolved.

    Returns:
        The new texts by path, and the names of what was left out.
    """
    old = {block.pin: block for path in group.paths for block in blocks(before[path], group.pythons)}
    foreign = {block.pin for block in found
               if block.pin in old and not old[block.pin].hashes <= block.hashes | group.known}
    names = {block.name for block in old.values()} | {canonical(re.split(r"[\s=<>!~\[;]", root)[0])
                                                      for root in group.roots}
    new: dict[str, list[str]] = {path: [] for path in group.paths}
    left = []
    for block in found:
        if group.strange and block.name not in names:
            left.append(block.name)
            continue
        kept = block if block.pin in foreign else old.get(block.pin, block)
        new[_home(block.name, group.paths)].append(kept.text)
    # Where the pins are the same, so is the text, with the comments of whoever wrote some.
    same = {path for path, texts in new.items()
            if _pins("".join(texts), group.pythons) == _pins(before[path], group.pythons)
            and not foreign & _pins(before[path], group.pythons)}
    return {path: before[path] if path in same else "".join(texts) for path, texts in new.items()}, left


def changes(before: str, after: str) -> list[str]:
    """Tell the difference of two locks by package, a line each; empty for none."""
    found = []
    was, now = _versions(before), _versions(after)
    for name in sorted({*was, *now}):
        if was.get(name) != now.get(name):
            found.append("%s %s -> %s" % (name, was.get(name, "(none)"), now.get(name, "(none)")))
    hashes = {block.pin: block.hashes for block in blocks(before)}
    found += ["%s %s: hashes that its index does not have" % (block.name, block.version) for block in blocks(after)
              if not hashes.get(block.pin, block.hashes) <= block.hashes]
    return found or (["other machines or Pythons"] if before != after else [])


def _pins(lock: str, pythons: range) -> set[tuple[str, str, Kinds]]:
    return {block.pin for block in blocks(lock, pythons)}


def _versions(lock: str) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for block in blocks(lock):
        found.setdefault(block.name, []).append(block.version)
    return {name: ", ".join(versions) for name, versions in found.items()}


def _home(name: str, paths: Sequence[str]) -> str:
    if TORCH in paths and name == "torch":
        return TORCH
    if OF_CUDA in paths and _WITH_CUDA.fullmatch(name):
        return OF_CUDA
    return paths[0]


def pythons_of(content: Mapping[str, Any]) -> range:
    """Return the minor versions that a release may have: a conda base and an image have one."""
    under = content.get("base") or {}
    one = under.get("kind") in ("conda", "container")
    oldest = int(str(under.get("python" if one else "minimum") or "3.%d" % OLDEST).split(".")[1])
    return range(oldest, (oldest if one else max(oldest, NEWEST)) + 1)
