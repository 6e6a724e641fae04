# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A prefix holds exactly what was asked for: looked at, planned, changed, and looked at again."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any, Callable, ContextManager, Iterable, Mapping, NamedTuple, Sequence

from ..core.errors import StackError
from . import cache as conda_cache
from . import errors as conda_failures
from . import lockfile as conda_lock
from . import package as conda_packages
from . import prefix as conda_prefix
from . import rattler as conda_rattler
from . import request as conda_request
from . import rollback as conda_aside
from . import state as conda_state
from .package import Package, Transaction
from .rattler_worker import Worker
from .state import Journal, State, Store

OPTIONS, READ_LOCK, VERIFY = "check the options", "read the lock", "check the prefix"
LATER = (conda_rattler.LOAD, conda_failures.CHANNEL, READ_LOCK)
"""The steps that fail where the interpreter, the channel or the lock is not there yet."""


class Outcome(NamedTuple):
    """What was done, or would be."""

    transaction: Transaction
    packages: Sequence[Package]
    resumed: bool = False
    swept: Sequence[str] = ()

    @property
    def changed(self) -> bool:
        """Whether the prefix became another one."""
        return self.resumed or not self.transaction.is_empty


class Chosen(NamedTuple):
    """What a request came to: the specs of it that channels have, the packages, and the way to them."""

    request: conda_request.Request
    specs: Sequence[str]
    wanted: Sequence[Package]
    transaction: Transaction


