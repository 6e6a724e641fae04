# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Two published releases of one root that differ in what a test says, and in nothing else."""

from __future__ import annotations

import json

from support import installed_release, published_release

OLD, NEW = "2026-11-01", "2026-11-02"
FLAGS = {
    OLD: {"HOROVOD_WITH_MPI": "1", "HOROVOD_GPU_OPERATIONS": "MPI", "HOROVOD_CPU_OPERATIONS": "CCL"},
    NEW: {"HOROVOD_WITH_MPI": "1", "HOROVOD_GPU_OPERATIONS": "NCCL", "HOROVOD_WITH_GLOO": "1"},
}
PACKAGES = {
    OLD: {"einops": "0.7.0", "pandas": "2.2.0", "attrs": "24.1", "old_thing": "1"},
    NEW: {"einops": "0.8.2", "pandas": "2.1.4", "attrs": "24.1", "new.thing": "3"},
}
DIFFERENT_FLAGS = {
    ("Horovod", "HOROVOD_GPU_OPERATIONS", "changed", "MPI", "NCCL"),
    ("Horovod", "HOROVOD_CPU_OPERATIONS", "removed", "CCL", ""),
    ("Horovod", "HOROVOD_WITH_GLOO", "added", "", "1"),
}
DIFFERENT_PACKAGES = {
    ("einops", "up", "0.7.0", "0.8.2"), ("pandas", "down", "2.2.0", "2.1.4"), ("old_thing", "removed", "1", ""),
    ("new.thing", "added", "", "3"),
}


def make(root, version):
    """One of the two, frozen and verified, seen by nobody.

    Args:
        root: the directory of the releases, a path.
        version: ``OLD`` or ``NEW``.

    Returns:
        its resolved release file.
    """
    published_release.stage(root, version)
    prefix = root / version
    resolved = installed_release.make(prefix)
    step = prefix / ".torchstack" / "steps" / "horovod" / "inputs.json"
    step.write_text(json.dumps({"facts": {"environment": dict(FLAGS[version], PREFIX=str(prefix))}}))
    for name, said in PACKAGES[version].items():
        installed_release.distribution(prefix / "base" / "lib" / "python3.11" / "site-packages", name, said)
    # JSON is YAML as well.
    (prefix / ".torchstack" / "release.yml").write_text(json.dumps(resolved))
    return resolved


def make_both(root):
    """Both, the newer one as the default that took the place of the older one.

    Returns:
        their resolved release files, the newer one first.
    """
    resolved = {version: make(root, version) for version in (OLD, NEW)}
    for version in (OLD, NEW):
        published_release.change(root, version, default=True)
    return resolved[NEW], resolved[OLD]
