# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Say what a step without network was refused, and which step should have fetched it. Pure."""

from __future__ import annotations

import re
from typing import Any, Iterable, Mapping

from .files import StepFiles
from .proxy_requests import address_in, public

NO_NETWORK = "TORCHSTACK_NO_NETWORK"
"""Variable with shell text by which a script without network sets the proxy variables again, as a module may set a
proxy; empty when a script is run by hand, which leaves it the network."""

RECORD = "refused.jsonl"
"""In the step's directory: a line for each address that the last attempt was refused; see :mod:`.network_guard`."""


def describe_refused(entry: Mapping[str, Any]) -> str:
    """Name what was asked for, within a sentence."""
    if not entry["host"]:
        return "something that is no request to a proxy"
    return "%s from host %s" % (entry["url"], entry["host"])


def fetch_step(step: str, needs: Iterable[str]) -> str:
    """Choose among the steps that ``horovod`` needs the one that fetches for it; empty where none does."""
    return next((need for need in sorted(needs) if need in (step + "-fetch", step + "-source")), "")


def refused_sentence(step: str, needs: Iterable[str], outcome: Mapping[str, Any], log: bytes = b"") -> str:
    """Say what a step was refused, for the message about its end; empty where it was refused nothing.

    The end of its log may name an address of which the listener saw only the host.
    """
    refused = outcome.get("refused")
    if not refused:
        return ""
    first = dict(next((entry for entry in refused if entry["host"]), refused[0]))
    if first["way"] not in ("http", "ssh"):
        first["url"] = _in_log(log.decode("utf-8", "replace"), first["host"]) or first["url"]
    more = outcome["refusals"] - 1
    fetch = fetch_step(step, needs)
    return "step %s tried to download %s%s: build steps have no network; fetch it in %s" % (
        step, describe_refused(first), " (and %d more)" % more if more else "",
        "the fetch step %s" % fetch if fetch else "a step before it that may use the network",
    )


def refused_warnings(files: StepFiles, needs: Iterable[str], outcome: Mapping[str, Any], log: bytes) -> list[str]:
    """Say what an operator should know of a step that ended well although it was refused the network."""
    cause = refused_sentence(files.name, needs, outcome, log)
    return [
        "%s%s. It ended well all the same, but what it made may differ from what it would be with that; %s has all."
        % (cause[0].upper(), cause[1:], files.path(RECORD))
    ] if cause else []


def _in_log(text: str, host: str) -> str:
    """Find the address of a host that a log names; urllib3 (pip, requests) names host and path apart."""
    found = address_in(text, host)
    if _path(found):
        return found
    match = re.search(r"host='%s'.{0,200}?with url: (/\S*)" % re.escape(host), text) or re.search(
        r"Tunnel connection failed: 403[^\n]*?: (/\S*)", text)
    return public("https://%s%s" % (host, match.group(1))) if match and host else found


def _path(url: str) -> str:
    """Return the path of an address; empty for the root."""
    return url.partition("://")[2].partition("/")[2]
