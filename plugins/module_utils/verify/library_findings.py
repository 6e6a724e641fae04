# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Describe what is wrong with the libraries of a release, in sentences that say what to do."""

from __future__ import annotations

import errno
import os
import re
from typing import Any, NamedTuple, Sequence

from ..core.text import in_words

KINDS = ("missing", "misplaced", "embedded", "forbidden", "required", "versions", "unsealed", "unreadable")
"""The kinds of findings, in the order in which they are told."""

_PYTHON = re.compile(r"libpython(\d+\.\d+)\S*\.so")
_DRIVER = re.compile(r"lib(cuda|nvidia-[a-z]\S*|nvcuvid|nvoptix|cudadebugger)\.so")
_COMPILER = re.compile(r"lib(stdc\+\+|gcc_s|gfortran|gomp|quadmath|atomic|omp|iomp5|ifcore|imf|svml|irc)\.so")
_MPI = re.compile(r"lib(mpi\w*|mpich\w*|pmi\w*|fabric|ucp|ucs|uct)\.so")
_NETWORK = re.compile(r"lib(ibverbs|rdmacm|mlx\d|efa|psm\d|cxi|xpmem|gdrapi)\.so")
_MUSL = re.compile(r"libc\.musl")


class Finding(NamedTuple):
    """Describe one thing that is wrong.

    ``message`` and ``remedy`` are sentences; ``environment`` says whether it is so with the LD_LIBRARY_PATH of the
    release, without one, or both.
    """

    kind: str
    object: str
    soname: str
    message: str
    remedy: str
    searched: tuple[str, ...] = ()
    environment: str = ""
    details: tuple[tuple[str, Any], ...] = ()

    def order(self) -> tuple[int, str, str, str]:
        """Return what findings are sorted by."""
        return KINDS.index(self.kind), self.object, self.soname, self.message

    def as_result(self) -> dict[str, Any]:
        """Return the finding as plain data."""
        result: dict[str, Any] = {"object": self.object, "soname": self.soname, "searched": list(self.searched)}
        result.update(self.details)
        result.update(message=self.message, remedy=self.remedy)
        if self.environment:
            result["environment"] = self.environment
        return result


def text(name: bytes) -> str:
    """Return a name as text for one line of any output: what would not print is escaped."""
    decoded = name.decode("utf-8", "backslashreplace")
    return decoded if decoded.isprintable() else in_words(os.fsdecode(name))


def rpath_to(path: bytes, directory: bytes) -> str:
    """Return the ``$ORIGIN`` entry that leads from an object to a directory."""
    relative = os.path.relpath(directory, os.path.dirname(path))
    return "$ORIGIN" if relative == b"." else "$ORIGIN/" + text(relative)


def missing_remedy(
    soname: str, path: bytes, elsewhere: Sequence[bytes], bare_only: bytes | None, skipped: Sequence[str]
) -> str:
    """Say what to do about a library that is not found.

    ``path`` needs it, verified objects ``elsewhere`` are it; ``bare_only`` is where it is found with LD_LIBRARY_PATH,
    if it is only missing without; ``skipped`` says why files of that name were passed over.
    """
    python = _PYTHON.match(soname)
    if python:
        return (
            "The object was linked with Python's own linker flags or with LDFLAGS of the environment, an rpath among "
            "them. Extension modules take Python from the interpreter that loads them: build it again with LDFLAGS "
            "unset, and without -lpython%s." % python.group(1)
        )
    if _DRIVER.match(soname):
        return (
            "It belongs to the GPU driver, which this host does not have. Excuse it by an entry of allow_missing with "
            "that reason, and verify on a compute node."
        )
    if _NETWORK.match(soname) and not elsewhere:
        return (
            "It belongs to the driver of a network, which this host does not have. If the object is opened only where "
            "that network is, excuse it by an entry of allow_missing with that reason."
        )
    if bare_only is not None:
        directory = text(os.path.dirname(bare_only))
        remedy = "It is found in %s by LD_LIBRARY_PATH alone, and lost where a user or a job changes that. " % directory
        return remedy + "Link the object with -Wl,-rpath,%s." % directory
    if elsewhere:
        return (
            "It lies at %s, to which none of these lead. Link the object with an rpath of %s; or, if the library is "
            "always mapped before the object, name it under preloaded."
            % (text(elsewhere[0]), rpath_to(path, os.path.dirname(elsewhere[0])))
        )
    if skipped:
        return "A file of that name was passed over: %s. Install the library for this machine." % skipped[0]
    if _MUSL.match(soname):
        return "The object was built for another C library, musl. Install the package's manylinux wheel."
    if _COMPILER.match(soname):
        return (
            "It is a compiler's run-time library. Link the object with an rpath to that of the compiler which built "
            "it, or build it with a compiler whose library the system has."
        )
    if _MPI.match(soname):
        return (
            "It belongs to MPI or its network library. Link the object with an rpath to the one of the release, or "
            "let the modulefile load the module that brings it."
        )
    return (
        "Install what has it and link the object with an rpath to its directory; or, where it may be missing, excuse "
        "it by an entry of allow_missing with the reason. An object that nothing loads can be named under exclude."
    )


