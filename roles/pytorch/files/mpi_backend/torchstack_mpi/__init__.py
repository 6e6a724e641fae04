# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""An MPI backend of torch.distributed, compiled from PyTorch's own source for the torch that is installed beside it.

Importing this registers it. The library, and with it MPI, is loaded when the first process group is made.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import sys

import torch

with open(os.path.join(os.path.dirname(__file__), "built.json")) as _stream:
    BUILT = json.load(_stream)
"""Its `name`, the `torch` and `commit` that it was compiled for, and the MPI `functions` that its source calls."""

_library = None


def _is_built_in():
    return hasattr(torch._C._distributed_c10d, "ProcessGroupMPI")


def _load():
    """The compiled library, whose MPI calls are answered by the MPI that it was compiled with.

    Raises:
        ImportError: another implementation of MPI answers them.
    """
    global _library
    if _library is not None:
        return _library
    flags = sys.getdlopenflags()
    # A torch with MPI puts its own before all libraries that are loaded later.
    sys.setdlopenflags(os.RTLD_NOW | (os.RTLD_DEEPBIND if _is_built_in() else 0))
    try:
        library = importlib.import_module("torchstack_mpi._backend")
    finally:
        sys.setdlopenflags(flags)
    path, version = library.library()
    if version.startswith("Open MPI") != library.compiled_with_open_mpi:
        raise ImportError(
            "torchstack_mpi was compiled with %s, and its MPI calls are answered by %s in %s. "
            "Load the module of the release, or take the other MPI off LD_PRELOAD and LD_LIBRARY_PATH."
            % ("Open MPI" if library.compiled_with_open_mpi else "an MPICH", version.splitlines()[0], path)
        )
    atexit.register(library.end)
    _library = library
    return library


def library():
    """The MPI that answers: {"path": the library's file, "version": the first line of what it says of itself}."""
    path, version = _load().library()
    return {"path": path, "version": " ".join(version.partition("\n")[0].split())}


def calls():
    """How many calls of each MPI function this backend has made in this process, {"MPI_Allreduce": 2}."""
    return _load().calls() if _library is not None else {}


class ProcessGroupMPI:
    """What torch.distributed looks for where an MPI backend is built in."""

    @staticmethod
    def create(ranks):
        """A process group of these ranks, of all for an empty list; None in a process that is not one of them."""
        return _load().create(ranks)


def _create_named(options, _backend_options):
    """A process group for a backend of another name: torch.distributed numbers the ranks, and asks only its members."""
    ranks = list(options.global_ranks_in_group)
    some = ranks and len(ranks) != torch.distributed.get_world_size()
    if some and "MPI_Comm_create_group" not in BUILT["functions"]:
        raise RuntimeError(
            "The backend %s makes groups of all ranks only: its source waits for all of them to make a group of some. "
            "Make this group with another backend, or name a patch series in pytorch.mpi_backend." % BUILT["name"]
        )
    group = ProcessGroupMPI.create(ranks)
    if (group.rank(), group.size()) != (options.group_rank, options.group_size):
        raise RuntimeError(
            "This is rank %d of %d to MPI, and rank %d of %d to torch.distributed. "
            "Give init_process_group the rank and world size of the MPI launcher."
            % (group.rank(), group.size(), options.group_rank, options.group_size)
        )
    return group


def _register(name):
    """Make the backend known under its name.

    Raises:
        ImportError: torch is not the one this was compiled for, or the name is taken.
    """
    if not torch.distributed.is_available():
        raise ImportError("torchstack_mpi needs torch.distributed, which this torch was built without.")
    if (torch.__version__, torch.version.git_version) != (BUILT["torch"], BUILT["commit"]):
        raise ImportError(
            "torchstack_mpi was compiled for torch %s (%s), and torch %s (%s) is installed here. "
            "Build the release again."
            % (BUILT["torch"], BUILT["commit"], torch.__version__, torch.version.git_version)
        )
    from torch.distributed import distributed_c10d

    taken = ImportError(
        "torch.distributed has a backend named %s already. "
        "Give this one another name: pytorch.mpi_backend.name of the release file." % name
    )
    if name == "mpi":
        if _is_built_in() or distributed_c10d.is_mpi_available():
            raise taken
        # For a name that torch knows itself it asks no registered backend, but looks for a built-in one: in these two.
        distributed_c10d.ProcessGroupMPI = ProcessGroupMPI
        distributed_c10d._MPI_AVAILABLE = True
        if not torch.distributed.is_mpi_available():
            raise ImportError("torch %s does not look for its MPI backend where this one is put." % torch.__version__)
        return
    if hasattr(distributed_c10d.Backend, name.upper()):
        raise taken
    distributed_c10d.Backend.register_backend(name, _create_named, extended_api=True, devices=["cpu", "cuda"])


_register(BUILT["name"])
