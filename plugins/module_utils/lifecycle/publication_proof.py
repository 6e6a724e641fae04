# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Refuse to publish a release whose files, manifest, statement or signature are not those of its freeze."""

from __future__ import annotations

import os

from ..core.errors import StackError
from ..core.lenient_json import mapping
from ..core.text import shortly
from ..release import provenance, provenance_file
from ..release.records import ReleaseFiles
from ..trees.manifest_file import Record
from .drift import FrozenRelease, compare_release
from .publication_facts import STEP, Facts

_REMEDY = "playbooks/drift.yml names what was changed; bring it back, or thaw the release and freeze it again."


MAX_LISTED = 20
"""Differences that a refusal lists."""


def require_proof(facts: Facts, allowed_signers: str) -> None:
    """Refuse what is not as it was frozen, and, with ``allowed_signers``, what none of them has signed.

    That is a quick look for drift: names, types, modes, sizes and targets of all files, and the content of those of
    which the inode was changed since. A release that was frozen
    without a manifest, as before there were any, is only refused where the site asks for signatures.
    """
    files = ReleaseFiles(facts.root, facts.release)
    frozen = str(mapping(facts.frozen.get("manifest")).get("digest") or "")
    if frozen:
        _require_files(files, frozen)
    path = provenance.statement_path(files)
    content = provenance.read_bytes(path)
    if content is None:
        if allowed_signers:
            raise StackError(
                "Release %s has no statement of where it comes from, %s, and this site publishes none without." % (
                    facts.release, path), STEP,
                "Roll it out again: the freeze writes and signs it with the key in torchstack_provenance.", path)
        return
    named = provenance.require_manifest(content, path, os.path.join(files.prefix, provenance.MANIFEST))
    if named != facts.release:
        raise StackError(
            "The statement %s is about release %s, not about %s." % (path, named, facts.release), STEP,
            "Find out who put it there; bring the release's own back from a copy.", path)
    if allowed_signers:
        provenance_file.require_signed(path, content, path + ".sig", allowed_signers)


def _require_files(files: ReleaseFiles, frozen: str) -> None:
    path = os.path.join(files.prefix, provenance.MANIFEST)
    try:
        record = Record(path)
    except FileNotFoundError as error:
        raise StackError(
            "Release %s has lost its manifest, %s." % (files.release, path), STEP, "Bring it back from a copy.", path
        ) from error
    record.close()
    if record.header.digest != frozen:
        raise StackError(
            "The manifest %s is not the one that was recorded when the release was frozen." % path, STEP, _REMEDY, path)
    release = FrozenRelease(files.release, files.prefix, None, {"manifest": {"digest": frozen}}, "")
    found, _seconds = compare_release(files.root, release, "quick", MAX_LISTED, 0)
    if not found["matches"]:
        totals = {kind: count for kind, count in found["totals"].items() if count and kind != "foreign"}
        words = ", ".join("%d %s" % (count, kind) for kind, count in totals.items()) or found["findings"][0]["kind"]
        raise StackError(
            "%s is not as %s has it (%s), first %s." % (
                files.prefix, path, words, shortly(sorted({finding["path"] for finding in found["findings"]}))),
            STEP, _REMEDY, files.prefix, findings=found["findings"])
