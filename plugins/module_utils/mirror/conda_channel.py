# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find the packages of a conda base, and make channels of them in a mirror, each in a directory of its own."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import posixpath
import re
from typing import Any, Callable, Iterable, Mapping, NamedTuple

from ..conda import lockfile, rattler, request
from ..conda.package import Package, replace_start, restore_channel
from ..conda.rattler_worker import Worker
from ..core.canonical import digest_of
from ..core.files import write_atomic
from ..definition.base import CONDA

TOP = "conda"
INDEX = "repodata.json"
_ARCHIVE = re.compile(r"(?P<channel>[a-z]+://\S+)/[^/\s]+/[^/\s]+\.(?:conda|tar\.bz2)(?![\w.])")


class Wanted(NamedTuple):
    """A package of a conda base."""

    package: Package
    url: str
    """where it is fetched from now"""
    size: int
    """bytes; -1 where it is not known"""


def channel_directory(channel: str) -> str:
    """Tell where a channel lies in a mirror, relative to it."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", channel.rstrip("/").rpartition("/")[2]) or "channel"
    return posixpath.join(TOP, "%s-%s" % (name, hashlib.sha256(channel.rstrip("/").encode("utf-8")).hexdigest()[:8]))


def package_path(package: Package) -> str:
    """Tell where a package lies in a mirror, relative to it."""
    name = package.url.rpartition("/")[2]
    return posixpath.join(channel_directory(package.channel), package.subdir, name)


def channels_of(base: Mapping[str, Any], channels: Iterable[str]) -> list[str]:
    """Return the addresses of all channels that a conda base takes packages from; ``channels`` where it names none."""
    if base.get("kind") != CONDA:
        return []
    found: list[str] = []
    if base.get("specs"):
        specs = [*base["specs"], *(base.get("optional_specs") or ())]
        named = [*(base.get("channels") or channels), *request.named_channels(specs)]
        found += [url for name in named for url in request.channel_urls(name)]
    found += [match.group("channel") for match in _ARCHIVE.finditer(str(base.get("lock") or ""))]
    return list(dict.fromkeys(found))


def request_digest(base: Mapping[str, Any], channels: Iterable[str], platform: str) -> str:
    """Tell what says that a mirror's packages are those that a base asks for."""
    keys = ("specs", "optional_specs", "lock", "virtual_packages", "channel_priority")
    asked = {key: base.get(key) for key in keys}
    return digest_of({"asked": asked, "channels": channels_of(base, channels), "platform": platform})


def wanted_packages(
    base: Mapping[str, Any], channels: Iterable[str], mirrors: Mapping[str, object], platform: str, scratch: str
) -> list[Wanted]:
    """Return the packages of a conda base: an explicit list names them itself; all else is asked of py-rattler.

    ``channels`` are the site's, for a release file that names none, ``mirrors`` where it really fetches them from.
    Raises StackError: there is no solution, or a channel or the lock cannot be read.
    """
    places = dict(mirrors, **(base.get("mirrors") or {}))
    lock = str(base.get("lock") or "")
    request.check_licence(channels_of(base, channels), bool(base.get("accept_defaults_licence")))
    if lock and lockfile.is_explicit(lock):
        listed = lockfile.parse(lock, "base.lock")
        replaced = request.mirror_urls(places)
        return [Wanted(package, replace_start(package.url, replaced), -1) for package in listed]
    path = ""
    if lock:
        # py-rattler knows the format by the name.
        path = os.path.join(scratch, "pixi.lock" if "environments:" in lock else "conda-lock.yml")
        write_atomic(path, lock.encode("utf-8"))
    with Worker(_prepare) as worker:
        worker.call("load")
        replaced = worker.call(
            "choose", choices=request.mirror_choices(places), platform=platform, repodata_cache=scratch)
        sources = [] if lock else channels_of(base, channels)
        offered = worker.call(
            "offered", channels=sources, specs=list(base.get("optional_specs") or ()), platform=platform,
            mirrors=replaced, repodata_cache=scratch)
        found = worker.call(
            "resolve", channels=sources, specs=sorted([*(base.get("specs") or ()), *offered]), lock=lock,
            lock_path=path, platform=platform,
            virtual_packages={key: str(value or "") for key, value in (base.get("virtual_packages") or {}).items()},
            channel_priority=base.get("channel_priority") or "strict", mirrors=replaced, repodata_cache=scratch,
            prefix="", keep_installed=False)
        sizes = worker.call("sizes")
    back = {mirror: channel for channel, mirror in replaced.items()}
    result = []
    for one in found:
        package = Package(**one)
        result.append(Wanted(restore_channel(package, back), package.url, sizes.get(package.url, -1)))
    return result


def write_indexes(directories: Iterable[str], platform: str) -> None:
    """Make channels of directories of packages, with an index for ``platform`` even of nothing.

    Raises StackError: py-rattler is not there, or cannot read a package.
    """
    with Worker(_prepare) as worker:
        worker.call("load")
        for directory in directories:
            for subdir in ("noarch", platform):
                os.makedirs(os.path.join(directory, subdir), exist_ok=True)
            worker.call("index", directory=directory)
            with contextlib.suppress(OSError):
                os.rmdir(os.path.join(directory, ".tmp"))


def _prepare() -> Mapping[str, Callable[..., Any]]:
    """Return the functions of the process that py-rattler runs in."""
    session = _Session()
    return {name: getattr(session, name) for name in ("load", "choose", "offered", "resolve", "sizes", "index")}


class _Session(rattler.Session):
    """py-rattler, with what only a mirror asks of it."""

    def sizes(self) -> dict[str, int]:
        """Return bytes of the archives that were resolved last, by address, where the channel says so."""
        return {record.url: int(record.size) for record in self.records if record.size}

    def index(self, directory: str) -> None:
        """Write the index of a directory of packages."""
        from rattler.index import index_fs

        self._run("index the mirror", lambda: index_fs(
            pathlib.Path(directory), write_zst=False, write_shards=False, force=True))


def is_stale(channel: str) -> bool:
    """Tell whether a channel has no index, or one that is older than a package."""
    names = [entry.name for entry in os.scandir(channel) if entry.is_dir() and not entry.name.startswith(".")]
    for subdir in {"noarch", *names}:
        directory = os.path.join(channel, subdir)
        try:
            written = os.stat(os.path.join(directory, INDEX)).st_mtime_ns
        except OSError:
            return True
        if any(os.stat(os.path.join(directory, name)).st_ctime_ns > written for name in os.listdir(directory)
               if name.endswith((".conda", ".tar.bz2"))):
            return True
    return False
