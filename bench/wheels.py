# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Locked wheels, from the index that pip is configured with."""

from __future__ import annotations

import pathlib
import subprocess
import sys

from measuring import UnavailableError


def fetch(command: str, lock: pathlib.Path, *arguments: str) -> None:
    """Run `pip install` or `pip download` for exactly the wheels of a lock; pip's last words are the error's text."""
    process = subprocess.run(
        [
            sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check", "--no-deps",
            "--only-binary", ":all:", "--require-hashes", "--requirement", str(lock), *arguments,
        ],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )
    if process.returncode:
        last = process.stdout.strip().splitlines()[-3:]
        raise UnavailableError("pip cannot get the wheels of %s: %s" % (lock.name, " ".join(last)))
