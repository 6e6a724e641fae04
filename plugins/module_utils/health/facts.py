# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Parse what health/collect.py has brought from a node into facts that can be checked and kept. Pure."""

from __future__ import annotations

import re
from typing import Any, Mapping

from . import nvidia_smi
from .nvidia_smi import leading_number

Facts = dict

NVIDIA, AMD = "0x10de", "0x1002"
"""Vendors on the PCI bus."""

FABRIC_VENDORS = ("0x15b3", "0x17db", "0x1590")
"""NVIDIA's adapters (Mellanox), and Slingshot's under the numbers of Cray and of HPE."""

_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)(?: GPU-I:\d+)?\): (\d+)")
_SWITCH = re.compile(r"SXid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+), (Fatal|Non-fatal)?", re.IGNORECASE)
_DRIVER = re.compile(r"Kernel Module(?:\s+for\s+\S+)?\s+(\d[\d.]+)")


def read_facts(collected: Any) -> Facts:
    """Parse the facts of one node; raise ValueError where that is not what ``collect.collect`` gives.

    Returns:
        ``host``, ``collected``, ``seconds``, ``machine``, ``gpus``, ``nvidia`` (versions and ``problems``),
        ``counts`` (GPUs by ``pci``, ``driver``, ``nvidia_smi`` and ``amd``), ``pci``, ``fabric``, ``log``, ``storage``,
        and ``problems`` (part -> why there is nothing of it).
    """
    if not isinstance(collected, dict) or not isinstance(collected.get("parts"), dict) or "host" not in collected:
        raise ValueError("it is not what the program of node_health prints")
    if collected.get("schema") != 1:
        raise ValueError("its schema is %r, and this collection knows 1" % (collected.get("schema"),))
    parts = collected["parts"]

    def part(name: str, empty: Any) -> Any:
        result = (parts.get(name) or {}).get("result")
        return empty if result is None else result

    pci = [_parse_device(device) for device in part("pci", [])]
    driver = part("driver", {"version": None, "gpus": {}})
    nvidia = _parse_nvidia(part("nvidia", []), driver)
    machine = part("machine", {})
    return {
        "host": str(collected["host"]), "collected": str(collected.get("collected", "")),
        "seconds": collected.get("seconds"), "machine": machine, "gpus": nvidia.pop("gpus"), "nvidia": nvidia,
        "counts": {
            "pci": sum(device["kind"] == "gpu" and device["vendor"] == NVIDIA for device in pci),
            "driver": len(driver["gpus"]), "nvidia_smi": nvidia.pop("count"),
            "amd": sum(device["kind"] == "gpu" and device["vendor"] == AMD for device in pci),
        },
        "pci": pci, "fabric": _parse_fabric(part("fabric", {})),
        "log": _parse_log(part("log", {}), machine.get("uptime")),
        "storage": [
            part(name, {"directory": name.partition(" ")[2], "kind": "", "files": 0, "operations": {},
                        "problem": (parts[name] or {}).get("problem", "")})
            for name in sorted(parts) if name.startswith("storage ")
        ],
        "problems": {name: str(answer["problem"]) for name, answer in parts.items() if answer.get("problem")},
    }


