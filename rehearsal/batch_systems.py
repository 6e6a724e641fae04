# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Which batch system a rehearsed site has: ``rehearsal_batch_system`` of its rehearsal's inventory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import pbs
from .batch_system import BatchSystem
from .dress_data import known_keys, nearest
from .slurm import Slurm
from .trouble import TroubleError

VARIABLE = "rehearsal_batch_system"
NAMES = (Slurm.name, pbs.Pbs.name)
"""Of all that there are; the first one is what a rehearsal has that names none."""


def batch_system_of(hosts: Mapping[str, Mapping[str, Any]]) -> BatchSystem:
    """Read the batch system that a site's rehearsal asks for among the variables of its hosts.

    Raises:
        TroubleError: it asks for what there is not.
    """
    given = next((known[VARIABLE] for known in hosts.values() if known.get(VARIABLE)), {"system": NAMES[0]})
    if not isinstance(given, Mapping) or "system" not in given:
        raise TroubleError("%s has to be a mapping with the key system: %s." % (VARIABLE, " or ".join(NAMES)))
    if given["system"] not in NAMES:
        raise TroubleError("%s.system is '%s'%s" % (VARIABLE, given["system"], nearest(str(given["system"]), NAMES)))
    if given["system"] == Slurm.name:
        known_keys(given, ("system",), VARIABLE)
        return Slurm()
    return pbs.Pbs(pbs.data_of(given, VARIABLE))
