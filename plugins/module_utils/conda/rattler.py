# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Solve, fetch and link conda packages through py-rattler.

Runs in the process of :mod:`.rattler_worker`. What py-rattler leaves unchecked, :mod:`.cache` checks.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any, Callable, Coroutine, Iterable, Mapping

from ..core.digests import local_path, sha256_of
from ..core.errors import StackError
from . import errors, lockfile, request
from .cache import any_doubtful, borrow_entries, check_archive, note_checked, packages_without_note, wrong_digest
from .package import Package, replace_start

REQUIREMENT = "py-rattler>=0.28"
LOAD = "load py-rattler"


def prepare() -> Mapping[str, Callable[..., Any]]:
    """Return the functions that the process offers."""
    session = Session()
    return {name: getattr(session, name) for name in ("load", "choose", "offered", "resolve", "check", "install")}


class Session:
    """py-rattler, and the records that were resolved last."""

    def __init__(self) -> None:
        self.rattler: Any = None
        self.records: list[Any] = []
        self.specs: list[str] = []
        self.unsure: list[Package] = []

    def load(self) -> str:
        """Import py-rattler, and return its version."""
        try:
            import rattler
            import rattler.config
            import rattler.package_cache
        except ImportError as error:
            message = "conda_environment needs %s in %s: %s." % (REQUIREMENT, sys.executable, error)
            remedy = "Install it there, or set ansible_python_interpreter to a tool environment that has it."
            raise StackError(message, LOAD, remedy, requirement=REQUIREMENT, interpreter=sys.executable) from error
        self.rattler = rattler
        return str(rattler.__version__)

    def choose(self, choices: dict[str, list[str]], platform: str, repodata_cache: str) -> dict[str, str]:
        """Return the mirror of each channel that is used: the first that can be read, or else the last."""
        gateway = self.rattler.Gateway(cache_dir=repodata_cache)
        return {source: self._first_read(places, platform, gateway) for source, places in choices.items()}

    def _first_read(self, places: list[str], platform: str, gateway: Any) -> str:
        for place in places[:-1]:
            path = local_path(place)
            if path is not None and not os.path.isdir(path):
                continue
            try:
                self._run(errors.CHANNEL, functools.partial(gateway.names, [place], [platform, "noarch"]))
            except StackError:
                continue
            return place
        return places[-1]

    def offered(
        self, channels: list[str], specs: list[str], platform: str, mirrors: dict[str, str], repodata_cache: str
    ) -> list[str]:
        """Return the specs of packages of which a channel has any version."""
        if not specs:
            return []
        gateway = self.rattler.Gateway(cache_dir=repodata_cache)
        sources = [replace_start(url, mirrors) for url in channels]
        found = self._run(errors.CHANNEL, lambda: gateway.names(sources, [platform, "noarch"]))
        names = {name.normalized for name in found}
        return [spec for spec in specs if request.spec_name(spec) in names]

    def resolve(
        self, channels: list[str], specs: list[str], lock: str, lock_path: str, platform: str,
        virtual_packages: dict[str, str], channel_priority: str, mirrors: dict[str, str], repodata_cache: str,
        prefix: str, keep_installed: bool,
    ) -> list[dict[str, str]]:
        """Return the packages that the prefix shall hold; the session keeps their records."""
        rattler = self.rattler
        self.specs = specs
        gateway = rattler.Gateway(cache_dir=repodata_cache)
        if specs:
            installed = self._installed(prefix) if keep_installed else []
            priorities = rattler.ChannelPriority
            priority = priorities.Disabled if channel_priority == "disabled" else priorities.Strict
            self.records = self._run(errors.SOLVE, lambda: rattler.solve(
                sources=[replace_start(url, mirrors) for url in channels], specs=specs,
                platforms=[platform, "noarch"], gateway=gateway, locked_packages=installed,
                virtual_packages=self._virtual_packages(virtual_packages, platform), channel_priority=priority,
            ))
        elif lockfile.is_explicit(lock):
            wanted = lockfile.parse(lock, lock_path)
            lockfile.check_platform(wanted, platform, lock_path)
            self.records = self._run(errors.CHANNEL, lambda: self._listed(wanted, platform, gateway, mirrors))
        else:
            self.records = self._locked(lock_path, platform)
            for record in self.records:
                record.url = replace_start(record.url, mirrors)
                record.channel = replace_start(record.channel or "", mirrors)
        return [package_of(record).as_result() for record in self.records]

    def check(self, cache: str, shared_caches: list[str], names: list[str], known: dict[str, str]) -> None:
        """Check archives and cache entries of packages before the prefix is changed.

        Entries are taken from other caches, too; for those ``known`` see :func:`.cache.check_ahead`.
        """
        linked = [package_of(record) for record in self.records if record.name.normalized in names]
        borrow_entries(linked, cache, shared_caches)
        self.unsure = packages_without_note(linked, cache, known)
        for package in self.unsure:
            check_archive(package, cache)

    def install(
        self, prefix: str, cache: str, platform: str, reinstall: list[str], hard_links: bool, link_scripts: bool,
        read_cache: bool, log: str,
    ) -> None:
        """Make the prefix hold the records that were resolved and checked.

        Args:
            reinstall: packages that are linked although they are installed.
            hard_links: link files of the cache instead of copying them.
            read_cache: read all of every cache entry first, also where nothing speaks against it.
            log: a file that gets a line per package; none where empty.
        """
        rattler = self.rattler
        packages = rattler.package_cache
        # Files of entries that nothing speaks against were just seen to be there.
        modes, doubtful = packages.ValidationMode, read_cache or any_doubtful(self.unsure, cache)
        validation = modes.full() if doubtful else modes.skip()
        # Clones are left to the library, which tries one and copies where the file system has none; told to clone, it
        # tries that for each file.
        configuration = rattler.config.Config.from_toml("allow-hard-links = %s\n" % str(hard_links).lower())
        self._run(errors.LINK, lambda: rattler.install(
            self.records, target_prefix=prefix, installed_packages=self._installed(prefix),
            reinstall_packages=set(reinstall), platform=rattler.Subdir(platform), config=configuration,
            execute_link_scripts=link_scripts, show_progress=False, cache_dir=cache,
            package_cache=packages.PackageCache.new_layered([cache], False, validation),
            requested_specs=[rattler.MatchSpec(spec)._match_spec for spec in self.specs],
            reporter=Reporter(log) if log else None,
        ))
        note_checked(self.unsure, cache)

    def _installed(self, prefix: str) -> list[Any]:
        directory = os.path.join(prefix, "conda-meta")
        if not os.path.isdir(directory):
            return []
        names = sorted(name for name in os.listdir(directory) if name.endswith(".json"))
        return [self.rattler.PrefixRecord.from_path(os.path.join(directory, name)) for name in names]

    def _virtual_packages(self, overrides: dict[str, str], platform: str) -> list[Any]:
        """Return what this machine has but for the overrides; another platform has not its processor or its GPUs."""
        rattler = self.rattler
        found = [one.into_generic() for one in rattler.VirtualPackage.detect()]
        others = () if platform == request.this_platform() else ("__archspec", "__cuda")
        found = [one for one in found if one.name.normalized not in (*overrides, *others)]
        for name, version in sorted(overrides.items()):
            if version:
                parts = (rattler.PackageName(name), rattler.Version(version), rattler.package.BuildString("0"))
                found.append(rattler.GenericVirtualPackage(*parts))
        return found

    def _locked(self, path: str, platform: str) -> list[Any]:
        environment = self._call("read the lock", lambda: self.rattler.LockFile.from_path(path).default_environment())
        found = (environment.conda_repodata_records() if environment else {}).get(platform)
        if not found:
            message = "The lock %s has no conda packages for %s." % (path, platform)
            raise StackError(message, "read the lock", "Lock it for this platform.", path)
        if environment.pypi_packages().get(platform):
            message = "The lock %s holds packages of PyPI, which this module does not install." % path
            remedy = "Lock the conda packages alone; the others belong to the release's Python packages."
            raise StackError(message, "read the lock", remedy, path)
        return list(found)

    async def _listed(
        self, wanted: Iterable[Package], platform: str, gateway: Any, mirrors: dict[str, str]
    ) -> list[Any]:
        listed = []
        for package in wanted:
            url = replace_start(package.url, mirrors)
            channel = replace_start(package.channel, mirrors)
            spec = self.rattler.MatchSpec("%s ==%s %s" % (package.name, package.version, package.build))
            found = await gateway.query([channel], [platform, "noarch"], [spec], recursive=False)
            fitting = [record for records in found for record in records if record.url == url]
            record = fitting[0] if fitting else await self._unlisted(url, channel)
            if digest_of(record) != package.sha256:
                raise wrong_digest(url, digest_of(record), package.sha256)
            listed.append(record)
        return listed

    async def _unlisted(self, url: str, channel: str) -> Any:
        path = local_path(url)
        if path is None or not os.path.exists(path):
            raise StackError(
                "The channel %s does not list %s." % (channel, url), errors.CHANNEL,
                "Lock the environment anew, or put the package into the channel or mirror.",
            )
        record = await self.rattler.RepoDataRecord.from_package_archive(path)
        record.url, record.channel, record.file_name = url, channel, os.path.basename(path)
        record.sha256 = bytes.fromhex(sha256_of(path))
        return record

    def _run(self, step: str, start: Callable[[], Coroutine]) -> Any:
        import asyncio  # not needed where there is nothing to do, which is most of the time

        async def wait() -> Any:
            return await start()

        return self._call(step, lambda: asyncio.run(wait()))

    @staticmethod
    def _call(step: str, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except (StackError, KeyboardInterrupt):
            raise
        except BaseException as error:  # a panic of the library is no Exception
            raise errors.translate(type(error).__name__, str(error), step) from error


def digest_of(record: Any) -> str:
    """Return a record's sha256 as text; empty where the channel gives none."""
    return record.sha256.hex() if record.sha256 else ""


def package_of(record: Any) -> Package:
    """Return a record of py-rattler as a package."""
    return Package(
        record.name.normalized, str(record.version), str(record.build), record.subdir,
        (record.channel or "").rstrip("/"), record.url, digest_of(record),
    )


class Reporter:
    """Writes a line for each package that is linked or removed, so that a long run can be watched.

    The methods are those of py-rattler's InstallerReporter.
    """

    def __init__(self, path: str) -> None:
        self.stream = open(path, "w", encoding="utf-8")  # noqa: SIM115 - open as long as the installation runs

    def _line(self, text: str) -> int:
        self.stream.write(text + "\n")
        self.stream.flush()
        return 0

    def on_transaction_start(self, total_operations: int) -> None:
        self._line("%d operations" % total_operations)

    def on_populate_cache_start(self, operation: int, package_name: str) -> int:
        return self._line("look for %s in the cache" % package_name)

    def on_unlink_start(self, operation: int, package_name: str) -> int:
        return self._line("remove %s" % package_name)

    def on_link_start(self, operation: int, package_name: str) -> int:
        return self._line("link %s" % package_name)

    def on_transaction_complete(self) -> None:
        self._line("done")

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name.startswith("on_"):
            return lambda *_arguments: 0
        raise AttributeError(name)