def _parse_nvidia(commands: Any, driver: Mapping[str, Any]) -> Facts:
    """Parse what nvidia-smi said: ``gpus``, ``count``, versions, ``problems`` ([command, status, text])."""
    facts: Facts = {"driver": "", "cuda": "", "gpus": [], "count": None, "problems": [], "inforom": ""}
    kernel = _DRIVER.search(driver.get("version") or "")
    facts["kernel_driver"] = kernel.group(1) if kernel else ""
    answers = {answer["command"].split(" --format")[0].partition("=")[0]: answer for answer in commands}
    asked = answers.get("nvidia-smi -q -x")
    if asked is not None and (asked["status"] == "ok" or "</nvidia_smi_log>" in asked["output"]):
        try:
            facts.update(nvidia_smi.parse(asked["output"]))
            facts["count"] = len(facts["gpus"])
        except ValueError as error:
            facts["problems"].append([asked["command"], "garbage", str(error)])
        else:
            found = re.search(r"infoROM is corrupted[^\n]*", asked["output"] + asked["error"])
            facts["inforom"] = found.group() if found else ""
    for answer in answers.values():
        if answer["status"] != "ok" and not (answer is asked and facts["count"] is not None):
            said = answer["error"] or _last_line(answer["output"])
            facts["problems"].append([answer["command"].partition("=")[0], answer["status"], said])
    facts.pop("attached", None)
    outputs = {name: answer["output"] for name, answer in answers.items() if answer["status"] == "ok"}
    nvidia_smi.join_nvlinks(
        facts["gpus"], nvidia_smi.parse_nvlink_speeds(outputs.get("nvidia-smi nvlink -s", "")),
        nvidia_smi.parse_nvlink_errors(outputs.get("nvidia-smi nvlink -e", "")))
    rows = nvidia_smi.parse_remapped_rows(outputs.get("nvidia-smi --query-remapped-rows", ""))
    for gpu in facts["gpus"]:
        gpu["remapped"] = gpu["remapped"] or rows.get(gpu["address"])
    return facts


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def _parse_device(raw: Mapping[str, Any]) -> Facts:
    """Parse a device on the bus: what it is, and its link (lanes, GT/s) as it is and as it could be."""
    text, vendor = raw.get("class") or "", raw.get("vendor") or ""
    kind = "gpu" if text.startswith(("0x03", "0x12", "0x0b40")) and vendor in (NVIDIA, AMD) else (
        "fabric" if vendor in FABRIC_VENDORS else "network" if text.startswith("0x02") else "other")
    speeds, errors = {}, {}
    for key, name in (("speed", "current_link_speed"), ("speed_max", "max_link_speed")):
        found = re.match(r"\d+(?:\.\d+)?", raw.get(name) or "")
        speeds[key] = float(found.group()) if found else None
    for name in ("correctable", "nonfatal", "fatal"):
        total = re.search(r"^TOTAL_ERR_\w+ (\d+)", raw.get("aer_dev_" + name) or "", re.MULTILINE)
        errors[name] = int(total.group(1)) if total else None
    return {
        "address": raw.get("address", ""), "kind": kind, "vendor": vendor, "device": raw.get("device") or "",
        "driver": raw.get("driver") or "", "numa": leading_number(raw.get("numa_node")), "errors": errors,
        "width": _parse_lanes(raw.get("current_link_width")),
        "width_max": _parse_lanes(raw.get("max_link_width")), **speeds,
    }


def _parse_lanes(text: str | None) -> int | None:
    """Parse a width; the kernel writes 0 and 255 where it does not know one."""
    lanes = leading_number(text)
    return lanes if lanes is not None and 0 < lanes <= 32 else None


def _parse_fabric(raw: Mapping[str, Any]) -> dict[str, list[Facts]]:
    """Parse adapters. A port's state is `4: ACTIVE`, its rate `200 Gb/sec (4X HDR)`."""
    return {
        "infiniband": [
            {
                "name": "%s/%s" % (port["device"], port["port"]), "state": _state_name(port.get("state")),
                "physical": _state_name(port.get("phys_state")), "rate": leading_number(port.get("rate")),
                "layer": port.get("link_layer") or "", "firmware": port.get("fw_ver") or "",
                "board": port.get("board_id") or "", "counters": _parse_counters(port.get("counters") or {}),
            }
            for port in raw.get("infiniband") or []
        ],
        "cxi": [
            {
                "name": device["device"], "address": device.get("address") or "", "state": device.get("link") or "",
                "speed": device.get("speed") or "", "firmware": device.get("firmware") or "",
                "counters": _parse_counters(device.get("counters") or {}),
            }
            for device in raw.get("cxi") or []
        ],
        "net": [
            {
                "name": interface["name"], "state": interface.get("operstate") or "",
                "speed": leading_number(interface.get("speed")), "mtu": leading_number(interface.get("mtu")),
                "driver": interface.get("driver") or "",
                "carrier_changes": leading_number(interface.get("carrier_changes")),
                "counters": _parse_counters(interface.get("counters") or {}),
            }
            for interface in raw.get("net") or []
        ],
    }


def _state_name(text: str | None) -> str:
    return (text or "").rpartition(":")[2].strip()


def _parse_counters(raw: Mapping[str, Any]) -> dict[str, int]:
    """Select counters that have a value; Slingshot writes `value@time`."""
    values = {name: leading_number((value or "").partition("@")[0]) for name, value in raw.items()}
    return {name: value for name, value in values.items() if value is not None}


def _parse_log(raw: Mapping[str, Any], uptime: float | None) -> Facts:
    """Parse the kernel's log: ``lines`` as [hours ago, text] (None if unknown), and ``xids`` in it."""
    lines: list[tuple[float | None, str]] = [
        (None if uptime is None else max(0.0, round((uptime - seconds) / 3600, 3)), str(text))
        for seconds, text in raw.get("lines") or []
    ]
    xids = []
    for ago, text in lines:
        of_gpu = _XID.search(text)
        found = of_gpu or _SWITCH.search(text)
        if found:
            fatal = not of_gpu and (found.group(3) or "").lower() == "fatal"
            xids.append({"address": nvidia_smi.pci_address(found.group(1)), "xid": int(found.group(2)), "hours": ago,
                         "text": text, "switch": not of_gpu, "fatal": fatal})
    return {
        "source": raw.get("source") or "", "tried": dict(raw.get("tried") or {}), "total": raw.get("total") or 0,
        "left_out": raw.get("left_out") or 0, "since": raw.get("since"), "lines": lines, "xids": xids,
    }
