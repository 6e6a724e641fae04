# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Plan what a mirror has of a release, what is to be fetched, and what is nowhere."""

from __future__ import annotations

import concurrent.futures
import os
import posixpath
import re
import urllib.parse
import zipfile
from typing import Iterable, NamedTuple

from ..core.digests import local_path, sha256_of
from . import git_archive
from .contents import ARCHIVES, FILES, READERS, TREES, Contents
from .index import Item
from .lack import Lack
from .package_index import Indexes, Link
from .requirements import (
    ARCHIVE,
    FILE,
    TREE,
    Choice,
    Need,
    Needs,
)
from .wheel_tags import (
    Chooser,
    Interpreter,
    parse,
    same_version,
)

_CUDA = re.compile(r"^cuda\b[^=\n]*=\s*['\"][^'\"]", re.MULTILINE)
"""A line of torch/version.py; a CPU build has None there."""


class Plan(NamedTuple):
    """What is there, what is to be fetched, and what is nowhere."""

    there: list[Item]
    fetch: list[Item]
    lacks: list[Lack]
    remarks: list[str]


class Planner:
    """Compares what a release needs with a mirror, and with ``indexes`` unless that is None."""

    def __init__(self, contents: Contents, base: Interpreter, machine: Interpreter, indexes: Indexes | None) -> None:
        self.contents = contents
        self.indexes = indexes
        self.base = Chooser(base)
        self.machine = Chooser(machine)
        self.found = Plan([], [], [], [])

    def plan(self, needs: Needs) -> Plan:
        """Return the plan for what a release needs."""
        asked = [*needs.plain, *(_of_choice(needs.pytorch) if needs.pytorch else [])]
        self.contents.read_ahead(path for need in asked for path in self.candidates(need))
        if self.indexes is not None:
            absent = [need for need in needs.plain if need.kind == FILE and self.there(need) is None]
            with concurrent.futures.ThreadPoolExecutor(READERS) as pool:
                list(pool.map(self.links, absent))
        for need in needs.plain:
            self.settle(need)
        if needs.pytorch is not None:
            self.settle_pytorch(needs.pytorch)
        self.found.remarks.extend(needs.problems)
        return self.found

    def candidates(self, need: Need) -> list[str]:
        """Return the files of the mirror that may be what is needed, the best one first, by relative path."""
        if need.kind == TREE:
            directory = self.contents.absolute(TREES)
            return [posixpath.join(TREES, os.path.basename(p)) for p in git_archive.archives(directory, need.commit)]
        if need.kind == ARCHIVE:
            return [archive_path(need)]
        ranked = []
        for name in self.contents.names:
            rank = self.rank(need, name)
            if rank is not None:
                ranked.append((rank, posixpath.join(FILES, name)))
        return [path for _rank, path in sorted(ranked)]

    def rank(self, need: Need, filename: str) -> tuple[int, int, int, str] | None:
        """Tell how good a file is by its name, the least being best; None where it is not what is needed."""
        name = parse(filename, need.name)
        if name is None or not same_version(need.version, name.version):
            return None
        return (self.machine if need.for_machine else self.base).rank(name, need.form)

    def there(self, need: Need) -> Item | None:
        """Tell what is needed, if the mirror has it."""
        for path in self.candidates(need):
            if not self.problem(need, path) and self.contents.digest(path):
                return self.contents.item(path, need)
        return None

    def problem(self, need: Need, path: str) -> str:
        """Tell why a file is not what is needed, as the end of a sentence; empty where it is, or is not there."""
        if need.kind == TREE:
            return self.contents.commit_problem(path, need.commit)
        return self.contents.problem(path, need.hashes)

    def settle(self, need: Need) -> bool:
        """Put a need where it belongs; whether it is there or can be fetched."""
        item = self.there(need)
        if item is not None:
            self.found.there.append(item)
            return True
        offer = self.offer(need) if self.indexes is not None else None
        if offer is not None:
            self.found.fetch.append(offer)
            return True
        problems = [self.problem(need, path) for path in self.candidates(need)]
        if self.indexes is None:
            need = self.as_listed(need)
        if self.indexes is not None:
            problems += self.why_not(need)
        self.found.lacks.append(Lack(need, "; ".join(problem for problem in problems if problem)))
        return False

    def as_listed(self, need: Need) -> Need:
        """Tell what is needed, with the one digest that the mirror's list has of it, if it has one."""
        listed = [
            digest for path, digest in self.contents.listed.items()
            if digest in need.hashes and self.rank(need, posixpath.basename(path)) is not None]
        return need._replace(hashes=tuple(listed[:1])) if listed else need

    def settle_pytorch(self, choice: Choice) -> None:
        """Put PyTorch's needs where they belong: the first of the choice, or else all others."""
        first = choice.first
        if first is not None and (self.there(first) or (self.indexes is not None and self.offer(first))):
            self.settle(first)
            return
        if self.indexes is None and first is not None and not any(self.there(need) for need in choice.otherwise):
            self.settle(first)
            return
        if first is not None and self.indexes is not None:
            self.found.remarks.append(
                "The CPU build of PyTorch %s is not to be had (%s); the default index's build is taken instead." % (
                    first.version, "; ".join(self.why_not(first)) or "no place has the file"))
        for need in choice.otherwise:
            item = self.there(need)
            # What a CUDA build needs is only known once its wheel is there.
            if self.settle(need) and item is not None and is_cuda_build(self.contents.absolute(item.path)):
                for other in choice.last:
                    self.settle(other)

    def offer(self, need: Need) -> Item | None:
        """Tell where what is needed can be fetched from."""
        if need.kind == TREE:
            return Item(TREES, "", -1, need.url, need.name, need.version, need.commit)
        if need.kind == ARCHIVE:
            return Item(archive_path(need), need.hashes[0], -1, need.url, need.name, need.version)
        links = self.links(need)
        ranked = [(self.rank(need, link.filename), place) for place, link in enumerate(links)]
        for _rank, place in sorted((rank, place) for rank, place in ranked if rank is not None):
            link = links[place]
            digest = link.sha256 or local_digest(link)
            if digest in need.hashes:
                path = posixpath.join(FILES, link.filename)
                return Item(path, digest, link.size, link.url, need.name, need.version)
        return None

    def links(self, need: Need) -> list[Link]:
        """Return the files of the project wherever they may be looked for."""
        if self.indexes is None:
            return []
        found = self.indexes.links(need.name, need.place)
        # PyTorch's own index is only tried first.
        if need.who == "pytorch.cpu":
            found = found + self.indexes.links(need.name)
        return found

    def why_not(self, need: Need) -> list[str]:
        """Tell what is known of why something is not offered, as ends of sentences."""
        if self.indexes is None or need.kind != FILE:
            return []
        problems = ["%s: %s" % item for item in self.indexes.problems_of(need.name, need.place)]
        others = sorted({link.filename for link in self.links(need) if self.rank(need, link.filename) is not None})
        if others:
            problems.append("the sha256 of %s is none of the release file's" % ", ".join(others))
        elif not problems:
            problems.append("no place that pip looks at has it for this interpreter")
        return problems


