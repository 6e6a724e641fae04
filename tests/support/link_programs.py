# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A PATH that lacks some of this machine's programs."""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Iterable

COMPILERS = re.compile(r"(^|-)(c\+\+|g\+\+|gcc|cc|c89|c99)(-\d+)?$|clang")


def link_programs(place: pathlib.Path, directories: Iterable[str | os.PathLike[str]], besides: re.Pattern[str]) -> None:
    """Link all programs of directories into a new one, but for those whose names match."""
    place.mkdir()
    for directory in directories:
        for name in os.listdir(directory):
            # Desktops have links there that lead to themselves; of two programs of a name the first is called.
            program = os.path.isfile(os.path.join(directory, name)) and not os.path.lexists(str(place / name))
            if program and not besides.search(name):
                (place / name).symlink_to(os.path.join(directory, name))