def misplaced_remedy(found: bytes, rule: str, declared: Sequence[str]) -> str:
    """Say what to do about a library that comes from elsewhere than declared."""
    directory, wanted = text(os.path.dirname(found)), " or ".join(declared)
    if rule == "LD_LIBRARY_PATH":
        return "Take %s out of LD_LIBRARY_PATH, or name the directory of %s before it." % (directory, wanted)
    if rule.startswith(("RPATH", "RUNPATH")):
        return "Link the object with an rpath to the directory of %s instead of %s." % (wanted, directory)
    if rule in ("already loaded", "preloaded"):
        return "Another object maps it before, and the first one wins. Correct that one, so that %s is mapped." % wanted
    if rule == "direct path":
        return "The path is written into the object: link it again, against the library of %s." % wanted
    return "Nothing that the object says leads to %s: link it with an rpath to that directory." % wanted


def version_remedy(library: bytes, version: str) -> str:
    """Say what to do about a symbol version that a library does not have."""
    if version.startswith("GLIBC_"):
        return "The object was built on a system with a newer C library. Build it here, or install an older wheel."
    return (
        "%s is older than the one that the object was linked with. Build the object against this one, or let its rpath "
        "lead to the newer one." % text(library)
    )


def problem_remedy(problem: str) -> str:
    """Say what to do about an object that the loader gives up on."""
    if "CPU ISA level" in problem:
        return "It was built for newer processors than this host's: build it for this one, or verify on a compute node."
    if "does not exist" in problem:
        return "It was built for another system. Install it from a package for this one, or name it under exclude."
    return "Install the file that the loader gives up on again."


def unreadable_remedy(code: int) -> str:
    """Say what to do about something that could not be looked at: errno(3), or 0 for a broken ELF file."""
    if not code:
        return "Install it again, or name it under exclude."
    if code in (errno.EACCES, errno.EPERM):
        return "Give the account that verifies the right to read it, or name it under exclude."
    if code == errno.ENAMETOOLONG:
        return "No program can open a path as long as this: move it nearer to the root, or name it under exclude."
    if code in (errno.EINVAL, errno.EBUSY):
        return "Name it under exclude if nothing loads it."
    return "Verify again once nothing changes the tree; if that does not help, its file system needs attention."


def embedded_remedy(name: str, provider: str) -> str:
    """Say what to do about a copy inside another file."""
    option = " (PyTorch: USE_SYSTEM_NCCL=ON, Horovod: HOROVOD_NCCL_LINK=SHARED)" if "nccl" in name.lower() else ""
    return (
        "This copy is used, whichever the loader finds. Build the object against %s%s, and see that the option "
        "arrived." % (provider, option)
    )


def forbidden_remedy(rule: str) -> str:
    """Say what to do about a place that nothing may come from."""
    if rule == "LD_LIBRARY_PATH":
        return "Take it out of the environment that the modulefile sets; a build can have it for itself."
    if rule.startswith(("RPATH", "RUNPATH")):
        return "Link the object without that rpath; for the link alone, -L is enough."
    return "Install the real library, or link the object with an rpath to it."


def sentence(findings: Sequence[Finding], objects: int) -> str:
    """Write the findings as one message: the first, and how many more there are of which kind."""
    first = findings[0]
    where = " (%s)" % first.environment if first.environment not in ("", "always") else ""
    message = "%s%s. %s" % (first.message.rstrip("."), where, first.remedy)
    counts = [(kind, sum(1 for finding in findings if finding.kind == kind)) for kind in KINDS]
    summary = ", ".join("%d %s" % (count, kind) for kind, count in counts if count)
    return "%d object%s: %s. %s" % (objects, "" if objects == 1 else "s", summary, message)
