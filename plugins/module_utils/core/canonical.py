# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Compute the digest of plain data. Pure."""

from __future__ import annotations

import hashlib
import json

from .errors import StackError


def digest_of(facts: object) -> str:
    """Return the SHA-256 of facts as canonical JSON: keys sorted, no spaces, ASCII only, no NaN; else StackError."""
    try:
        text = json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise StackError("inputs cannot be digested: %s." % error, "options", "Use text, numbers and lists.") from None
    return hashlib.sha256(text.encode("ascii")).hexdigest()
