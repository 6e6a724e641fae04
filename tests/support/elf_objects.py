# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Small real objects that lie where those of a release do, for rules about where libraries come from."""

from __future__ import annotations

import subprocess


def shared(path, source, *needs, soname="", flags=()):
    """Build a shared object; ``needs`` are linked, and found again by a run-path to where they lie."""
    return _link(path, source, needs, ("-shared", "-fPIC", *flags, *(("-Wl,-soname," + soname,) if soname else ())))


def program(path, *needs, flags=()):
    """Build a program that does nothing; ``needs`` are linked as for a shared object."""
    return _link(path, "int main(void) { return 0; }", needs, flags)


def _link(path, source, needs, flags):
    path.parent.mkdir(parents=True, exist_ok=True)
    words = ["gcc", "-x", "c", "-", "-x", "none", "-Wl,--no-as-needed", "-Wl,--enable-new-dtags"]
    words += [*map(str, needs), *("-Wl,-rpath," + str(need.parent) for need in needs), *flags]
    words += ["-Wl,--allow-shlib-undefined", "-Wl,--unresolved-symbols=ignore-all", "-o", str(path)]
    subprocess.run(words, input=source, text=True, check=True)
    return path
