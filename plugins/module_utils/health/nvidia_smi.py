# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Parse what nvidia-smi prints, of drivers from 450 on. Pure.

Names have changed on the way, and each is looked for under all that it had: ``clocks_throttle_reasons`` became
``clocks_event_reasons`` (535), ``sram_uncorrectable`` was split by kind (550), GPUs before Turing count errors by bits
instead of by memory, and what a GPU or a driver does not know is ``N/A`` or not there at all.
"""

from __future__ import annotations

import re
from typing import Any, Iterable, Mapping, Sequence
from xml.etree import ElementTree

Facts = dict

UNKNOWN = ("", "N/A", "[N/A]", "Not Supported", "[Not Supported]", "None", "Unknown", "Insufficient Permissions",
           "Requested functionality has been deprecated")
"""Texts in place of a value that is not known or does not apply."""

BROKEN = ("ERR!", "GPU is lost", "GPU requires reset", "Unknown Error")
"""Texts in place of a value that the driver could not read (nvidia-smi(1), "Unit Attributes", return code 15)."""

IDLE = "gpu_idle"
"""The one reason for low clocks that is none to worry about, beside what somebody has set."""

_ADDRESS = re.compile(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-7]))?\Z")
_NVLINK_GPU = re.compile(r"GPU (\d+):.*?(?:UUID: ([^)\s]+)\))?\s*$")
_NVLINK_LINE = re.compile(r"\s+Link (\d+): (.*?)\s*$")


def pci_address(text: str) -> str:
    """Format a PCI address as sysfs does, ``0000:c1:00.0``; other text stays as it is.

    nvidia-smi writes eight digits of the domain, and the kernel's log no function.
    """
    found = _ADDRESS.match(text.strip())
    if not found:
        return text.strip()
    domain, bus, device, function = found.groups()
    return "%04x:%s:%s.%s" % (int(domain or "0", 16), bus.lower(), device.lower(), function or "0")


def leading_number(text: str | None) -> int | None:
    """Parse the number that begins a text, such as ``16x``, ``36 C`` or ``3 bank(s)``; None without one."""
    found = re.match(r"-?\d+", (text or "").strip())
    return int(found.group()) if found else None


def parse_flag(text: str | None) -> bool | None:
    """Parse ``Yes``, ``No`` and what else nvidia-smi says for them; None where it does not know."""
    return {"yes": True, "no": False, "enabled": True, "disabled": False, "active": True, "not active": False,
            "1": True, "0": False}.get((text or "").strip().lower())


def known_text(text: str | None) -> str:
    """Return a text, empty where it says that there is nothing to say."""
    found = (text or "").strip()
    return "" if found in UNKNOWN else found


def parse(text: str) -> dict[str, Any]:
    """Parse the output of ``nvidia-smi -q -x``; raise ValueError for anything else, and for a part of it.

    Returns:
        ``driver``, ``cuda``, ``attached`` (GPUs by its own word; None where it does not say), and ``gpus``.
    """
    begin = text.find("<?xml")
    end = text.rfind("</nvidia_smi_log>")
    if begin < 0 or end < 0:
        words = " ".join(text.split())[:120]
        raise ValueError("it is not the XML that nvidia-smi prints: %s" % (repr(words) if words else "it is empty"))
    try:
        # Warnings, such as those about a corrupted infoROM, may stand around it.
        log = ElementTree.fromstring(text[begin:end + len("</nvidia_smi_log>")])
    except ElementTree.ParseError as error:
        raise ValueError("its XML cannot be read: %s" % error) from error
    return {
        "driver": known_text(log.findtext("driver_version")), "cuda": known_text(log.findtext("cuda_version")),
        "attached": leading_number(log.findtext("attached_gpus")),
        "gpus": [_parse_gpu(index, element) for index, element in enumerate(log.findall("gpu"))],
    }


def _parse_gpu(index: int, gpu: ElementTree.Element) -> Facts:
    """Parse one GPU."""

    def text(path: str) -> str:
        return known_text(gpu.findtext(path))

    broken = sorted({(element.text or "").strip() for element in gpu.iter()} & set(BROKEN))
    return {
        "index": index, "address": pci_address(gpu.get("id") or text("pci/pci_bus_id")), "name": text("product_name"),
        "uuid": text("uuid"), "serial": text("serial"), "vbios": text("vbios_version"),
        "inforom": text("inforom_version/img_version"), "broken": broken[0] if broken else "",
        "persistence": parse_flag(gpu.findtext("persistence_mode")),
        "mig": parse_flag(gpu.findtext("mig_mode/current_mig")),
        "compute_mode": text("compute_mode"), "ecc": parse_flag(gpu.findtext("ecc_mode/current_ecc")),
        "ecc_pending": parse_flag(gpu.findtext("ecc_mode/pending_ecc")),
        "errors": {period: _parse_errors(gpu.find("ecc_errors/" + period)) for period in ("volatile", "aggregate")},
        "sram_threshold_exceeded": parse_flag(gpu.findtext("ecc_errors/aggregate/sram_threshold_exceeded")),
        "repair_pending": [
            kind for kind in ("channel", "tpc") if parse_flag(gpu.findtext("ecc_errors/%s_repair_pending" % kind))
        ],
        "unrepairable_memory": parse_flag(gpu.findtext("ecc_errors/unrepairable_memory")),
        "retired": _parse_retired(gpu.find("retired_pages")), "remapped": _parse_remapped(gpu.find("remapped_rows")),
        "pcie": _parse_pcie(gpu.find("pci")), "throttled": _parse_throttled(gpu),
        "temperature": leading_number(gpu.findtext("temperature/gpu_temp")),
        "memory_temperature": leading_number(gpu.findtext("temperature/memory_temp")),
        "recovery_action": _parse_recovery(gpu),
        "fabric_state": text("fabric/state"), "fabric_status": text("fabric/status"),
        "processes": len(gpu.findall("processes/process_info")), "nvlinks": [],
    }


def _parse_errors(period: ElementTree.Element | None) -> dict[str, int | None]:
    """Parse counts of one period: errors in SRAM (caches, registers) and DRAM, corrected and not."""
    if period is None:
        period = ElementTree.Element("none")
    bits = {name: period.find(name) for name in ("single_bit", "double_bit")}
    if any(bit is not None for bit in bits.values()):
        found: dict[str, int | None] = {}
        for kind, bit in (("corrected", bits["single_bit"]), ("uncorrected", bits["double_bit"])):
            counts = {} if bit is None else {element.tag: leading_number(element.text) for element in bit}
            memory, total = counts.pop("device_memory", None), counts.pop("total", None)
            found["dram_" + kind] = memory
            found["sram_" + kind] = total - (memory or 0) if total is not None else _sum_known(counts.values())
        return found
    uncorrected = ("sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded")
    return {
        "sram_corrected": leading_number(period.findtext("sram_correctable")),
        "sram_uncorrected": _sum_known(leading_number(period.findtext(name)) for name in uncorrected),
        "dram_corrected": leading_number(period.findtext("dram_correctable")),
        "dram_uncorrected": leading_number(period.findtext("dram_uncorrectable")),
    }


def _sum_known(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _parse_retired(pages: ElementTree.Element | None) -> Facts | None:
    """Parse retired pages; None on GPUs that remap rows instead (Ampere and later)."""
    if pages is None:
        return None
    single = leading_number(pages.findtext("multiple_single_bit_retirement/retired_count"))
    double = leading_number(pages.findtext("double_bit_retirement/retired_count"))
    pending = parse_flag(pages.findtext("pending_retirement"))
    if pending is None:
        pending = parse_flag(pages.findtext("pending_blacklist"))
    found = {"single_bit": single, "double_bit": double, "pending": pending}
    return None if set(found.values()) == {None} else found


def _parse_remapped(rows: ElementTree.Element | None) -> Facts | None:
    """Parse remapped rows; None on GPUs that cannot do that."""
    if rows is None or rows.find("remapped_row_corr") is None:
        return None
    return {
        "correctable": leading_number(rows.findtext("remapped_row_corr")),
        "uncorrectable": leading_number(rows.findtext("remapped_row_unc")),
        "pending": parse_flag(rows.findtext("remapped_row_pending")),
        "failure": parse_flag(rows.findtext("remapped_row_failure")),
    }


def _parse_pcie(pci: ElementTree.Element | None) -> dict[str, int | None]:
    """Parse the link to the host; the current generation is lower on an idle GPU."""
    paths = {
        "width": "pci_gpu_link_info/link_widths/current_link_width",
        "width_max": "pci_gpu_link_info/link_widths/max_link_width",
        "generation": "pci_gpu_link_info/pcie_gen/current_link_gen",
        "generation_max": "pci_gpu_link_info/pcie_gen/max_link_gen", "replays": "replay_counter",
    }
    return {name: leading_number(pci.findtext(path)) if pci is not None else None for name, path in paths.items()}


def _parse_throttled(gpu: ElementTree.Element) -> list[str]:
    """List active reasons for lower clocks, without the prefix that has changed; idleness is none."""
    found = []
    for old in ("event", "throttle"):
        for element in gpu.findall("clocks_%s_reasons/*" % old):
            name = element.tag.replace("clocks_%s_reason_" % old, "")
            if parse_flag(element.text) and name != IDLE:
                found.append(name)
    return found


def _parse_recovery(gpu: ElementTree.Element) -> str:
    """Parse what the driver wants done; before 565 that is ``Reset``, where it says that much."""
    if parse_flag(gpu.findtext("gpu_reset_status/reset_required")):
        return "Reset"
    if parse_flag(gpu.findtext("gpu_reset_status/drain_and_reset_recommended")):
        return "Drain and Reset"
    return known_text(gpu.findtext("gpu_recovery_action"))


# --- NVLink ----------------------------------------------------------------------------------------------------------


def _lines_by_gpu(text: str) -> Iterable[tuple[str, int, str]]:
    """Split into UUID of the GPU (its number without one), number of the link and the text of it."""
    gpu = ""
    for line in text.splitlines():
        header = _NVLINK_GPU.match(line)
        found = _NVLINK_LINE.match(line)
        if header:
            gpu = header.group(2) or header.group(1)
        elif found and gpu:
            yield gpu, int(found.group(1)), found.group(2)


def parse_nvlink_speeds(text: str) -> dict[str, dict[int, float | None]]:
    """Parse ``nvidia-smi nvlink -s``: GPU -> link -> GB/s in one direction, None where the link is not up."""
    links: dict[str, dict[int, float | None]] = {}
    for gpu, link, said in _lines_by_gpu(text):
        speed = re.match(r"(\d+(?:\.\d+)?) GB/s", said)
        links.setdefault(gpu, {})[link] = float(speed.group(1)) if speed else None
    return links


def parse_nvlink_errors(text: str) -> dict[str, dict[int, dict[str, int]]]:
    """Parse ``nvidia-smi nvlink -e``: GPU -> link -> name -> count, as ``Replay``; of any generation."""
    links: dict[str, dict[int, dict[str, int]]] = {}
    for gpu, link, said in _lines_by_gpu(text):
        name, _colon, value = said.rpartition(":")
        count = leading_number(value)
        if name and count is not None:
            links.setdefault(gpu, {}).setdefault(link, {})[re.sub(r"\s+[Ee]rrors?$", "", name.strip())] = count
    return links


def join_nvlinks(
    gpus: Sequence[Facts], speeds: Mapping[str, Mapping[int, float | None]],
    errors: Mapping[str, Mapping[int, Mapping[str, int]]],
) -> None:
    """Add the links to the GPUs' facts, as ``nvlinks``: ``link``, ``speed``, ``errors``."""
    for gpu in gpus:
        for key in (gpu["uuid"], str(gpu["index"])):
            if key in speeds or key in errors:
                own, counts = speeds.get(key, {}), errors.get(key, {})
                gpu["nvlinks"] = [
                    {"link": link, "speed": own.get(link), "errors": dict(counts.get(link, {}))}
                    for link in sorted({*own, *counts})
                ]
                break


def parse_remapped_rows(text: str) -> dict[str, Facts]:
    """Parse lines of ``--query-remapped-rows``: address -> the facts of a GPU's ``remapped``."""
    rows = {}
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 5 and _ADDRESS.match(fields[0]):
            rows[pci_address(fields[0])] = {
                "correctable": leading_number(fields[1]), "uncorrectable": leading_number(fields[2]),
                "pending": parse_flag(fields[3]), "failure": parse_flag(fields[4]),
            }
    return rows
