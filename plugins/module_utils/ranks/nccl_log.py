# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read the network, the plugin and the channels of NCCL or RCCL from its log.

A release whose plugin cannot be loaded works, slowly: NCCL says so in its log only, and uses sockets.
"""

from __future__ import annotations

import collections
import contextlib
import os
import re
import tempfile
from typing import Any, MutableMapping

from ..core.digests import text_of

SETTINGS = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,NET"}
"""Variables with which NCCL logs the lines that are read here ("Environment variables" of its manual)."""

FILE = "NCCL_DEBUG_FILE"

_KEPT = re.compile(r"(NCCL|RCCL|FI|OFI_NCCL|AWS_OFI)_[A-Z0-9_]+")
_INFO = re.compile(r"NCCL (?:INFO|WARN) (.*)")
_VERSION = re.compile(r"\b[NR]CCL version *:? *(\d[^ ]*)")
_NETWORK = re.compile(r"Using network (.+?)\s*$")
_PLUGIN = re.compile(r"NET/OFI (?:Initializing|Using) (aws-ofi-[nr]ccl[^ ]* [^ ,]+)", re.IGNORECASE)
_LOADED = re.compile(r"(?:Loaded net plugin|Initialized NET plugin) (.+?)(?: \(v\d+\))?\s*$", re.IGNORECASE)
_PROVIDER = re.compile(r"NET/OFI Selected provider is ([^ ,(]+)", re.IGNORECASE)
_CHANNEL = re.compile(r"(?:Channel|Ring) [\d/]+ : \S+ -> \S+ (?:\[(?:send|receive)\] )?via (.+?)(?: comm \S+.*)?\s*$")
_NOTABLE = re.compile(r"NCCL WARN|NET/|Using network|set by environment|[NR]CCL version|error", re.IGNORECASE)
NOTABLE_LINES = 60
"""At most of them are printed."""

_BUILT_IN = ("IB", "Socket")
"""Names of the networks that NCCL has itself; in its words, plugins, too."""


def parse(text: str) -> dict[str, Any]:
    """Parse the log of one process, of NCCL or RCCL from 2.4 on.

    Returns:
        ``network`` (the one that was named last), ``networks`` (all of them), ``plugin`` and its ``provider``,
        ``version``, which are empty where the log does not tell, and ``channels``: number of each way, as NCCL writes
        it, such as ``P2P/CUMEM`` or ``NET/AWS Libfabric/0/GDRDMA``.
    """
    said: dict[str, str] = {"version": "", "plugin": "", "loaded": "", "provider": ""}
    networks: list[str] = []
    channels: collections.Counter[str] = collections.Counter()
    for line in text.splitlines():
        match = _VERSION.search(line)
        if match:
            said["version"] = match.group(1)
        match = _INFO.search(line)
        words = match.group(1) if match else ""
        for name, pattern in (("plugin", _PLUGIN), ("loaded", _LOADED), ("provider", _PROVIDER)):
            match = pattern.search(words)
            if match and match.group(1) not in _BUILT_IN:
                said[name] = match.group(1)
        networks += _NETWORK.findall(words)[:1]
        channels.update(_CHANNEL.findall(words)[:1])
    return {
        "network": networks[-1] if networks else "", "networks": list(dict.fromkeys(networks)),
        "plugin": said["plugin"] or said["loaded"], "provider": said["provider"], "version": said["version"],
        "channels": dict(sorted(channels.items())),
    }


def nccl_variables(environment: MutableMapping[str, str]) -> dict[str, str]:
    """Select the variables that configure NCCL, its plugin and libfabric."""
    return {name: value for name, value in sorted(environment.items()) if _KEPT.fullmatch(name)}


class NcclLog:
    """Capture NCCL's log of this process, from before its first communicator on."""

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        self.given = nccl_variables(environment)
        descriptor, self.path = tempfile.mkstemp(prefix="torchstack.nccl.")
        os.close(descriptor)
        environment.update(SETTINGS, **{FILE: self.path})

    def read(self) -> str:
        """Read what NCCL has written so far."""
        return text_of(self.path)

    def notable_lines(self) -> str:
        """Select warnings, and lines about networks and plugins, to be printed."""
        lines = [line for line in self.read().splitlines() if _NOTABLE.search(line) and not _CHANNEL.search(line)]
        return "".join(line + "\n" for line in lines[:NOTABLE_LINES])

    def summary(self) -> dict[str, Any]:
        """Summarise the log as :func:`parse` does, with ``variables`` as they were set for the rank."""
        return dict(parse(self.read()), variables=self.given)

    def remove(self) -> None:
        """Remove the file."""
        with contextlib.suppress(OSError):
            os.unlink(self.path)
