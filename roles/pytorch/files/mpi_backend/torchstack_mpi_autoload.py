# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What torch (2.5 and newer) calls at the end of its own import, unless TORCH_DEVICE_BACKEND_AUTOLOAD=0."""

import warnings


def autoload():
    """Register the MPI backend. Where it does not fit the torch that is imported, that torch is still imported."""
    try:
        import torchstack_mpi  # noqa: F401 importing it registers the backend
    except ImportError as error:
        warnings.warn("The MPI backend of the release is not there: %s" % error, RuntimeWarning, stacklevel=2)
