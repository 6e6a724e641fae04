# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Make a prefix hold exactly what was asked for: read, plan, change, verify."""

from __future__ import annotations

import contextlib
import os
from typing import Any, ContextManager, Iterable, Mapping, NamedTuple, Sequence

from ..core.errors import StackError
from . import errors, lockfile, rattler
from .cache import check_ahead
from .linker import OPTIONS, Chosen, Linker
from .package import Package, Transaction, plan_transaction, replace_start, restore_channel, transaction_as_result
from .prefix import CONTENTS, FILES, META, Record, find_damaged, read_records, remove_prefix
from .rattler_worker import Worker
from .request import Request, build_request, check_licence, mirror_choices, missing_directories, spec_name
from .state import REMOVE, Journal, State, Store

READ_LOCK = "read the lock"
LATER = (rattler.LOAD, errors.CHANNEL, READ_LOCK)
"""The steps that fail where the interpreter, the channel or the lock is not there yet."""


class Outcome(NamedTuple):
    """What was done, or would be."""

    transaction: Transaction
    packages: Sequence[Package]
    resumed: bool = False
    swept: Sequence[str] = ()

    @property
    def changed(self) -> bool:
        """Tell whether the prefix became another one."""
        return self.resumed or not self.transaction.is_empty


class Environment:
    """One prefix, and what it shall hold; planning writes nothing but repodata into the directory ``scratch``."""

    def __init__(self, params: Mapping[str, Any], apply: bool, scratch: str) -> None:
        self.params = params
        self.apply = apply
        self.scratch = scratch
        self.prefix = os.path.normpath(params["prefix"])
        self.store = Store(self.prefix, params["state_dir"] or "")
        self.mirrors = mirror_choices(params["mirrors"] or {})
        self.replaced = {mirror: source for source, places in self.mirrors.items() for mirror in places}
        self.linker = Linker(params, self.prefix, self.store, self.replaced)

    def check_prefix(self, state: State) -> None:
        """Refuse a prefix that is none.

        Raises:
            StackError: it is the root, a link or a file, or a directory that holds something else.
        """
        prefix = self.prefix
        if not os.path.isabs(prefix) or prefix.count("/") < 2 or os.path.realpath(prefix) == os.path.realpath(
            os.path.expanduser("~")
        ):
            raise StackError("%s cannot be a prefix." % prefix, OPTIONS, "Name a directory of its own.", prefix)
        if os.path.islink(prefix) or (os.path.lexists(prefix) and not os.path.isdir(prefix)):
            raise StackError("%s is not a directory." % prefix, OPTIONS, "Name the directory itself.", prefix)
        meta = os.path.join(prefix, META)
        if os.path.isdir(prefix) and not os.path.isdir(meta) and state.journal is None and os.listdir(prefix):
            message = "%s holds files and is no conda prefix." % prefix
            raise StackError(message, OPTIONS, "Name another one, or empty it.", prefix)

    def absent(self) -> Outcome:
        """Remove the prefix."""
        with self._held(os.path.isdir(self.store.directory)):
            state = self.store.read()
            self.check_prefix(state)
            there = os.path.isdir(self.prefix)
            packages = self.linker.packages(read_records(self.prefix)) if there and not state.journal else []
            if self.apply and (there or state != State()):
                self.store.open(Journal(REMOVE, (), (), "", there))
                remove_prefix(self.prefix)
                self.store.forget()
            return Outcome(plan_transaction(packages, ()), (), there and not packages)

    def present(self) -> Outcome:
        """Let the prefix hold what was asked for."""
        lock = self._lock()
        request = build_request(self.params, lock)
        explicit = lockfile.parse(lock, self.params["lock"]) if lockfile.is_explicit(lock) else []
        accepted = self.params["accept_defaults_licence"]
        check_licence((package.url for package in explicit), accepted)
        with self._held(True):
            state = self.store.read()
            self.check_prefix(state)
            if self.apply and state.journal is None:
                self.linker.clean()
            if state.journal is not None and state.journal.step == REMOVE:
                if self.apply:
                    remove_prefix(self.prefix)
                    self.store.forget()
                state, records = State(), []
            else:
                records = read_records(self.prefix, state.journal is not None)
            installed = self.linker.packages(records)
            damaged = find_damaged(self.prefix, records, self.params["verify"])
            known = self._as_recorded(request, state, installed)
            wanted = explicit or (installed if known else None)
            if wanted is not None and state.journal is None:
                transaction = plan_transaction(installed, wanted, damaged)
                if transaction.is_empty and self.apply and not known:
                    self.store.close(request.digest(), installed)
                if transaction.is_empty or (explicit and not self.apply):
                    return Outcome(transaction, installed if transaction.is_empty else explicit)
            with Worker(rattler.prepare) as worker:
                return self._through(worker, request, state, records, damaged)

    def _through(
        self, worker: Worker, request: Request, state: State, records: Sequence[Record], damaged: list[str],
    ) -> Outcome:
        known: dict[str, str] = {}
        ahead = check_ahead(self.params["cache"], known) if self.apply else None
        worker.call("load", ahead)
        repodata = os.path.join(self.params["cache"], "repodata") if self.apply else self.scratch
        mirrors: dict[str, str] = {}
        if self.mirrors:
            mirrors = worker.call("choose", choices=self.mirrors, platform=request.platform, repodata_cache=repodata)
        fetched_from = [replace_start(url, mirrors) for url in request.channels]
        missing = missing_directories(fetched_from)
        if missing:
            message = "The channel %s is not there." % missing[0]
            raise StackError(message, errors.CHANNEL, "Check its address; nothing was changed.", missing[0])
        offered = worker.call(
            "offered", channels=list(request.channels), specs=list(request.optional_specs), platform=request.platform,
            mirrors=mirrors, repodata_cache=repodata,
        )
        specs = sorted([*request.specs, *offered])
        resolved = worker.call(
            "resolve", ahead, channels=list(request.channels), specs=specs, lock=request.lock,
            lock_path=self.params["lock"] or "", platform=request.platform,
            virtual_packages=dict(request.virtual_packages), channel_priority=request.channel_priority, mirrors=mirrors,
            prefix=self.prefix, keep_installed=self.params["state"] == "present", repodata_cache=repodata,
        )
        wanted = [restore_channel(Package(**one), self.replaced) for one in resolved]
        check_licence((package.url for package in wanted), self.params["accept_defaults_licence"])
        journal = state.journal
        installed = self.linker.packages(records)
        if journal is not None:
            before = {tuple(one) for one in journal.records}
            new = [record for record in records if tuple(record.package) not in before]
            # Data that a crash of the machine took back still has its name; and scripts of packages may be undone.
            doubtful = [record.package.name for record in new] if self.params["link_scripts"] else []
            broken = find_damaged(self.prefix, records, FILES) + find_damaged(self.prefix, new, CONTENTS)
            damaged = sorted({*damaged, *broken, *doubtful})
        transaction = plan_transaction(installed, wanted, damaged)
        if transaction.is_empty and journal is None:
            if self.apply:
                self.store.close(request.digest(), installed)
            return Outcome(transaction, installed)
        if not self.apply:
            return Outcome(transaction, wanted, journal is not None)
        swept = self.linker.run(worker, Chosen(request, specs, wanted, transaction), state, records, known)
        return Outcome(transaction, wanted, journal is not None, swept)

    def _as_recorded(self, request: Request, state: State, installed: Sequence[Package]) -> bool:
        """Tell whether the prefix is what an equal request made of it before."""
        identities = [package.identity for package in sorted(installed)]
        same = state.digest == request.digest() and identities == list(state.packages)
        return self.params["state"] == "present" and state.journal is None and same

    def _held(self, possible: bool) -> ContextManager[None]:
        return self.store.held() if self.apply and possible else contextlib.nullcontext()

    def _lock(self) -> str:
        path = self.params["lock"]
        if not path:
            return ""
        try:
            with open(path, encoding="utf-8") as stream:
                return stream.read()
        except (OSError, UnicodeDecodeError) as error:
            message = "The lock %s cannot be read: %s." % (path, getattr(error, "strerror", None) or "it is no text")
            raise StackError(message, READ_LOCK, "Check its path.", path) from error


def as_result(outcome: Outcome, platform: str, optional: Iterable[str] = ()) -> dict[str, Any]:
    """Tell what the module returns; ``optional`` are the specs that channels may lack."""
    packages = sorted(outcome.packages)
    names = {package.name for package in packages}
    return dict(
        transaction_as_result(outcome.transaction), packages=[package.as_result() for package in packages],
        lock=lockfile.render(packages, platform) if packages else "", resumed=outcome.resumed,
        left_out=sorted(spec for spec in optional if packages and spec_name(spec) not in names),
        swept=list(outcome.swept), changed=outcome.changed,
    )
