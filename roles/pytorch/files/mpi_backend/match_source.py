# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Compare a source of PyTorch with the installed torch: what is compiled from one fits the other of one version."""

from __future__ import annotations

import os
import re
import sys

C10D = "torch/csrc/distributed/c10d"
HEADER = "ProcessGroupMPI.hpp"


def public_version(text):
    """2.6.0 of "2.6.0a0", "2.6.0+cpu" and "2.6.0\\n"; None of a text that does not begin so."""
    found = re.match(r"\s*(\d+\.\d+\.\d+)", text)
    return found.group(1) if found else None


def is_commit(text):
    """Whether this is a full commit id; a torch that was built from an archive says "Unknown" or nothing."""
    return re.match(r"[0-9a-f]{40}$", text or "") is not None


def differing(ours, theirs):
    """The names of headers that both have and that are not the same byte by byte.

    Parameters:
        ours: {name: content} of the source.
        theirs: {name: content} of the installed torch.
    """
    return sorted(name for name in set(ours) & set(theirs) if ours[name] != theirs[name])


def mismatch(source, installed):
    """One sentence why an extension of the source would not fit the installed torch, or None.

    Parameters:
        source: {"version": content of version.txt or None, "commit": its id or "", "headers": {name: content}}.
        installed: {"version": torch.__version__, "commit": torch.version.git_version, "headers": {name: content}}.
    """
    versions = public_version(source["version"] or ""), public_version(installed["version"])
    if versions[0] and versions[0] != versions[1]:
        return "The source is PyTorch %s, and the installed torch is %s." % (versions[0], installed["version"])
    commits = source["commit"], installed["commit"]
    if is_commit(commits[0]) and is_commit(commits[1]) and commits[0] != commits[1]:
        return "The source is PyTorch's commit %s, and the installed torch was built from %s." % commits
    for where, headers in (("source", source["headers"]), ("installed torch", installed["headers"])):
        if HEADER not in headers:
            return "The %s has no %s/%s, without which the two cannot be compared." % (where, C10D, HEADER)
    changed = differing(source["headers"], installed["headers"])
    if changed:
        return "%d of the headers in %s are not the same in the source and in the installed torch %s: %s." % (
            len(changed),
            C10D,
            installed["version"],
            ", ".join(changed[:3]) + (" and others" if len(changed) > 3 else ""),
        )
    return None


def headers_below(directory):
    """{name: content} of the headers of c10d, or {} where there are none.

    Parameters:
        directory: the root of a source, or the include directory of an installed torch.
    """
    found = {}
    place = os.path.join(directory, C10D)
    for name in sorted(os.listdir(place)) if os.path.isdir(place) else []:
        if name.endswith((".hpp", ".h")):
            with open(os.path.join(place, name), "rb") as stream:
                found[name] = stream.read()
    return found


def main(tree, commit):
    import torch

    version = None
    if os.path.exists(os.path.join(tree, "version.txt")):
        with open(os.path.join(tree, "version.txt")) as stream:
            version = stream.read()
    include = os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "include")
    sentence = mismatch(
        {"version": version, "commit": commit, "headers": headers_below(tree)},
        {"version": torch.__version__, "commit": torch.version.git_version, "headers": headers_below(include)},
    )
    if sentence:
        sys.exit(
            "%s Nothing was compiled. "
            "Name the tag and commit of the installed version in pytorch.mpi_backend of the release file." % sentence
        )
    print("The source matches the installed torch %s." % torch.__version__)


if __name__ == "__main__":
    main(*sys.argv[1:])
