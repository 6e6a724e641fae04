# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Know the mask, and what is none of its business: short values, and names of secrets in place of them. Pure."""

from __future__ import annotations

import re

MASK = "***"
"""What stands in the place of a secret."""

SHORTEST = 6
"""Characters below which a value is left alone: it would be found in innocent words."""

_REFERENCE = re.compile(r"[\"']?(?:\$\{?\w+\}?|\$\(.*|\{\{.*\}\}|%s)[\"']?" % re.escape(MASK))


def is_reference(text: str) -> bool:
    """Tell whether that names a secret, as a shell or a template does, or is masked."""
    return _REFERENCE.fullmatch(text) is not None
