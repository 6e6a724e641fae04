# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Carry out a transaction on a conda prefix, and undo one that fails."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from ..core.errors import StackError
from . import errors, history, rollback
from .package import Package, Transaction, plan_transaction, restore_channel
from .prefix import (
    CONTENTS,
    FILES,
    META,
    Record,
    correct_modes,
    find_damaged,
    find_unowned,
    read_records,
    remove_prefix,
    restore_origin,
    sweep,
)
from .rattler_worker import Worker
from .request import Request
from .state import LINK, Journal, State, Store

OPTIONS, VERIFY = "check the options", "check the prefix"


class Chosen(NamedTuple):
    """What a request came to: the specs of it that channels have, the packages, and the way to them."""

    request: Request
    specs: Sequence[str]
    wanted: Sequence[Package]
    transaction: Transaction


class Linker:
    """Changes a prefix by transactions that are recorded, verified and undone where they fail.

    ``replaced`` leads from the address of a mirror to that of the channel in whose place it is used.
    """

    def __init__(self, params: Mapping[str, Any], prefix: str, store: Store, replaced: Mapping[str, str]) -> None:
        self.params = params
        self.prefix = prefix
        self.store = store
        self.replaced = replaced

    def run(
        self, worker: Worker, chosen: Chosen, state: State, records: Sequence[Record], known: Mapping[str, str],
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
        reversible = not journal.fresh and rollback.exists(self.prefix)
        try:
            if reversible:
                leaving = relinked | {package.name for package in transaction.removed}
                leaving |= {change.before.name for change in transaction.changed}
                taken = [record for record in records if record.package.name in leaving]
                before = [Package(*one) for one in journal.records]
                with _written(errors.LINK):
                    rollback.put_aside(self.prefix, taken, before)
            worker.call(
                "install", prefix=self.prefix, cache=self.params["cache"], platform=chosen.request.platform,
                reinstall=[] if reversible else sorted(relinked),
                hard_links=self.params["link_method"] == "hardlink", link_scripts=self.params["link_scripts"],
                read_cache=self.params["verify"] == CONTENTS, log=self.params["log"] or "",
            )
            worker.dismiss()
            with _written("complete the prefix"):
                self._finish(chosen, journal)
        except StackError as error:
            worker.stop()
            error.remedy = "%s %s" % (self._undo(journal), error.remedy)
            raise
        self.clean()
        return swept

    def clean(self) -> None:
        """Remove what a complete transaction put aside."""
        if rollback.has_leftovers(self.prefix):
            with contextlib.suppress(OSError):  # the prefix is complete, and the next run tries again
                rollback.drop(self.prefix)

    def _begin(self, state: State, records: Sequence[Record]) -> tuple[Journal, Sequence[str]]:
        """Open the journal, or go on with an open one; that, and what was swept."""
        if state.journal is not None:
            return state.journal, sweep(self.prefix, records, state.journal.kept)
        journal = Journal(
            LINK, find_unowned(self.prefix, records), [list(record.package) for record in records],
            history.read_history(self.prefix), os.path.isdir(self.prefix),
        )
        try:
            with _written("record the transaction"):
                # Scripts of packages that leave are in the prefix, and what scripts did cannot be undone.
                if not journal.fresh and not self.params["link_scripts"]:
                    rollback.begin(self.prefix, self.store.path)
                self.store.open(journal)
        except StackError:
            self.clean()
            raise
        return journal, ()

    def _undo(self, journal: Journal) -> str:
        """Take the transaction back where that is possible; what became of the prefix, as a sentence."""
        try:
            if journal.fresh:
                remove_prefix(self.prefix)
                if journal.had_prefix:
                    os.mkdir(self.prefix)
                self.store.forget()
                return "Nothing is left of the new prefix."
            if rollback.exists(self.prefix):
                before = [Package(*one) for one in journal.records]
                rollback.restore(self.prefix, self.store.path, before, journal.kept)
                return "The prefix is as it was before."
        except (StackError, OSError):  # what failed first is what counts
            pass
        return "The prefix is half changed, and the next run completes it."

    def _finish(self, chosen: Chosen, journal: Journal) -> None:
        records = read_records(self.prefix)
        restore_origin(records, self.replaced)
        correct_modes(self.prefix, records)
        tag = "CACHEDIR.TAG"
        if tag not in journal.kept:  # py-rattler marks prefixes as caches, which backups then leave out
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.prefix, tag))
        if self.replaced:
            records = read_records(self.prefix)
        left = plan_transaction(self.packages(records), chosen.wanted, find_damaged(self.prefix, records, FILES))
        if not left.is_empty:
            names = [package.name for package in [*left.added, *left.removed, *left.repaired]]
            names += [change.after.name for change in left.changed]
            message = "%s is not complete after linking: %s." % (self.prefix, ", ".join(sorted(names)))
            remedy = "Run it again; if it stays so, the package's record of its own files is wrong."
            raise StackError(message, VERIFY, remedy, self.prefix)
        whole = plan_transaction([Package(*one) for one in journal.records], chosen.wanted)
        entry = history.history_entry(whole, chosen.specs, "conda_environment --prefix " + self.prefix, time.time())
        history.write_history(self.prefix, journal.history, entry)
        self.store.close(chosen.request.digest(), self.packages(records))

    def _check_writable(self) -> None:
        for path in (self.prefix, os.path.join(self.prefix, META)):
            if os.path.isdir(path) and not os.access(path, os.W_OK):
                message = "%s is not writable: it is frozen, or belongs to another account." % path
                raise StackError(message, OPTIONS, "Make a new release, or thaw it with tree_permissions first.", path)
        cache = self.params["cache"]
        if os.path.isdir(cache) and not os.access(cache, os.W_OK):
            message = "The cache %s is not writable for this account." % cache
            raise StackError(message, OPTIONS, "Name one of your own, and this one in shared_caches.", cache)

    def packages(self, records: Sequence[Record]) -> list[Package]:
        return [restore_channel(record.package, self.replaced) for record in records]


@contextlib.contextmanager
def _written(step: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = "Cannot %s: %s: %s." % (step, error.filename, error.strerror)
        raise StackError(message, step, "Correct that, then run it again.") from error


def _relinked(transaction: Transaction, records: Sequence[Record]) -> set[str]:
    """Return the names of installed packages that are linked again: damaged ones, and those below another Python."""
    names = {package.name for package in transaction.repaired}
    leaving = {package.name for package in [*transaction.removed, *(one.before for one in transaction.changed)]}
    if "python" in leaving:
        names |= {record.package.name for record in records if record.noarch == "python"} - leaving
    return names
