# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a rollout does differently with a mirror: variables of the steps, and where channels come from. Pure.

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
from .plan import FILES

VARIABLE = "TORCHSTACK_MIRROR"
"""By it, a step knows that there is a mirror; empty where there is none."""


def environment(directory: str) -> dict[str, str]:
    """Variables of the steps; with an empty directory, none.

    An address instead of a path, as pip splits the variable at spaces.
    """
    if not directory:
        return {}
    files = "file://" + urllib.parse.quote(os.path.join(directory, FILES))
    return {VARIABLE: directory, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": files}


def context(directory: str, definition: Mapping[str, Any], channels: Sequence[str]) -> dict[str, Any]:
    """What roles have to know of a mirror.

    Args:
        directory: the mirror; empty for none.
        definition: the resolved release file.
        channels: the site's channels, for a release file that names none.

    Returns:
        ``directory``, ``environment`` (see :func:`environment`) and ``channels`` (the mirror's directory by the address
        of each channel of a conda base).
    """
    found = channels_of(definition.get("base") or {}, channels) if directory else []
    return {
        "directory": directory,
        "environment": environment(directory),
        "channels": {channel: os.path.join(directory, channel_directory(channel)) for channel in found},
    }
