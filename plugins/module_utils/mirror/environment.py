# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Compute what a rollout does differently with a mirror: step variables and channels. Pure.

Variables are no part of a step's digest, so that a release is the same release with and without a mirror.
"""

from __future__ import annotations

import os
import urllib.parse
from typing import Any, Mapping, Sequence

from .conda_channel import (
    channel_directory,
    channels_of,
)
from .contents import FILES

VARIABLE = "TORCHSTACK_MIRROR"
"""By it, a step knows that there is a mirror; empty where there is none."""


def environment(directory: str) -> dict[str, str]:
    """Return variables of the steps; none without a directory. As an address, since pip splits at spaces."""
    if not directory:
        return {}
    files = "file://" + urllib.parse.quote(os.path.join(directory, FILES))
    return {VARIABLE: directory, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": files}


def mirror_context(directory: str, definition: Mapping[str, Any], channels: Sequence[str]) -> dict[str, Any]:
    """Tell what roles have to know of a mirror; ``channels`` are its directories by the channels' addresses."""
    found = channels_of(definition.get("base") or {}, channels) if directory else []
    return {
        "directory": directory, "environment": environment(directory),
        "channels": {channel: os.path.join(directory, channel_directory(channel)) for channel in found}}
