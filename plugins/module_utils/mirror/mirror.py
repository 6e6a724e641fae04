# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A directory that holds all that releases fetch, so that they can be rolled out without network."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from typing import Any, Iterable, Iterator, Mapping, Sequence

from ..conda import request as conda_request
from ..core.digests import sha256_of
from ..core.download import Network, fetch, is_half
from ..core.errors import StackError, system_remedy
from ..definition.base import CONDA
from . import conda_channel as mirror_conda
from . import git_archive as mirror_git
from . import index as mirror_record
from . import pip_config as pip_settings
from .index import Item
from .package_index import Indexes
from .plan import (
    ARCHIVES,
    FILES,
    TREES,
    Contents,
    Lack,
    Plan,
    Planner,
    conda_plan,
    conflicts,
)
from .requirements import (
    Need,
    base_interpreter,
    machine_interpreter,
    needs_of,
)
from .wheel_tags import Interpreter

PYTHON = "python"
PARTS = (PYTHON, CONDA)
TIMEOUT = 60.0
LOCK = ".lock"
LARGE = 50 << 20
"""Bytes of a file that is announced before it is fetched."""


class Mirror:
    """A mirror and the release that it is filled or looked at for.

    Args:
        params: options of the module.
        variables: of the environment.
        scratch: a directory for what need not be kept.
    """

    def __init__(self, params: Mapping[str, Any], variables: Mapping[str, str], scratch: str) -> None:
        self.params = params
        self.variables = variables
        self.scratch = scratch
        self.directory = params["path"]  # type: str
        self.definition = params["definition"]  # type: Mapping[str, Any]
        self.release = str(self.definition["release"])
        self.base = self.definition.get("base") or {}  # type: Mapping[str, Any]
        self.parts = [part for part in params["parts"] if part != CONDA or self.base.get("kind") == CONDA]
        self.record = mirror_record.read(self.directory)
        self.found = None  # type: Interpreter | None

    def interpreter(self) -> Interpreter:
        """The machine's interpreter, which is asked once.

        Raises:
            StackError: it does not answer.
        """
        if self.found is None:
            self.found = self.asked_interpreter()
        return self.found

    def asked_interpreter(self) -> Interpreter:
        """See :meth:`interpreter`."""
        named = self.base.get("python") if self.base.get("kind") != CONDA else ""
        return machine_interpreter(
            str(named or self.params["python"] or ""), TIMEOUT, "Name one that does as the option python.",
            self.params["interpreter"] or {},
        )

    def contents(self) -> Contents:
        """What the mirror holds."""
        wanted = {
            path for name, parts in self.record["releases"].items() if name != self.release
            for facts in parts.values() for path in facts["files"]
        }
        listed = {path: entry["sha256"] for path, entry in self.record["files"].items()}
        return Contents(self.directory, listed, {path: listed[path] for path in wanted if path in listed})

    def network(self) -> tuple[Network, pip_settings.Settings]:
        """The way to other machines, with the logins that pip would use."""
        settings = pip_settings.read(self.variables)
        network = Network(self.params["timeout"], settings.certificates, settings.proxy)
        entries = [str(entry.get("index") or "") for entry in self.definition.get("packages") or []]
        for url in (*settings.indexes, *settings.find_links, *entries):
            network.without_login(url)
        return network, settings

    def plan(self, may_fetch: bool) -> Plan:
        """What is there, what is to be fetched and what is lacking.

        Args:
            may_fetch: whether other places are asked for what is not there.

        Raises:
            StackError: the release cannot be mirrored, or a place that is asked cannot answer.
        """
        machine = self.interpreter()
        contents = self.contents()
        plan = Plan([], [], [], [])
        if PYTHON in self.parts:
            needs = needs_of(self.definition, machine, self.params["mpi_wheel"])
            if needs.problems:
                raise StackError(" ".join(needs.problems), "read the release file", "Then run it again.")
            indexes = Indexes(*self.network()) if may_fetch else None
            found = Planner(contents, base_interpreter(self.definition, machine), machine, indexes).plan(needs)
            plan = joined(plan, found)
        if CONDA in self.parts:
            plan = joined(plan, self.conda(contents, may_fetch))
        plan = plan._replace(there=unique(plan.there), fetch=unique(plan.fetch))
        problems = conflicts(plan, contents)
        if problems:
            raise StackError(
                "Two files of one name are wanted: %s." % "; ".join(problems), "plan",
                "Mirror this release into a directory of its own.", self.directory,
            )
        return plan

    def conda(self, contents: Contents, may_fetch: bool) -> Plan:
        """The plan of the conda base."""
        channels = self.params["conda_channels"]
        platform = self.params["conda_platform"] or conda_request.this_platform()
        if may_fetch:
            wanted = mirror_conda.wanted(
                self.base, channels, self.params["conda_mirrors"], platform, self.scratch
            )
            plan = conda_plan(wanted, contents, True)
        else:
            plan = self.conda_recorded(contents, mirror_conda.request_digest(self.base, channels, platform))
        for channel in sorted({os.path.dirname(os.path.dirname(item.path)) for item in plan.there}):
            path = os.path.join(channel, "noarch", mirror_conda.INDEX)
            if not may_fetch and not os.path.exists(contents.absolute(path)):
                plan.lacks.append(Lack(Need("file", path, "", "base"), "the channel has no index"))
        return plan

    def conda_recorded(self, contents: Contents, digest: str) -> Plan:
        """The plan by the mirror's own list, as nothing else says without a solver what specs come to."""
        plan = Plan([], [], [], [])
        facts = [
            parts[CONDA] for parts in self.record["releases"].values()
            if CONDA in parts and parts[CONDA].get("request") == digest
        ]
        if not facts:
            what = ", ".join(self.base.get("specs") or ()) or "the packages of its lock"
            plan.lacks.append(Lack(Need("file", "conda base", "", "base"), "%s were never mirrored" % what))
            return plan
        contents.read_ahead(facts[0]["files"])
        for path in facts[0]["files"]:
            entry = self.record["files"][path]
            need = Need("file", entry["name"], entry["version"], "base", (entry["sha256"],), url=entry["origin"])
            if contents.digest(path) == entry["sha256"]:
                plan.there.append(contents.item(path, need))
            else:
                plan.lacks.append(Lack(need, contents.problem(path, need.hashes)))
        return plan

    def fetch(self, items: Sequence[Item], seconds: float) -> list[Item]:
        """Fetch files; those that are there already are left alone.

        Args:
            items: what to fetch.
            seconds: after these no further file is begun; no large one is begun after another file.

        Returns:
            The files that were fetched, at least one, as they are now.

        Raises:
            StackError: one cannot be fetched; those before it stay.
        """
        network, _settings = self.network()
        done = []  # type: list[Item]
        end = time.monotonic() + seconds
        with self.held():
            for item in items:
                if done and (time.monotonic() > end or item.size > LARGE):
                    break
                done.append(self.fetched(network, item))
                mirror_record.note_origin(self.directory, done[-1])
        return done

    def fetched(self, network: Network, item: Item) -> Item:
        """Fetch one file unless it is there."""
        if item.commit:
            path, digest = mirror_git.fetch(item.url, item.commit, os.path.join(self.directory, TREES))
            return item._replace(
                path=os.path.join(TREES, os.path.basename(path)), sha256=digest, size=os.path.getsize(path)
            )
        path = os.path.join(self.directory, item.path)
        if not os.path.exists(path) or sha256_of(path) != item.sha256:
            fetch(network, item.url, path, item.sha256)
        return item._replace(size=os.path.getsize(path), url=network.without_login(item.url))

    def finish(self, items: Sequence[Item]) -> list[str]:
        """Write the list of the mirror, the last thing of all, and remove what no release wants any more.

        Args:
            items: all files of the parts that were asked for.

        Returns:
            What was changed, by relative path.

        Raises:
            StackError: the index of a channel cannot be written.
            OSError: as the system reports it.
        """
        with self.held():
            before = mirror_record.read(self.directory)
            after = before
            origins = mirror_record.noted_origins(self.directory)
            for part in self.parts:
                mine = [item for item in items if item.path.startswith(mirror_conda.TOP + "/") == (part == CONDA)]
                after = mirror_record.merged(after, self.release, part, mine, self.facts(part), origins)
            gone = sorted(set(before["files"]) - set(after["files"]))
            for path in gone:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self.directory, path))
            changed = gone + self.indexed(gone)
            for path in list(halves(self.directory)):
                if os.path.isdir(path):
                    shutil.rmtree(path)
                else:
                    os.unlink(path)
            if mirror_record.write(self.directory, after):
                changed.append(mirror_record.NAME)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.directory, mirror_record.NOTES))
            return changed

    def facts(self, part: str) -> dict[str, Any]:
        """What the files of a part were chosen for."""
        if part == CONDA:
            platform = self.params["conda_platform"] or conda_request.this_platform()
            digest = mirror_conda.request_digest(self.base, self.params["conda_channels"], platform)
            return {"request": digest, "platform": platform}
        return {"interpreter": dict(self.interpreter()._asdict())}

    def indexed(self, gone: Iterable[str]) -> list[str]:
        """Bring the indexes of the mirror's channels up to date; those that were written."""
        if CONDA not in self.parts:
            return []
        top = os.path.join(self.directory, mirror_conda.TOP)
        changed = {os.path.join(self.directory, os.path.dirname(os.path.dirname(path))) for path in gone}
        stale = []
        for name in sorted(os.listdir(top)) if os.path.isdir(top) else []:
            channel = os.path.join(top, name)
            if channel in changed or is_stale(channel):
                stale.append(channel)
        if stale:
            mirror_conda.index(stale, self.params["conda_platform"] or conda_request.this_platform())
        return [os.path.join(mirror_conda.TOP, os.path.basename(path), mirror_conda.INDEX) for path in stale]

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep other runs from writing at the same time; they wait."""
        try:
            os.makedirs(self.directory, exist_ok=True)
            descriptor = os.open(os.path.join(self.directory, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StackError(
                "The mirror %s cannot be written: %s." % (self.directory, error.strerror), "fetch",
                system_remedy(error, "Check that this account may write there") + ".", self.directory,
            ) from error
        try:
            with contextlib.suppress(OSError):  # some file systems of clusters have no locks; names are whole anyway
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def joined(one: Plan, other: Plan) -> Plan:
    """Two plans as one."""
    return Plan(
        one.there + other.there, one.fetch + other.fetch, one.lacks + other.lacks, one.remarks + other.remarks
    )


def unique(items: Iterable[Item]) -> list[Item]:
    """The items, each file once."""
    return list({(item.path, item.sha256, item.commit): item for item in items}.values())


def is_stale(channel: str) -> bool:
    """Whether a channel has no index, or one that is older than a package."""
    names = [entry.name for entry in os.scandir(channel) if entry.is_dir() and not entry.name.startswith(".")]
    for subdir in {"noarch", *names}:
        directory = os.path.join(channel, subdir)
        try:
            written = os.stat(os.path.join(directory, mirror_conda.INDEX)).st_mtime_ns
        except OSError:
            return True
        if any(os.stat(os.path.join(directory, name)).st_ctime_ns > written for name in os.listdir(directory)
               if name.endswith((".conda", ".tar.bz2"))):
            return True
    return False


def halves(directory: str) -> Iterator[str]:
    """What interrupted runs left of files and checkouts."""
    for top in (FILES, ARCHIVES, TREES, mirror_conda.TOP):
        for place, directories, names in os.walk(os.path.join(directory, top)):
            for name in [*directories, *names]:
                if is_half(name):
                    yield os.path.join(place, name)
            directories[:] = [name for name in directories if not is_half(name)]


def lacking(directory: str, release: str, lacks: Sequence[Lack], may_fetch: bool) -> StackError:
    """The error for what is nowhere, all of it at once."""
    lines = "".join("\n  - %s" % lack.described for lack in lacks)
    count = "1 thing" if len(lacks) == 1 else "%d things" % len(lacks)
    missing = [lack.as_result() for lack in lacks]
    if may_fetch:
        return StackError(
            "%s that release %s needs cannot be found:%s\n" % (count, release, lines), "plan",
            "Nothing was fetched. Correct the release file, the network or pip's configuration ('pip config list').",
            missing=missing,
        )
    return StackError(
        "The mirror %s lacks %s that release %s needs:%s\n" % (directory, count, release, lines), "look at the mirror",
        "Nothing was changed. Fetch it where there is a network: make mirror RELEASE=%s TO=<the mirror>." % release,
        missing=missing,
    )
