# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What goes wrong, in a sentence for the one who started it."""

from __future__ import annotations


class TroubleError(Exception):
    """Something failed; the text says what, and what to do next."""


class MissingError(TroubleError):
    """This machine lacks what the rehearsal is made with."""
