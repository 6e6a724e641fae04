# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Print a release file as it is with its parts and the one that it extends; bin/show-release is the program."""

from __future__ import annotations

import argparse
import pathlib
import sys
from typing import Sequence

import yaml
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import locks, site_files

from . import release_file


def main(words: Sequence[str]) -> int:
    """Run the program; returns its exit code: 2 where the file cannot be read."""
    parser = argparse.ArgumentParser(
        prog="show-release", description="Print a release file with its parts and the one that it extends, as YAML.")
    parser.add_argument("release", type=pathlib.Path, help="the release file")
    parser.add_argument(
        "--with-locks", action="store_true", help="with the texts of its locks and files, not their names")
    asked = parser.parse_args(words)
    path = asked.release
    try:
        if not path.is_file():
            raise ValueError(release_file.absence(path, path.parent.parent.name))
        read = release_file.read(path)
    except ValueError as error:
        print("show-release: %s" % error, file=sys.stderr)
        return 2
    # As it is written: locks are names of files, and so are the site's files.
    for lock in [] if asked.with_locks else list(locks.texts(read.content)):
        lock.put(read.places.files.get(lock.path, lock.value))
    for number, entry in enumerate([] if asked.with_locks else read.content.get(site_files.KEY) or []):
        source = read.sources.get("%s[%d]" % (site_files.KEY, number))
        if source:
            del entry["content"]
            entry["source"] = source
    print("---\n" + yaml.safe_dump(read.content, sort_keys=False, width=120, allow_unicode=True), end="")
    return 0
