# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Sign a document with an account's ssh key, and verify who signed one, by ``ssh-keygen -Y`` of OpenSSH 8.2 or newer.

A signature holds for one namespace only, so that what was signed for another purpose is none here: ssh-keygen(1), and
https://github.com/openssh/openssh-portable/blob/master/PROTOCOL.sshsig.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from typing import Iterator

from .errors import StackError
from .redaction import without_credentials
from .run_command import Outcome, run

STEP = "signature"
PATIENCE = 60
"""Seconds: a key may lie on a device that somebody has to touch."""

_PROGRAM = "ssh-keygen"


def sign(document: bytes, key: str, namespace: str) -> bytes:
    """Return the signature of a document.

    ``key`` is a private key without passphrase, or the public part of one that an agent holds. Raises StackError.
    """
    if not os.path.isfile(key):
        raise StackError("The key to sign with, %s, is not there." % key, STEP, "Correct its path, or make it.", key)
    outcome = run([_PROGRAM, "-Y", "sign", "-f", os.path.abspath(key), "-n", namespace], PATIENCE, given=document)
    if not outcome.ok:
        raise StackError(
            "Nothing can be signed with %s: %s." % (key, _words(outcome)), STEP,
            "Name a key of this account without a passphrase, or the public part of one that its ssh-agent holds.", key)
    return outcome.output.encode("utf-8")


def find_signer(document: bytes, signature: bytes, allowed: str, namespace: str) -> str:
    """Return which principal of the file ``allowed`` has signed a document. Raises StackError: none has, and why.

    The file is as ssh-keygen(1) has it under "allowed signers".
    """
    if not os.path.isfile(allowed):
        raise StackError(
            "The file of allowed signers, %s, is not there." % allowed, STEP,
            "Correct its path, or write a line for each signer: a name, and the public key.", allowed)
    allowed = os.path.abspath(allowed)
    with _written(signature) as place:
        found = run([_PROGRAM, "-Y", "find-principals", "-s", place, "-f", allowed], PATIENCE)
        names = [line.strip() for line in found.output.splitlines() if line.strip()] if found.ok else []
        if found.problem or _is_too_old(found):
            raise StackError(
                "No signature can be verified here: %s." % _words(found), STEP, "Install OpenSSH 8.2 or newer.")
        refusal = found
        for name in names:
            refusal = run(
                [_PROGRAM, "-Y", "verify", "-f", allowed, "-I", name, "-n", namespace, "-s", place], PATIENCE,
                given=document)
            if refusal.ok:
                return name
    if not names and refusal.errors.strip() == "No principal matched.":
        raise StackError(
            "It was signed by nobody whom %s names." % allowed, STEP,
            "Find out who signed it; add the signer's key there only if it is the right one.", allowed)
    raise StackError(
        "Its signature does not hold: %s." % _words(refusal), STEP,
        "Take document and signature from where they were made; if they are the same there, somebody changed them.")


@contextlib.contextmanager
def _written(signature: bytes) -> Iterator[str]:
    """Put a signature into a file that nobody else writes."""
    with tempfile.NamedTemporaryFile(suffix=".sig") as stream:
        stream.write(signature)
        stream.flush()
        yield stream.name


def _is_too_old(outcome: Outcome) -> bool:
    return "unknown option" in outcome.errors or "invalid option" in outcome.errors


def _words(outcome: Outcome) -> str:
    if _is_too_old(outcome):
        return "its ssh-keygen is older than OpenSSH 8.2"
    # The first line has the cause, the others what follows from it.
    first = next((line.strip() for line in outcome.errors.splitlines() if line.strip()), "")
    return (outcome.problem or without_credentials(first) or outcome.complaint).rstrip(".")
