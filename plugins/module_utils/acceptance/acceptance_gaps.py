# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What an acceptance cannot have noticed, in sentences. Pure."""

from __future__ import annotations

from typing import Any, Sequence

from .output import ENVIRONMENT, Heard


def gaps_of(heard: Heard, rows: Sequence[dict[str, Any]], checks: Sequence[dict[str, Any]]) -> list[str]:
    """What this acceptance cannot have noticed.

    Args:
        heard: what came out of the job.
        rows: one for each rank, from :func:`.acceptance_table.row_of`.
        checks: one entry for each check that began, as :func:`.acceptance.judge` sums them up.
    """
    sentences = []
    if heard.event("through") == ENVIRONMENT:
        sentences.append("Not through the module: %s." % (heard.event("without_module") or "no reason was given"))
    devices = [row["device_facts"] for row in rows if row["device_facts"]]
    hosts = list(dict.fromkeys(row["host"] for row in rows))
    place = "this host" if len(hosts) == 1 else "these hosts"
    if any(device.get("gpus_unused") for device in devices):
        sentences.append("The release is for CPUs: the GPUs of %s were not used." % place)
    elif devices and all(device["kind"] == "cpu" for device in devices):
        sentences.append("No GPU on %s: devices are CPU cores." % place)
    if any(device["kind"] == "gpu" and not (device.get("uuid") or device.get("bus")) for device in devices):
        sentences.append("The GPUs are known by their index only: two ranks on one GPU may have gone unnoticed.")
    if len(hosts) == 1:
        sentences.append("All ranks ran on %s: nothing went from node to node." % hosts[0])
    sentences += [
        "%s could not check %s: %s." % (entry["name"], operation, text)
        for entry in checks for operation, text in sorted(entry["lacks"].items())
    ]
    sentences += [
        "%s did not run: %s." % (entry["name"], entry["note"]) for entry in checks if entry["status"] == "skipped"
    ]
    return sentences


def own_account_gaps(user: str, uid: int, other: str) -> list[str]:
    """What the account hides under which the acceptance runs.

    Args:
        user: name of the rollout account.
        uid: its number.
        other: the ordinary user that runs the ranks; empty for the rollout account itself.
    """
    if other:
        return []
    sentences = [
        "Not as an ordinary user: as the rollout account %s itself, which can read files that others cannot." % user
    ]
    if uid == 0:
        sentences.append(
            "As root, which passes every permission check: unreadable files, unwritable caches and the limits of "
            "users stay hidden."
        )
    return sentences
