# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How one of a job's ranks says that it cannot do something."""

from __future__ import annotations


class Unusable(Exception):
    """A check, or a part of one, cannot run here; the text says why."""


class Refused(Exception):
    """Ranks that do not fit together cannot go on; the text says why."""
