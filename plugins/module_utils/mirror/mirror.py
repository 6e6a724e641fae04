# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Fill and check a directory with all that releases fetch, for rollouts without network."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import time
from typing import Any, Iterable, Iterator, Mapping, Sequence

from ..conda import request
from ..core.digests import sha256_of
from ..core.download import Network, fetch, is_half
from ..core.errors import StackError, system_remedy
from ..definition.base import CONDA
from . import conda_channel, git_archive, index, pip_config
from .conda_channel import is_stale
from .conda_plan import plan_conda, plan_recorded
from .contents import ARCHIVES, FILES, TREES, Contents
from .index import Item
from .lack import Lack
from .package_index import Indexes
from .plan import Plan, Planner, find_conflicts, join_plans, unique_items
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
LARGE_FILE_BYTES = 50 << 20
"""Bytes of a file that is announced before it is fetched."""


class Mirror:
    """A mirror, and the release that it is filled or checked for; ``scratch`` is for what need not be kept."""

    def __init__(self, params: Mapping[str, Any], variables: Mapping[str, str], scratch: str) -> None:
        self.params = params
        self.variables = variables
        self.scratch = scratch
        self.directory: str = params["path"]
        self.definition: Mapping[str, Any] = params["definition"]
        self.release = str(self.definition["release"])
        self.base: Mapping[str, Any] = self.definition.get("base") or {}
        self.parts = [part for part in params["parts"] if part != CONDA or self.base.get("kind") == CONDA]
        self.record = index.read(self.directory)

    @functools.cached_property
    def interpreter(self) -> Interpreter:
        """Return the machine's interpreter, which is asked once. Raises StackError: it does not answer."""
        named = self.base.get("python") if self.base.get("kind") != CONDA else ""
        return machine_interpreter(
            str(named or self.params["python"] or ""), TIMEOUT,
            "Name one that does as mirror_python, or as base.python of an overlay.",
            self.params["interpreter"] or {})

    def contents(self) -> Contents:
        """Tell what the mirror holds."""
        wanted = {
            path for name, parts in self.record["releases"].items() if name != self.release
            for facts in parts.values() for path in facts["files"]}
        listed = {path: entry["sha256"] for path, entry in self.record["files"].items()}
        others = {path: listed[path] for path in wanted if path in listed}
        return Contents(self.directory, listed, others, self.scratch)

    def network(self) -> tuple[Network, pip_config.Settings]:
        """Return the way to other machines, with the logins that pip would use."""
        settings = pip_config.read(self.variables)
        network = Network(self.params["timeout"], settings.certificates, settings.proxy)
        entries = [str(entry.get("index") or "") for entry in self.definition.get("packages") or []]
        for url in (*settings.indexes, *settings.find_links, *entries):
            network.without_login(url)
        return network, settings

    def plan(self, may_fetch: bool) -> Plan:
        """Tell what is there, what is lacking, and what is to be fetched if other places may be asked.

        Raises StackError: the release cannot be mirrored, or a place that is asked cannot answer.
        """
        machine = self.interpreter
        contents = self.contents()
        plan = Plan([], [], [], [])
        if PYTHON in self.parts:
            needs = needs_of(self.definition, machine, self.params["mpi_wheel"])
            if needs.problems:
                raise StackError(" ".join(needs.problems), "read the release file", "Then run it again.")
            indexes = Indexes(*self.network()) if may_fetch else None
            found = Planner(contents, base_interpreter(self.definition, machine), machine, indexes).plan(needs)
            plan = join_plans(plan, found)
        if CONDA in self.parts:
            plan = join_plans(plan, self.conda(contents, may_fetch))
        plan = plan._replace(there=unique_items(plan.there), fetch=unique_items(plan.fetch))
        problems = find_conflicts(plan, contents)
        if problems:
            raise StackError(
                "Two files of one name are wanted: %s." % "; ".join(problems), "plan",
                "Mirror this release into a directory of its own.", self.directory)
        return plan

    def conda(self, contents: Contents, may_fetch: bool) -> Plan:
        """Return the plan of the conda base."""
        channels = self.params["conda_channels"]
        platform = self.params["conda_platform"] or request.this_platform()
        if may_fetch:
            wanted = conda_channel.wanted_packages(
                self.base, channels, self.params["conda_mirrors"], platform, self.scratch)
            plan = plan_conda(wanted, contents, True)
        else:
            plan = plan_recorded(
                self.record, self.base, contents, conda_channel.request_digest(self.base, channels, platform))
        for channel in sorted({os.path.dirname(os.path.dirname(item.path)) for item in plan.there}):
            path = os.path.join(channel, "noarch", conda_channel.INDEX)
            if not may_fetch and not os.path.exists(contents.absolute(path)):
                plan.lacks.append(Lack(Need("file", path, "", "base"), "the channel has no index"))
        return plan

    def fetch(self, items: Sequence[Item], seconds: float) -> list[Item]:
        """Fetch files that are not there, at least one; return those that are done.

        After ``seconds`` no further file is begun, and no large one after another. Raises StackError: one cannot be
        fetched; those before it stay.
        """
        network, _settings = self.network()
        done: list[Item] = []
        end = time.monotonic() + seconds
        with self.held():
            for item in items:
                if done and (time.monotonic() > end or item.size > LARGE_FILE_BYTES):
                    break
                done.append(self.fetched(network, item))
                index.note_origin(self.directory, done[-1])
        return done

    def fetched(self, network: Network, item: Item) -> Item:
        """Fetch one file unless it is there."""
        if item.commit:
            path, digest = git_archive.fetch(item.url, item.commit, os.path.join(self.directory, TREES))
            return item._replace(
                path=os.path.join(TREES, os.path.basename(path)), sha256=digest, size=os.path.getsize(path))
        path = os.path.join(self.directory, item.path)
        if not os.path.exists(path) or sha256_of(path) != item.sha256:
            fetch(network, item.url, path, item.sha256)
        return item._replace(size=os.path.getsize(path), url=network.without_login(item.url))

    def finish(self, items: Sequence[Item]) -> list[str]:
        """Write the list of the mirror last, and remove what no release wants any more; return what was changed.

        Raises StackError: the index of a channel cannot be written.
        """
        with self.held():
            before = index.read(self.directory)
            after = before
            origins = index.noted_origins(self.directory)
            for part in self.parts:
                mine = [item for item in items if item.path.startswith(conda_channel.TOP + "/") == (part == CONDA)]
                after = index.merged(after, self.release, part, mine, self.facts(part), origins)
            gone = sorted(set(before["files"]) - set(after["files"]))
            for path in gone:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self.directory, path))
            changed = gone + self.indexed(gone)
            for path in list(find_partial_files(self.directory)):
                if os.path.isdir(path):
                    shutil.rmtree(path)
                else:
                    os.unlink(path)
            if index.write(self.directory, after):
                changed.append(index.NAME)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.directory, index.NOTES))
            return changed

    def facts(self, part: str) -> dict[str, Any]:
        """Tell what the files of a part were chosen for."""
        if part == CONDA:
            platform = self.params["conda_platform"] or request.this_platform()
            digest = conda_channel.request_digest(self.base, self.params["conda_channels"], platform)
            return {"request": digest, "platform": platform}
        return {"interpreter": dict(self.interpreter._asdict())}

    def indexed(self, gone: Iterable[str]) -> list[str]:
        """Bring the indexes of the mirror's channels up to date; those that were written."""
        if CONDA not in self.parts:
            return []
        top = os.path.join(self.directory, conda_channel.TOP)
        changed = {os.path.join(self.directory, os.path.dirname(os.path.dirname(path))) for path in gone}
        stale = []
        for name in sorted(os.listdir(top)) if os.path.isdir(top) else []:
            channel = os.path.join(top, name)
            if channel in changed or is_stale(channel):
                stale.append(channel)
        if stale:
            conda_channel.write_indexes(stale, self.params["conda_platform"] or request.this_platform())
        return [os.path.join(conda_channel.TOP, os.path.basename(path), conda_channel.INDEX) for path in stale]

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep other runs from writing at the same time; they wait."""
        try:
            os.makedirs(self.directory, exist_ok=True)
            descriptor = os.open(os.path.join(self.directory, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StackError(
                "The mirror %s cannot be written: %s." % (self.directory, error.strerror), "fetch",
                system_remedy(error, "Check that this account may write there") + ".", self.directory) from error
        try:
            with contextlib.suppress(OSError):  # some file systems of clusters have no locks; names are whole anyway
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def find_partial_files(directory: str) -> Iterator[str]:
    """Tell what interrupted runs left of files and checkouts."""
    for top in (FILES, ARCHIVES, TREES, conda_channel.TOP):
        for place, directories, names in os.walk(os.path.join(directory, top)):
            for name in [*directories, *names]:
                if is_half(name):
                    yield os.path.join(place, name)
            directories[:] = [name for name in directories if not is_half(name)]