class Environment:
    """One prefix, and what it shall hold.

    Args:
        params: the module's options.
        apply: change the prefix, or plan only; planning writes nothing but repodata into ``scratch``.
        scratch: a temporary directory.
    """

    def __init__(self, params: Mapping[str, Any], apply: bool, scratch: str) -> None:
        self.params = params
        self.apply = apply
        self.scratch = scratch
        self.prefix = os.path.normpath(params["prefix"])
        self.store = Store(self.prefix, params["state_dir"] or "")
        self.mirrors = conda_request.mirror_choices(params["mirrors"] or {})
        self.replaced = {mirror: source for source, places in self.mirrors.items() for mirror in places}

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
        meta = os.path.join(prefix, conda_prefix.META)
        if os.path.isdir(prefix) and not os.path.isdir(meta) and state.journal is None and os.listdir(prefix):
            raise StackError(
                "%s holds files and is no conda prefix." % prefix, OPTIONS, "Name another one, or empty it.", prefix
            )

    def absent(self) -> Outcome:
        """Remove the prefix."""
        with self._held(os.path.isdir(self.store.directory)):
            state = self.store.read()
            self.check_prefix(state)
            there = os.path.isdir(self.prefix)
            packages = self._packages(conda_prefix.read_records(self.prefix)) if there and not state.journal else []
            if self.apply and (there or state != State()):
                self.store.open(Journal(conda_state.REMOVE, (), (), "", there))
                conda_prefix.remove(self.prefix)
                self.store.forget()
            return Outcome(conda_packages.plan(packages, ()), (), there and not packages)

    def present(self) -> Outcome:
        """Let the prefix hold what was asked for."""
        lock = self._lock()
        request = conda_request.build(self.params, lock)
        explicit = conda_lock.parse(lock, self.params["lock"]) if conda_lock.is_explicit(lock) else []
        accepted = self.params["accept_defaults_licence"]
        conda_request.check_licence((package.url for package in explicit), accepted)
        with self._held(True):
            state = self.store.read()
            self.check_prefix(state)
            if self.apply and state.journal is None:
                self._clean()
            if state.journal is not None and state.journal.step == conda_state.REMOVE:
                if self.apply:
                    conda_prefix.remove(self.prefix)
                    self.store.forget()
                state, records = State(), []
            else:
                records = conda_prefix.read_records(self.prefix, state.journal is not None)
            installed = self._packages(records)
            damaged = conda_prefix.damaged(self.prefix, records, self.params["verify"])
            known = self._as_recorded(request, state, installed)
            wanted = explicit or (installed if known else None)
            if wanted is not None and state.journal is None:
                transaction = conda_packages.plan(installed, wanted, damaged)
                if transaction.is_empty and self.apply and not known:
                    self.store.close(request.digest(), installed)
                if transaction.is_empty or (explicit and not self.apply):
                    return Outcome(transaction, installed if transaction.is_empty else explicit)
            with Worker(conda_rattler.prepare) as worker:
                return self._through(worker, request, state, records, damaged)

    def _through(
        self, worker: Worker, request: conda_request.Request, state: State, records: Sequence[conda_prefix.Record],
        damaged: list[str],
    ) -> Outcome:
        known = {}  # type: dict[str, str]
        ahead = conda_cache.look_ahead(self.params["cache"], known) if self.apply else None
        worker.call("load", ahead)
        repodata = os.path.join(self.params["cache"], "repodata") if self.apply else self.scratch
        mirrors = {}  # type: dict[str, str]
        if self.mirrors:
            mirrors = worker.call("choose", choices=self.mirrors, platform=request.platform, repodata_cache=repodata)
        fetched_from = [conda_packages.replace_start(url, mirrors) for url in request.channels]
        missing = conda_request.missing_directories(fetched_from)
        if missing:
            raise StackError(
                "The channel %s is not there." % missing[0], conda_failures.CHANNEL,
                "Check its address; nothing was changed.", missing[0],
            )
        offered = worker.call(
            "offered", channels=list(request.channels), specs=list(request.optional_specs), platform=request.platform,
            mirrors=mirrors, repodata_cache=repodata,
        )
        specs = sorted([*request.specs, *offered])
        resolved = worker.call(
            "resolve", ahead, channels=list(request.channels), specs=specs, lock=request.lock,
            lock_path=self.params["lock"] or "", platform=request.platform,
            virtual_packages=dict(request.virtual_packages), channel_priority=request.channel_priority,
            mirrors=mirrors, prefix=self.prefix, keep_installed=self.params["state"] == "present",
            repodata_cache=repodata,
        )
        wanted = [conda_packages.restored(Package(**one), self.replaced) for one in resolved]
        conda_request.check_licence((package.url for package in wanted), self.params["accept_defaults_licence"])
        journal = state.journal
        installed = self._packages(records)
        if journal is not None:
            before = {tuple(one) for one in journal.records}
            new = [record for record in records if tuple(record.package) not in before]
            # Data that a crash of the machine took back still has its name; and scripts of packages may be undone.
            damaged = sorted({
                *damaged, *conda_prefix.damaged(self.prefix, records, conda_prefix.FILES),
                *conda_prefix.damaged(self.prefix, new, conda_prefix.CONTENTS),
            })
            if self.params["link_scripts"]:
                damaged = sorted({*damaged, *(record.package.name for record in new)})
        transaction = conda_packages.plan(installed, wanted, damaged)
        if transaction.is_empty and journal is None:
            if self.apply:
                self.store.close(request.digest(), installed)
            return Outcome(transaction, installed)
        if not self.apply:
            return Outcome(transaction, wanted, journal is not None)
        swept = self._carry_out(worker, Chosen(request, specs, wanted, transaction), state, records, known)
        return Outcome(transaction, wanted, journal is not None, swept)

    def _carry_out(
        self, worker: Worker, chosen: Chosen, state: State, records: Sequence[conda_prefix.Record],
        known: Mapping[str, str],
    ) -> Sequence[str]:
        self._check_writable()
        transaction = chosen.transaction
        relinked = _relinked(transaction, records)
        linked = {package.name for package in [*transaction.added, *(one.after for one in transaction.changed)]}
        worker.call(
            "check", cache=self.params["cache"], shared_caches=self.params["shared_caches"],
            names=sorted(linked | relinked), known=known,
        )
        journal, swept = self._begin(state, records)
        reversible = not journal.fresh and conda_aside.exists(self.prefix)
        try:
            if reversible:
                leaving = relinked | {package.name for package in transaction.removed}
                leaving |= {change.before.name for change in transaction.changed}
                taken = [record for record in records if record.package.name in leaving]
                before = [Package(*one) for one in journal.records]
                self._write(conda_failures.LINK, lambda: conda_aside.put(self.prefix, taken, before))
            worker.call(
                "install", prefix=self.prefix, cache=self.params["cache"], platform=chosen.request.platform,
                reinstall=[] if reversible else sorted(relinked),
                hard_links=self.params["link_method"] == "hardlink", link_scripts=self.params["link_scripts"],
                read_cache=self.params["verify"] == conda_prefix.CONTENTS, log=self.params["log"] or "",
            )
            worker.dismiss()
            self._write("complete the prefix", lambda: self._finish(chosen, journal))
        except StackError as error:
            worker.stop()
            error.remedy = "%s %s" % (self._undo(journal), error.remedy)
            raise
        self._clean()
        return swept

    def _clean(self) -> None:
        """Remove what a complete transaction put aside."""
        if conda_aside.left(self.prefix):
            with contextlib.suppress(OSError):  # the prefix is complete, and the next run tries again
                conda_aside.drop(self.prefix)

    def _begin(self, state: State, records: Sequence[conda_prefix.Record]) -> tuple[Journal, Sequence[str]]:
        """Open the journal, or go on with an open one; that, and what was swept."""
        if state.journal is not None:
            return state.journal, conda_prefix.sweep(self.prefix, records, state.journal.kept)
        journal = Journal(
            conda_state.LINK, conda_prefix.unowned(self.prefix, records),
            [list(record.package) for record in records],
            conda_prefix.read_history(self.prefix), os.path.isdir(self.prefix),
        )

        def write() -> None:
            # Scripts of packages that leave are in the prefix, and what scripts did cannot be undone.
            if not journal.fresh and not self.params["link_scripts"]:
                conda_aside.begin(self.prefix, self.store.path)
            self.store.open(journal)

        try:
            self._write("record the transaction", write)
        except StackError:
            self._clean()
            raise
        return journal, ()

    def _undo(self, journal: Journal) -> str:
        """Take the transaction back where that is possible; what became of the prefix, as a sentence."""
        try:
            if journal.fresh:
                conda_prefix.remove(self.prefix)
                if journal.had_prefix:
                    os.mkdir(self.prefix)
                self.store.forget()
                return "Nothing is left of the new prefix."
            if conda_aside.exists(self.prefix):
                before = [Package(*one) for one in journal.records]
                conda_aside.take_back(self.prefix, self.store.path, before, journal.kept)
                return "The prefix is as it was before."
        except (StackError, OSError):  # what failed first is what counts
            pass
        return "The prefix is half changed, and the next run completes it."

    def _finish(self, chosen: Chosen, journal: Journal) -> None:
        records = conda_prefix.read_records(self.prefix)
        conda_prefix.restore_origin(records, self.replaced)
        conda_prefix.correct_modes(self.prefix, records)
        tag = "CACHEDIR.TAG"
        if tag not in journal.kept:  # py-rattler marks prefixes as caches, which backups then leave out
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.prefix, tag))
        if self.replaced:
            records = conda_prefix.read_records(self.prefix)
        left = conda_packages.plan(
            self._packages(records), chosen.wanted, conda_prefix.damaged(self.prefix, records, conda_prefix.FILES)
        )
        if not left.is_empty:
            names = [package.name for package in [*left.added, *left.removed, *left.repaired]]
            names += [change.after.name for change in left.changed]
            raise StackError(
                "%s is not complete after linking: %s." % (self.prefix, ", ".join(sorted(names))), VERIFY,
                "Run it again; if it stays so, the package's record of its own files is wrong.", self.prefix,
            )
        whole = conda_packages.plan([Package(*one) for one in journal.records], chosen.wanted)
        entry = conda_prefix.history_entry(
            whole, chosen.specs, "conda_environment --prefix " + self.prefix, time.time()
        )
        conda_prefix.write_history(self.prefix, journal.history, entry)
        self.store.close(chosen.request.digest(), self._packages(records))

    def _check_writable(self) -> None:
        for path in (self.prefix, os.path.join(self.prefix, conda_prefix.META)):
            if os.path.isdir(path) and not os.access(path, os.W_OK):
                raise StackError(
                    "%s is not writable: it is frozen, or belongs to another account." % path, OPTIONS,
                    "Make a new release, or thaw it with tree_permissions first.", path,
                )
        cache = self.params["cache"]
        if os.path.isdir(cache) and not os.access(cache, os.W_OK):
            raise StackError(
                "The cache %s is not writable for this account." % cache, OPTIONS,
                "Name one of your own, and this one in shared_caches.", cache,
            )

    @staticmethod
    def _write(step: str, function: Callable[[], None]) -> None:
        try:
            function()
        except OSError as error:
            raise StackError(
                "Cannot %s: %s: %s." % (step, error.filename, error.strerror), step,
                "Correct that, then run it again.",
            ) from error

    def _packages(self, records: Sequence[conda_prefix.Record]) -> list[Package]:
        return [conda_packages.restored(record.package, self.replaced) for record in records]

    def _as_recorded(self, request: conda_request.Request, state: State, installed: Sequence[Package]) -> bool:
        """Whether the prefix is what an equal request made of it before."""
        identities = [package.identity for package in sorted(installed)]
        return (
            self.params["state"] == "present" and state.journal is None and state.digest == request.digest()
            and identities == list(state.packages)
        )

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
            raise StackError(
                "The lock %s cannot be read: %s." % (path, getattr(error, "strerror", None) or "it is no text"),
                READ_LOCK, "Check its path.", path,
            ) from error


def _relinked(transaction: Transaction, records: Sequence[conda_prefix.Record]) -> set[str]:
    """The names of installed packages that are linked again: damaged ones, and those that lie below the directory of
    another Python version."""
    names = {package.name for package in transaction.repaired}
    leaving = {package.name for package in [*transaction.removed, *(one.before for one in transaction.changed)]}
    if "python" in leaving:
        names |= {record.package.name for record in records if record.noarch == "python"} - leaving
    return names


def as_result(outcome: Outcome, platform: str, optional: Iterable[str] = ()) -> dict[str, Any]:
    """What the module returns.

    Args:
        outcome: what was done.
        platform: conda's name of it.
        optional: the specs that channels may lack.
    """
    packages = sorted(outcome.packages)
    names = {package.name for package in packages}
    return dict(
        conda_packages.as_result(outcome.transaction), packages=[package.as_result() for package in packages],
        lock=conda_lock.render(packages, platform) if packages else "", resumed=outcome.resumed,
        left_out=sorted(spec for spec in optional if packages and conda_request.spec_name(spec) not in names),
        swept=list(outcome.swept), changed=outcome.changed,
    )
