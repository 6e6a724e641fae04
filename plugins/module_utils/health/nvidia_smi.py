# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What nvidia-smi prints, as facts; of drivers from 450 on. Pure.

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
"""What stands where there is nothing to say."""

BROKEN = ("ERR!", "GPU is lost", "GPU requires reset", "Unknown Error")
"""What stands where the driver could not ask the GPU (nvidia-smi(1), "Unit Attributes" and return codes 15)."""

IDLE = "gpu_idle"
"""The one reason for low clocks that is none to worry about, beside what somebody has set."""

_ADDRESS = re.compile(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-7]))?\Z")
_NVLINK_GPU = re.compile(r"GPU (\d+):.*?(?:UUID: ([^)\s]+)\))?\s*$")
_NVLINK_LINE = re.compile(r"\s+Link (\d+): (.*?)\s*$")


def address(text: str) -> str:
    """A place on the PCI bus as sysfs writes it: ``0000:c1:00.0``; as it is where it is none.

    nvidia-smi writes eight digits of the domain, and the kernel's log no function.
    """
    found = _ADDRESS.match(text.strip())
    if not found:
        return text.strip()
    domain, bus, device, function = found.groups()
    return "%04x:%s:%s.%s" % (int(domain or "0", 16), bus.lower(), device.lower(), function or "0")


def number(text: str | None) -> int | None:
    """The number at the beginning of a text, such as that of ``16x``, ``36 C`` or ``3 bank(s)``; None without one."""
    found = re.match(r"-?\d+", (text or "").strip())
    return int(found.group()) if found else None


def flag(text: str | None) -> bool | None:
    """``Yes`` and ``No``, and what else nvidia-smi says for them; None where it does not know."""
    return {"yes": True, "no": False, "enabled": True, "disabled": False, "active": True, "not active": False,
            "1": True, "0": False}.get((text or "").strip().lower())


def word(text: str | None) -> str:
    """A text, empty where it says that there is nothing to say."""
    found = (text or "").strip()
    return "" if found in UNKNOWN else found


def parse(text: str) -> dict[str, Any]:
    """The output of ``nvidia-smi -q -x``.

    Returns:
        ``driver``, ``cuda``, ``attached`` (how many GPUs there are by its own word; None where it does not say), and
        ``gpus``.

    Raises:
        ValueError: that is no such output, or not all of it.
    """
    begin = text.find("<?xml")
    end = text.rfind("</nvidia_smi_log>")
    if begin < 0 or end < 0:
        raise ValueError("it is not the XML that nvidia-smi prints: %s" % _beginning(text))
    try:
        # Warnings, such as those about a corrupted infoROM, may stand around it.
        log = ElementTree.fromstring(text[begin:end + len("</nvidia_smi_log>")])
    except ElementTree.ParseError as error:
        raise ValueError("its XML cannot be read: %s" % error) from error
    return {
        "driver": word(log.findtext("driver_version")), "cuda": word(log.findtext("cuda_version")),
        "attached": number(log.findtext("attached_gpus")),
        "gpus": [_gpu(index, element) for index, element in enumerate(log.findall("gpu"))],
    }


def _beginning(text: str) -> str:
    words = " ".join(text.split())
    return repr(words[:120]) if words else "it is empty"


