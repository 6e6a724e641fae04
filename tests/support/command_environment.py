# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Make an environment that has the command torchstack, as make env makes it."""

from __future__ import annotations

import os
import pathlib
import sys

TOP = pathlib.Path(__file__).parents[2]


def link_command(place: pathlib.Path) -> pathlib.Path:
    """Make an environment whose Python is this one, with the command as make env links it; return the command."""
    (place / "bin").mkdir()
    # Python looks for these beside the link by which it was called, before it follows that.
    for name in ("lib", "pyvenv.cfg"):
        os.symlink(pathlib.Path(sys.prefix) / name, place / name)
    for name in ("python", "ansible-playbook", "ansible"):
        os.symlink(pathlib.Path(sys.executable).parent / name, place / "bin" / name)
    os.symlink(TOP / "bin" / "torchstack", place / "bin" / "torchstack")
    return place / "bin" / "torchstack"
