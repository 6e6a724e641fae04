# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Keep the statement of where a release comes from on disk, with its signature, and verify both."""

from __future__ import annotations

import contextlib
import os
from typing import Any, NamedTuple

from ..core import signatures
from ..core.errors import StackError, explained
from ..core.files import write_atomic
from ..core.run_module import text_diff
from . import provenance
from .records import ReleaseFiles


class Request(NamedTuple):
    """Describe what is to be stated of which release, and by whom."""

    root: str
    release: str
    digest: str
    builder: str
    key: str = ""
    """Empty for no signature."""
    allowed: str = ""
    """The file of allowed signers; empty where nobody asks."""

    @property
    def files(self) -> ReleaseFiles:
        """Tell where its records are."""
        return ReleaseFiles(self.root, self.release)


def path_of(request: Request) -> str:
    """Tell where the statement is."""
    return provenance.statement_path(request.files)


def is_frozen(request: Request) -> bool:
    """Tell whether there is something to make a statement about."""
    return os.path.isfile(os.path.join(request.files.prefix, provenance.MANIFEST))


def update(request: Request, apply: bool) -> dict[str, Any]:
    """Bring statement and signature up to date, and return what the module returns.

    Raises StackError: a record is missing, nothing can be signed, or the signer is none of those that are allowed.
    """
    path = path_of(request)
    statement = provenance.make_statement(request.files, request.digest, request.builder)
    content, before = provenance.as_bytes(statement), provenance.read_bytes(path)
    same = before == content
    signature, signer = provenance.read_bytes(path + ".sig"), ""
    if same and signature is not None and request.allowed:
        with contextlib.suppress(StackError):
            signer = signatures.find_signer(content, signature, request.allowed, provenance.NAMESPACE)
    signs = bool(request.key) and not (signer if request.allowed else same and signature is not None)
    changed = not same or signs
    if changed and apply:
        made = signatures.sign(content, request.key, provenance.NAMESPACE) if signs else None
        if made is not None and request.allowed:
            signer = signatures.find_signer(content, made, request.allowed, provenance.NAMESPACE)
        _write(path, content, made, stale=not same)
    build = statement["predicate"]["buildDefinition"]
    result = {
        "changed": changed, "path": path, "manifest": statement["subject"][0]["digest"]["sha256"],
        "inputs": len(build["resolvedDependencies"]), "steps": len(build["internalParameters"]["steps"]),
        "signer": signer,
    }
    if changed:
        result["diff"] = text_diff(path, before, content)
    return result


def try_key(key: str, allowed: str) -> str:
    """Sign something, and return whose signature that is; empty where nobody asks.

    Raises StackError: nothing can be signed, or the signer is none of those that are allowed.
    """
    nothing = b"may this key sign?\n"
    made = signatures.sign(nothing, key, provenance.NAMESPACE)
    return signatures.find_signer(nothing, made, allowed, provenance.NAMESPACE) if allowed else ""


def _write(path: str, content: bytes, signature: bytes | None, stale: bool) -> None:
    """Write both; a signature of another statement goes first, so that none is ever beside what it is not of."""
    with explained("Cannot write %s" % path, provenance.STEP, "Correct its rights, or make room.", path):
        if stale:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path + ".sig")
            write_atomic(path, content)
        if signature is not None:
            write_atomic(path + ".sig", signature)


def require_signed(path: str, content: bytes, signature: str, allowed: str) -> str:
    """Return who signed a statement. Raises StackError: nobody, or nobody of ``allowed``, or it was changed since."""
    made = provenance.read_bytes(signature)
    if made is None:
        raise StackError(
            "The statement %s is not signed: there is no %s." % (path, signature), signatures.STEP,
            "Roll the release out again with a key in torchstack_provenance; elsewhere, copy the signature too.",
            signature)
    try:
        return signatures.find_signer(content, made, allowed, provenance.NAMESPACE)
    except StackError as error:
        sentence = error.message.replace("It was", "%s was" % path, 1).replace("Its", "%s: its" % path, 1)
        raise StackError(sentence, error.failed_step, error.remedy, path) from error
