"""Reduce a conda prefix to what its packages own, so that whatever is installed on top is installed anew.

Arguments: the prefix, and the version of Python that it must have. Run by the prefix's own interpreter.
"""

import contextlib
import glob
import json
import os
import sys


def owned_files(prefix):
    """The files of all packages, relative to the prefix."""
    owned = set()
    for path in glob.glob(os.path.join(prefix, "conda-meta", "*.json")):
        with open(path, encoding="utf-8") as stream:
            owned.update(os.path.normpath(name) for name in json.load(stream).get("files", []))
    return owned


def reduce(prefix):
    """Remove what no package owns, and the directories that this leaves empty; how many files went."""
    owned = owned_files(prefix)
    if not owned:
        sys.exit("ERROR: %s has no records of its packages. Remove it, and roll out again." % prefix)
    removed = 0
    for directory, names, files in os.walk(prefix, topdown=False):
        inside = os.path.relpath(directory, prefix)
        if inside.split(os.sep, 1)[0] == "conda-meta":
            continue
        links = [name for name in names if os.path.islink(os.path.join(directory, name))]
        left = [name for name in [*files, *links] if os.path.normpath(os.path.join(inside, name)) not in owned]
        for name in left:
            os.unlink(os.path.join(directory, name))
        removed += len(left)
        if left or not (names or files):
            # A directory that still holds something stays.
            with contextlib.suppress(OSError):
                os.rmdir(directory)
    return removed


def main(prefix, minor):
    """Check the interpreter, and reduce the prefix."""
    found = "%d.%d" % sys.version_info[:2]
    if found != minor:
        sys.exit("ERROR: base.python says %s, and the prefix has Python %s. Correct it, or the specs." % (minor, found))
    print("%s: Python %s; %d files that no package owns were removed" % (prefix, found, reduce(prefix)))


if __name__ == "__main__":
    main(*sys.argv[1:])