def _gpu(index: int, gpu: ElementTree.Element) -> Facts:
    """One GPU."""

    def text(path: str) -> str:
        return word(gpu.findtext(path))

    broken = sorted({(element.text or "").strip() for element in gpu.iter()} & set(BROKEN))
    return {
        "index": index, "address": address(gpu.get("id") or text("pci/pci_bus_id")), "name": text("product_name"),
        "uuid": text("uuid"), "serial": text("serial"), "vbios": text("vbios_version"),
        "inforom": text("inforom_version/img_version"), "broken": broken[0] if broken else "",
        "persistence": flag(gpu.findtext("persistence_mode")), "mig": flag(gpu.findtext("mig_mode/current_mig")),
        "compute_mode": text("compute_mode"), "ecc": flag(gpu.findtext("ecc_mode/current_ecc")),
        "ecc_pending": flag(gpu.findtext("ecc_mode/pending_ecc")),
        "errors": {period: _errors(gpu.find("ecc_errors/" + period)) for period in ("volatile", "aggregate")},
        "sram_threshold_exceeded": flag(gpu.findtext("ecc_errors/aggregate/sram_threshold_exceeded")),
        "repair_pending": [
            kind for kind in ("channel", "tpc") if flag(gpu.findtext("ecc_errors/%s_repair_pending" % kind))
        ],
        "unrepairable_memory": flag(gpu.findtext("ecc_errors/unrepairable_memory")),
        "retired": _retired(gpu.find("retired_pages")), "remapped": _remapped(gpu.find("remapped_rows")),
        "pcie": _pcie(gpu.find("pci")), "throttled": _throttled(gpu),
        "temperature": number(gpu.findtext("temperature/gpu_temp")),
        "memory_temperature": number(gpu.findtext("temperature/memory_temp")),
        "recovery_action": _recovery(gpu), "fabric_state": text("fabric/state"), "fabric_status": text("fabric/status"),
        "processes": len(gpu.findall("processes/process_info")), "nvlinks": [],
    }


def _errors(period: ElementTree.Element | None) -> dict[str, int | None]:
    """Counts of one period: errors in SRAM (caches, registers) and in DRAM, corrected and uncorrected."""
    if period is None:
        period = ElementTree.Element("none")
    bits = {name: period.find(name) for name in ("single_bit", "double_bit")}
    if any(bit is not None for bit in bits.values()):
        found: dict[str, int | None] = {}
        for kind, bit in (("corrected", bits["single_bit"]), ("uncorrected", bits["double_bit"])):
            counts = {} if bit is None else {element.tag: number(element.text) for element in bit}
            memory, total = counts.pop("device_memory", None), counts.pop("total", None)
            found["dram_" + kind] = memory
            found["sram_" + kind] = total - (memory or 0) if total is not None else _total(counts.values())
        return found
    uncorrected = ("sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded")
    return {
        "sram_corrected": number(period.findtext("sram_correctable")),
        "sram_uncorrected": _total(number(period.findtext(name)) for name in uncorrected),
        "dram_corrected": number(period.findtext("dram_correctable")),
        "dram_uncorrected": number(period.findtext("dram_uncorrectable")),
    }


