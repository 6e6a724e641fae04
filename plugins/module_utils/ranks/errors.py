# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Define the errors with which a rank ends a check, or its whole work."""

from __future__ import annotations


class CheckUnavailable(Exception):
    """Say that a check, or a part of one, cannot run; the text is the reason."""


class RankError(Exception):
    """Say that the ranks of a job do not fit together; the text is the reason."""
