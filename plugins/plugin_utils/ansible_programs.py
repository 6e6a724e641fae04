# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find Ansible's programs and where this collection is installed; on the control node."""

from __future__ import annotations

import os
import pathlib
import shutil
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]


def find(name: str) -> str:
    """Find a program of Ansible, that of this Python first; empty where there is none."""
    beside = os.path.join(os.path.dirname(sys.executable), name)
    return beside if os.access(beside, os.X_OK) else shutil.which(name) or ""


def collections_path() -> str:
    """Return the collections path that this collection is installed in; empty where nothing says it."""
    if TOP.parts[-3:] == ("ansible_collections", "hpcml", "torchstack"):
        return str(TOP.parents[2])
    # As `make env` makes it in a checkout.
    of_checkout = TOP / ".venv" / "collections"
    return str(of_checkout) if of_checkout.is_dir() else ""
