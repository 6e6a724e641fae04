# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Who takes part in the cluster: names, addresses, and what containers they are."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from .trouble import TroubleError

LOGIN = "login"
"""The login node that rollouts are started on."""

CONTROL = "control"
COMPUTE_NODES = 2
LOGIN_NODES = 1
PREFIX = "torchstack-rehearsal"
FIRST_ADDRESS = 10
"""The host part of the first node's address; the ones below are left to the network itself."""


class Names(NamedTuple):
    """What the parts of one cluster are called; several clusters can be up on one machine."""

    cluster: str
    compute: tuple[str, ...]
    login: tuple[str, ...] = (LOGIN,)

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes, the login nodes first."""
        return (*self.login, CONTROL, *self.compute)

    @property
    def inside(self) -> str:
        """The network of all nodes, from which nothing leads out."""
        return self.cluster

    @property
    def outside(self) -> str:
        """The network that leads out of the login nodes."""
        return self.cluster + "-outside"

    @property
    def shared(self) -> str:
        """The volume that is the shared file system."""
        return self.cluster + "-shared"

    def container(self, node: str) -> str:
        """The container of a node."""
        return "%s-%s" % (self.cluster, node)


def names_of_the_cluster(name: str = "", compute: int = 0, login: int = 0) -> Names:
    """The cluster's names, as the environment has them.

    Args:
        name: what the cluster is called; empty: REHEARSAL_NAME, else ``torchstack-rehearsal``.
        compute: how many compute nodes; 0: REHEARSAL_NODES, else two.
        login: how many login nodes; 0: REHEARSAL_LOGIN_NODES, else one.

    Raises:
        TroubleError: REHEARSAL_NAME, REHEARSAL_NODES or REHEARSAL_LOGIN_NODES cannot be used.
    """
    name = name or os.environ.get("REHEARSAL_NAME", "") or PREFIX
    if not re.fullmatch(PREFIX + r"(-[a-z0-9]{1,16})?", name):
        raise TroubleError(
            "REHEARSAL_NAME is '%s'; it has to be %s, or that with a word of small letters after it, as in %s-mine."
            % (name, PREFIX, PREFIX)
        )
    compute = compute or _number("REHEARSAL_NODES", COMPUTE_NODES, "compute nodes")
    login = login or _number("REHEARSAL_LOGIN_NODES", LOGIN_NODES, "login nodes")
    return Names(
        name, tuple("compute%d" % (index + 1) for index in range(compute)),
        (LOGIN, *("%s%d" % (LOGIN, index + 1) for index in range(1, login))))


def _number(variable: str, otherwise: int, what: str) -> int:
    """Read how many there are of something from the environment."""
    number = os.environ.get(variable, "") or str(otherwise)
    if not re.fullmatch("[1-9]", number):
        raise TroubleError("%s is '%s'; it has to be a number of %s from 1 to 9." % (variable, number, what))
    return int(number)


def addresses(subnet: str, nodes: Sequence[str]) -> dict[str, str]:
    """Node to its address in a subnet, as in ``10.89.0.0/24``."""
    network = ipaddress.ip_network(subnet)
    return {node: str(network[FIRST_ADDRESS + index]) for index, node in enumerate(nodes)}
