# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Select what a build gets of its caller's environment: no secrets, nothing that would change it unseen. Pure.

A login has more in its environment than anybody remembers: tokens, a preloaded library, search paths of a compiler that
some module set, a ``USE_CUDA`` of last week. A build gets such a variable only where its step names it.
"""

from __future__ import annotations

import re
from typing import Iterable, Mapping

from .processes import SHELL_STARTUP
from .redaction import withheld

_SHAPING = re.compile(
    # gcc(1), "Environment Variables Affecting GCC"; ld.so(8); make(1) and configure scripts; nvcc.
    r"(?:C|C_INCLUDE_|CPLUS_INCLUDE_|OBJC_INCLUDE_|OBJCPLUS_INCLUDE_|LIBRARY_|COMPILER_|LD_RUN_)PATH|GCC_EXEC_PREFIX"
    r"|LD_(?:PRELOAD|AUDIT)|(?:C|CXX|CPP|F|FC|LD|CUDA|NVCC_PREPEND_|NVCC_APPEND_)FLAGS"
    # cmake-env-variables(7), of which one only says how fast, and what the setup of PyTorch and of Horovod reads.
    r"|CMAKE_(?!BUILD_PARALLEL_LEVEL\Z).+|(?:USE|BUILD|PYTORCH_BUILD|HOROVOD)_.+|TORCH_CUDA_ARCH_LIST"
)


def is_shaping(name: str) -> bool:
    """Tell whether a variable of this name changes what compilers, CMake or a package's setup make."""
    return _SHAPING.fullmatch(name) is not None


def without_secrets(environment: Mapping[str, str], named: Iterable[str] = ()) -> dict[str, str]:
    """Return the part of a caller's environment that may start or submit a build, with what was named in any case."""
    kept_back = set(withheld(environment, named))
    return {name: value for name, value in environment.items() if name not in kept_back}


def handed_on(environment: Mapping[str, str], named: Iterable[str] = ()) -> dict[str, str]:
    """Return the part of a caller's environment that a build may see, with what was named in any case.

    It is without secrets, without what reaches into shells, and without what shapes a build.
    """
    wanted = set(named)
    return {
        name: value for name, value in without_secrets(environment, wanted).items()
        if name not in SHELL_STARTUP and (name in wanted or not is_shaping(name))
    }