def _total(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _retired(pages: ElementTree.Element | None) -> Facts | None:
    """Pages that were retired; None on GPUs that remap rows instead (Ampere and later)."""
    if pages is None:
        return None
    single = number(pages.findtext("multiple_single_bit_retirement/retired_count"))
    double = number(pages.findtext("double_bit_retirement/retired_count"))
    pending = flag(pages.findtext("pending_retirement"))
    if pending is None:
        pending = flag(pages.findtext("pending_blacklist"))
    if single is None and double is None and pending is None:
        return None
    return {"single_bit": single, "double_bit": double, "pending": pending}


def _remapped(rows: ElementTree.Element | None) -> Facts | None:
    """Rows that were remapped; None on GPUs that cannot do that."""
    if rows is None or rows.find("remapped_row_corr") is None:
        return None
    return {
        "correctable": number(rows.findtext("remapped_row_corr")),
        "uncorrectable": number(rows.findtext("remapped_row_unc")),
        "pending": flag(rows.findtext("remapped_row_pending")),
        "failure": flag(rows.findtext("remapped_row_failure")),
    }


def _pcie(pci: ElementTree.Element | None) -> dict[str, int | None]:
    """The link to the host. The current generation is lower on an idle GPU, and says nothing by itself."""
    paths = {
        "width": "pci_gpu_link_info/link_widths/current_link_width",
        "width_max": "pci_gpu_link_info/link_widths/max_link_width",
        "generation": "pci_gpu_link_info/pcie_gen/current_link_gen",
        "generation_max": "pci_gpu_link_info/pcie_gen/max_link_gen", "replays": "replay_counter",
    }
    return {name: number(pci.findtext(path)) if pci is not None else None for name, path in paths.items()}


def _throttled(gpu: ElementTree.Element) -> list[str]:
    """Names of the reasons for lower clocks that are active, without the prefix that has changed; idleness is none."""
    found = []
    for old in ("event", "throttle"):
        reasons = gpu.find("clocks_%s_reasons" % old)
        for element in reasons if reasons is not None else ():
            name = element.tag.replace("clocks_%s_reason_" % old, "")
            if flag(element.text) and name != IDLE:
                found.append(name)
    return found


def _recovery(gpu: ElementTree.Element) -> str:
    """What the driver wants done to the GPU; of drivers before 565 that is ``Reset``, where they say that much."""
    if flag(gpu.findtext("gpu_reset_status/reset_required")):
        return "Reset"
    if flag(gpu.findtext("gpu_reset_status/drain_and_reset_recommended")):
        return "Drain and Reset"
    return word(gpu.findtext("gpu_recovery_action"))


# --- NVLink ----------------------------------------------------------------------------------------------------------


def _lines_by_gpu(text: str) -> Iterable[tuple[str, int, str]]:
    """UUID of the GPU (its number where it has none), number of the link and what is said of it."""
    gpu = ""
    for line in text.splitlines():
        header = _NVLINK_GPU.match(line)
        found = _NVLINK_LINE.match(line)
        if header:
            gpu = header.group(2) or header.group(1)
        elif found and gpu:
            yield gpu, int(found.group(1)), found.group(2)


def nvlink_speeds(text: str) -> dict[str, dict[int, float | None]]:
    """The output of ``nvidia-smi nvlink -s``: GPU -> link -> GB/s in one direction, None where it is inactive.

    Only a speed counts as a link that is up.
    """
    links: dict[str, dict[int, float | None]] = {}
    for gpu, link, said in _lines_by_gpu(text):
        speed = re.match(r"(\d+(?:\.\d+)?) GB/s", said)
        links.setdefault(gpu, {})[link] = float(speed.group(1)) if speed else None
    return links


def nvlink_errors(text: str) -> dict[str, dict[int, dict[str, int]]]:
    """The output of ``nvidia-smi nvlink -e``: GPU -> link -> name -> count, as ``Replay``; of any generation."""
    links: dict[str, dict[int, dict[str, int]]] = {}
    for gpu, link, said in _lines_by_gpu(text):
        name, _colon, value = said.rpartition(":")
        count = number(value)
        if name and count is not None:
            links.setdefault(gpu, {}).setdefault(link, {})[re.sub(r"\s+[Ee]rrors?$", "", name.strip())] = count
    return links


def join_nvlinks(
    gpus: Sequence[Facts], speeds: Mapping[str, Mapping[int, float | None]],
    errors: Mapping[str, Mapping[int, Mapping[str, int]]],
) -> None:
    """Put the links into the GPUs' facts, as ``nvlinks``: ``link``, ``speed``, ``errors``."""
    for gpu in gpus:
        for key in (gpu["uuid"], str(gpu["index"])):
            if key in speeds or key in errors:
                own, counts = speeds.get(key, {}), errors.get(key, {})
                gpu["nvlinks"] = [
                    {"link": link, "speed": own.get(link), "errors": dict(counts.get(link, {}))}
                    for link in sorted({*own, *counts})
                ]
                break


def remapped_rows(text: str) -> dict[str, Facts]:
    """Lines of ``--query-remapped-rows``: address -> the facts that ``remapped`` of a GPU has."""
    rows = {}
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 5 and _ADDRESS.match(fields[0]):
            rows[address(fields[0])] = {
                "correctable": number(fields[1]), "uncorrectable": number(fields[2]),
                "pending": flag(fields[3]), "failure": flag(fields[4]),
            }
    return rows
