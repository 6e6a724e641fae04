# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The tree that is compared on: the wheels of requirements/bench-tree.txt, installed once below .cache/bench."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import pathlib
import shutil
import sys
from collections.abc import Iterator

import wheels
from measuring import told
from plays import CHECKOUT

LOCK = CHECKOUT / "requirements" / "bench-tree.txt"
LEAST_FILES = 45_000
LEAST_OBJECTS = 500
LEAST_BYTES = 2_000_000_000


@dataclasses.dataclass(frozen=True)
class Size:
    """What a tree consists of: regular files, the ELF objects among them, and the bytes of all."""

    files: int
    objects: int
    bytes: int

    def __str__(self) -> str:
        return "%d files, %d of them ELF objects, %.2f GB" % (self.files, self.objects, self.bytes / 1e9)

    @property
    def suffices(self) -> bool:
        """Whether the tree is large enough for a comparison that says something."""
        return self.files >= LEAST_FILES and self.objects >= LEAST_OBJECTS and self.bytes >= LEAST_BYTES


def measure(tree: str | pathlib.Path) -> Size:
    """Count a tree."""
    files = objects = total = 0
    waiting = [os.fspath(tree)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    files += 1
                    total += entry.stat(follow_symlinks=False).st_size
                    with open(entry.path, "rb") as stream:
                        objects += stream.read(4) == b"\x7fELF"
    return Size(files, objects, total)


@contextlib.contextmanager
def writable(tree: pathlib.Path) -> Iterator[None]:
    """A tree that may be frozen meanwhile, and whose owner can write it before and after."""
    _thaw(tree)
    try:
        yield
    finally:
        _thaw(tree)


def _thaw(tree: pathlib.Path) -> None:
    for directory, _names, files in os.walk(tree):
        os.chmod(directory, 0o755)
        for name in files:
            path = os.path.join(directory, name)
            if not os.path.islink(path):
                os.chmod(path, os.stat(path).st_mode | 0o200)


def make(cache: pathlib.Path) -> pathlib.Path:
    """The tree for this interpreter, installed if it is not there yet; trees of older locks go."""
    family = "tree-%s-" % sys.implementation.cache_tag
    tree = cache / (family + hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12])
    if tree.is_dir():
        return tree
    unfinished = tree.with_name("unfinished-" + tree.name)
    for old in (unfinished, *cache.glob(family + "*")):
        with contextlib.suppress(FileNotFoundError), writable(old):
            shutil.rmtree(old)
    with told("installing the tree to compare on, once: some hundred MB of wheels"):
        wheels.fetch("install", LOCK, "--target", str(unfinished))
    unfinished.rename(tree)
    return tree
