# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Say what helps against an error that a step's log names."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Mapping

from .errors import OWN_ENDS

AGAIN = "then run the same command again: finished steps stay."
"""The end of a remedy for what somebody has to correct first."""

GENERAL = "Correct that, " + AGAIN

RESUME = "Run the same command again: it goes on from what is done."
"""The remedy for a step that was ended from outside."""

_FULL = "Make room"
_FEWER = (
    "Let the step have fewer compilers at once (horovod_jobs, pytorch_jobs, nccl_ofi_jobs, or cores in "
    "launcher_options), or give the job or the machine more memory"
)

REMEDIES = {
    "time_limit": "Give the step a longer timeout, if what was running was not stuck",
    "silence": "See in the log where its processes were, and correct that, or give the step a longer no_output_timeout",
    "wall_time": "Ask for a longer walltime",
    "disk_full": _FULL,
    "quota": _FULL + " within the quota, or have it raised",
    "file_size": "Raise the limit of the size of files (ulimit -f)",
    "killed": "A process was killed, as the kernel does where memory runs out. " + _FEWER,
    "memory": _FEWER,
    "cuda_toolkit": "Install a complete CUDA toolkit (nvcc, headers and libcudart), or load its module; where the "
    "release is built without GPUs, see that its PyTorch is a CPU build",
    "python_headers": "Install the headers of the interpreter that builds (Debian: python3-dev, Fedora: "
    "python3-devel), or set TORCHSTACK_PYTHON to one that has them",
    "no_compiler": "Install a compiler for C and C++ (Debian: build-essential, Fedora: gcc-c++), or load its module",
    "cmake_version": "Take a CMake of the version that is asked for: the lock in the release file, or the module, has "
    "another",
    "header": "Install what has that header (its -dev or -devel package), or load its module",
    "linker": "Something that is linked is missing, or of another version or compiler than what was compiled: see "
    "which library should have the symbol",
    "library": "Install the package with that library, or load its module",
    "program": "Install that program, or load its module",
    "module": "Correct the name and version of the module in the site's data, as `module avail` has it",
    "hash": "What was fetched is not what the release file has the hash of: look for a wheel from elsewhere (a mirror, "
    "pip's settings), or renew the lock",
    "network": "See that this machine reaches that address: https_proxy and pip's settings, or a mirror "
    "(docs/how-to/roll-out-offline.md)",
    "permission": "Let this account have the right to do that, or choose another directory",
    "requirement": "See that the index, or the mirror, has that version for this interpreter and machine",
    "python_module": "Add that package to the lock in the release file that the step installs from",
}
"""What to do, by kind, without a full stop."""


def remedy_for(kind: str, free: Mapping[str, int] | None = None) -> str:
    """Say what helps against errors of a kind, as sentences; for a full disk, by directory, how many bytes are free."""
    said = REMEDIES.get(kind)
    if said is None:
        return GENERAL
    if kind in ("disk_full", "quota") and free:
        said += " (free now: %s)" % ", ".join("%.1f GiB in %s" % (size / 2**30, path) for path, size in free.items())
    return "%s, %s" % (said, AGAIN)


def remedy_of(end: Mapping[str, Any], kind: str, free: Mapping[str, int] | None = None) -> str:
    """Say what helps after an attempt that ended so, as sentences; the scheduler's advice comes first."""
    said = remedy_for(kind, free) if end.get("reason") in OWN_ENDS else RESUME
    return "%s %s" % (end["advice"], said) if end.get("advice") else said


def free_space(*directories: str) -> dict[str, int]:
    """Measure the bytes that are free for this account, by directory; without those that cannot be asked."""
    found: dict[str, int] = {}
    for path in directories:
        with contextlib.suppress(OSError):
            status = os.statvfs(path)
            found[path] = status.f_bavail * status.f_frsize
    return found
