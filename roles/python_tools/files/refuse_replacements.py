"""Refuse a lock that would replace what conda installed: conda would know nothing of it, and repair it one day.

Arguments: the base, whose lock is its base.lock, and its site-packages. Run by the base's own interpreter.
"""

import glob
import importlib.metadata
import json
import os
import re
import sys


def canonical(name):
    """A distribution's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def of_conda(prefix, packages):
    """What a conda package brought: name to version."""
    owned = set()
    for path in glob.glob(os.path.join(prefix, "conda-meta", "*.json")):
        with open(path, encoding="utf-8") as stream:
            owned.update(json.load(stream).get("files", []))
    found = {}
    for metadata in glob.glob(os.path.join(packages, "*.dist-info", "METADATA")):
        if os.path.relpath(metadata, prefix) in owned:
            distribution = importlib.metadata.Distribution.at(os.path.dirname(metadata))
            found[canonical(distribution.metadata["Name"])] = distribution.version
    return found


def main(prefix, packages):
    """Compare the names in the lock with what is there."""
    there = of_conda(prefix, packages)
    with open(os.path.join(prefix, "base.lock"), encoding="utf-8") as stream:
        asked = {canonical(name) for name in re.findall(r"(?m)^([A-Za-z0-9._-]+)(?:\[.*?\])?==", stream.read())}
    twice = ["%s %s" % (name, there[name]) for name in sorted(asked & set(there))]
    if twice:
        sys.exit(
            "ERROR: locks.base would replace what conda installed: %s. Nothing was changed. Take it out of locks.base, "
            "or out of base.specs." % ", ".join(twice)
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
