# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Select what a build gets of its caller's environment: what is listed here, and what its step names. Pure.

A login has more in its environment than anybody remembers: tokens, a preloaded library, a compiler that some module
put into ``MPICH_CC``, a ``PYTHONPATH`` of last week. None of it may shape what is built, so that the list has what is
allowed: whose account it is, where temporary files go, the ways to servers, the module system and its batch system.
"""

from __future__ import annotations

import re
from typing import Iterable, Mapping

from .redaction import withheld

_ALLOWED = re.compile(
    # The account and its session: environ(7), locale(7), the XDG base directories, Kerberos and ssh's agent.
    r"HOME|USER|LOGNAME|SHELL|HOST|HOSTNAME|PWD|SHLVL|TERM|TZ|LANG|LANGUAGE|LC_[A-Z]+|TMPDIR|TMP|TEMP|PATH|MANPATH"
    r"|XDG_[A-Z_]+|KRB5CCNAME|SSH_AUTH_SOCK"
    # The ways to servers, and whom to believe there; what comes from them is proved by its hash or commit.
    r"|(?i:https?|ftp|all|no)_(?:proxy|PROXY)|SSL_CERT_(?:FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|GIT_SSL_CAINFO"
    r"|PIP_(?:(?:EXTRA_)?INDEX_URL|FIND_LINKS|NO_INDEX|CONFIG_FILE|(?:CLIENT_)?CERT|PROXY|TRUSTED_HOST|KEYRING_PROVIDER"
    r"|CACHE_DIR|(?:DEFAULT_)?TIMEOUT|RETRIES)"
    # The module systems', which purge and load by them, and what Cray's wrappers have of modules that no purge unloads.
    r"|LMOD_.+|__LMOD_.+|_ModuleTable.*|MODULE.+|__MODULES_.+|LOADEDMODULES|_LMFILES_.*|BASH_FUNC_(?:module|ml|_module.*)%%"
    r"|CRAY.*|PE_.+"
    # What a batch system and its launcher give a job: devices, ranks, sizes.
    r"|SLURM_.+|SLURMD_.+|PBS_.+|NCPUS|OMP_NUM_THREADS|PMIX?_.+|PALS_.+|FLUX_.+|(?:CUDA|ROCR|HIP|NVIDIA)_VISIBLE_DEVICES"
    r"|GPU_DEVICE_ORDINAL|ZE_AFFINITY_MASK|NVIDIA_DRIVER_CAPABILITIES"
    # How fast, not what; and this collection's own.
    r"|CMAKE_BUILD_PARALLEL_LEVEL|MAX_JOBS|TORCHSTACK_.+"
)


def is_allowed(name: str) -> bool:
    """Tell whether a build may see a variable of this name of whoever calls."""
    return _ALLOWED.fullmatch(name) is not None


def without_secrets(environment: Mapping[str, str], named: Iterable[str] = ()) -> dict[str, str]:
    """Return the part of a caller's environment that may start or submit a build, with what was named in any case."""
    kept_back = set(withheld(environment, named))
    return {name: value for name, value in environment.items() if name not in kept_back}


def handed_on(environment: Mapping[str, str], named: Iterable[str] = (), job_id: str = "") -> dict[str, str]:
    """Return the part of a caller's environment that a build may see, with what was named in any case.

    ``job_id`` is the variable by which a batch system tells a job its identifier: its other variables begin like that.
    """
    wanted = set(named)
    of_job = job_id.partition("_")[0] + "_"
    return {
        name: value for name, value in without_secrets(environment, wanted).items()
        if name in wanted or is_allowed(name) or (job_id and name.startswith(of_job))
    }