def _of_choice(choice: Choice) -> list[Need]:
    return [*([choice.first] if choice.first else []), *choice.otherwise, *choice.last]


def archive_path(need: Need) -> str:
    """Return the path of an archive in a mirror: below its digest, under the name by which pip knows what it is."""
    name = urllib.parse.unquote(urllib.parse.urlsplit(need.url).path.rpartition("/")[2]) or "archive"
    return posixpath.join(ARCHIVES, need.hashes[0], name)


def local_digest(link: Link) -> str:
    """Return the digest of a file of this machine that is offered without one; empty for others."""
    path = local_path(link.url)
    if link.sha256 or path is None:
        return ""
    try:
        return sha256_of(path)
    except OSError:
        return ""


def is_cuda_build(wheel: str) -> bool:
    """Tell whether a wheel of PyTorch is a CUDA build, as its version file says."""
    with zipfile.ZipFile(wheel) as archive:
        if "torch/version.py" not in archive.namelist():
            return False
        return bool(_CUDA.search(archive.read("torch/version.py").decode("utf-8", "replace")))


def find_conflicts(plan: Plan, contents: Contents) -> list[str]:
    """Return files of which two contents are wanted under one name, each as a sentence without its end."""
    wanted = dict(contents.others)
    found = []
    for item in plan.there + plan.fetch:
        other = wanted.setdefault(item.path, item.sha256)
        if item.sha256 and other != item.sha256:
            found.append("%s is wanted with sha256 %s by this release, and with %s as well" % (
                item.path, item.sha256, other))
    return found


def join_plans(one: Plan, other: Plan) -> Plan:
    """Return two plans as one."""
    return Plan(one.there + other.there, one.fetch + other.fetch, one.lacks + other.lacks, one.remarks + other.remarks)


def unique_items(items: Iterable[Item]) -> list[Item]:
    """Return the items, each file once."""
    return list({(item.path, item.sha256, item.commit): item for item in items}.values())
