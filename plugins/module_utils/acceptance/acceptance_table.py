# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the record of an acceptance keeps of each rank, and the table of it. Pure."""

from __future__ import annotations

from typing import Any, Sequence


def row_of(report: dict[str, Any]) -> dict[str, Any]:
    """What the record keeps of a rank.

    Args:
        report: of the rank, as it came.
    """
    keys = (
        "rank", "local_rank", "size", "source", "host", "pid", "uid", "executable", "python", "versions", "files",
        "libraries", "port",
    )
    facts = report.get("device") or {}
    return dict({key: report[key] for key in keys if key in report}, device=device_text(facts), device_facts=facts)


def device_text(device: dict[str, Any]) -> str:
    """A device in the table."""
    if not device:
        return "?"
    if device["kind"] != "gpu":
        return "cpu"
    identity = " ".join(part for part in (device.get("bus"), device.get("uuid")) if part)
    return "gpu %s %s" % (device.get("index"), identity or device.get("name", ""))


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Rank, host and device of each rank as aligned plain text; empty without ranks.

    The memory nodes are those of the cores, and where the kernel tells it the one that the GPU is at.
    """
    if not rows:
        return ""
    cells: list[tuple[str, ...]] = [("rank", "local", "host", "pid", "device", "cores", "numa", "gpu at")]
    for row in rows:
        facts = row["device_facts"]
        near = facts.get("gpu_numa")
        cells.append((
            str(row["rank"]), str(row["local_rank"]), row["host"], str(row["pid"]), row["device"],
            facts.get("cpus") or "?", facts.get("numa") or "?", "?" if near is None else str(near),
        ))
    if all(line[-1] == "?" for line in cells[1:]):
        cells = [line[:-1] for line in cells]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells]
    return "\n".join(lines)
