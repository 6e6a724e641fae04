# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read what the kernel of a node says of PCI devices, network adapters and errors. Facts only.

Runs on compute nodes with the system's own Python, 3.6 or later, without this collection around it. Files are those of
the kernel's ABI documentation (sysfs-bus-pci, sysfs-class-infiniband, sysfs-class-net), of dev-kmsg, and for Slingshot
those that HPE's `cxi_stat` reads.
"""

import errno
import os
import re
from typing import Any, Dict, Iterable, List, Optional

from .run_programs import list_names, read_text, run

PCI_CLASSES = ("0x02", "0x03", "0x12", "0x0680", "0x0b40")
"""Network, display, accelerators, other bridges (switches of NVLink) and co-processors."""

PCI_FILES = (
    "vendor", "device", "class", "numa_node", "current_link_speed", "current_link_width", "max_link_speed",
    "max_link_width", "aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal",
)

CXI_FILES = {
    "link": ("port/link", "port/0/link/state"), "speed": ("port/speed", "port/0/link/speed"),
    "firmware": ("uc/qspi_blob_version",), "pcie_width": ("current_link_width",),
    "pcie_speed": ("properties/current_esm_link_speed", "current_link_speed"),
}
"""Below /sys/class/cxi/<name>/device: of the first generation of the adapter, then of the second."""

CXI_COUNTERS = ("hni_pcs_uncorrected_cw", "hni_pcs_corrected_cw", "hni_pcs_good_cw")

NET_FILES = ("operstate", "speed", "mtu", "type", "carrier_changes")
NET_COUNTERS = ("rx_errors", "tx_errors", "rx_crc_errors", "rx_dropped", "tx_dropped")

LOG_WORDS = re.compile(
    r"NVRM|Xid|nvidia|nvswitch|nvlink|amdgpu|limited by|AER|pcieport|PCIe|EDAC|mce:|Hardware Error|Out of memory"
    r"|oom-kill|Lustre|LNet|GPFS|nfs: server|mlx[45]|cxi|hsn\d|ib\d|[Ll]ink (?:is )?[Dd]own|lost carrier"
    r"|blocked for more than|soft lockup|hard LOCKUP|I/O error|throttled|fallen off"
)
"""Lines that are kept of the log: of hardware, drivers and file systems."""

LOG_SECRETS = re.compile(r"^(?:Kernel )?[Cc]ommand line:")
"""Lines that are not kept: a kernel's parameters match :data:`LOG_WORDS`, and may hold secrets."""

MAX_LOG_LINES = 2000
"""Limit of the lines that are kept: the last ones."""


def read_devices(top: str = "/sys/bus/pci/devices") -> List[Dict[str, Any]]:
    """Read the devices on the PCI bus that a release may use."""
    found = []
    for address in list_names(top):
        path = os.path.join(top, address)
        if (read_text(os.path.join(path, "class")) or "").startswith(PCI_CLASSES):
            facts = _read_files(path, PCI_FILES)
            facts.update(address=address, driver=_link_target(os.path.join(path, "driver")))
            found.append(facts)
    return found


def _read_files(directory: str, names: Iterable[str]) -> Dict[str, Any]:
    return {name: read_text(os.path.join(directory, name)) for name in names}


def _link_target(link: str) -> str:
    try:
        return os.path.basename(os.readlink(link))
    except OSError:
        return ""


def read_driver(top: str = "/proc/driver/nvidia") -> Dict[str, Any]:
    """Read NVIDIA's driver: ``version`` (its text, None without driver), ``gpus`` (address -> its text)."""
    gpus = os.path.join(top, "gpus")
    return {
        "version": read_text(os.path.join(top, "version")),
        "gpus": {address: read_text(os.path.join(gpus, address, "information")) for address in list_names(gpus)},
    }


def module_versions(
    top: str = "/sys/module", names: Any = ("nvidia", "amdgpu", "mlx5_core", "cxi_core")
) -> Dict[str, Any]:
    """Read the versions of loaded drivers, None where one does not say."""
    loaded = [name for name in names if os.path.isdir(os.path.join(top, name))]
    return {name: read_text(os.path.join(top, name, "version")) for name in loaded}


def read_fabric(top: str = "/sys/class") -> Dict[str, Any]:
    """Read network adapters: ``infiniband`` (ports), ``cxi`` (Slingshot), ``net`` (with a device)."""
    kinds = {"infiniband": _read_infiniband, "cxi": _read_cxi, "net": _read_net}
    return {name: read(os.path.join(top, name)) for name, read in kinds.items()}


def _read_infiniband(top: str) -> List[Dict[str, Any]]:
    found = []
    for device in list_names(top):
        own = os.path.join(top, device)
        about = _read_files(own, ("fw_ver", "hca_type", "board_id"))
        for port in list_names(os.path.join(own, "ports")):
            path = os.path.join(own, "ports", port)
            counted = os.path.join(path, "counters")
            found.append(dict(about, device=device, port=port, counters=_read_files(counted, list_names(counted)),
                              **_read_files(path, ("state", "phys_state", "rate", "link_layer"))))
    return found


def _read_cxi(top: str) -> List[Dict[str, Any]]:
    found = []
    for device in list_names(top):
        own = os.path.join(top, device, "device")
        facts = {"device": device, "address": os.path.basename(os.path.realpath(own))}  # type: Dict[str, Any]
        for name, files in CXI_FILES.items():
            texts = [text for text in (read_text(os.path.join(own, path)) for path in files) if text]
            # "Absent" and "Disabled" stand for a kind of PCIe link that the platform does not have.
            facts[name] = next((text for text in texts if text not in ("Absent", "Disabled")), None)
        facts["counters"] = _read_files(os.path.join(own, "telemetry"), CXI_COUNTERS)
        found.append(facts)
    return found


def _read_net(top: str) -> List[Dict[str, Any]]:
    found = []
    for name in list_names(top):
        own = os.path.join(top, name)
        if os.path.exists(os.path.join(own, "device")):
            found.append(dict(
                _read_files(own, NET_FILES), name=name, driver=_link_target(os.path.join(own, "device", "driver")),
                counters=_read_files(os.path.join(own, "statistics"), NET_COUNTERS)))
    return found


# --- the kernel's log ------------------------------------------------------------------------------------------------


def read_log(seconds: float, patterns: Any = (), kmsg: str = "/dev/kmsg", path: Optional[str] = None) -> Dict[str, Any]:
    """Read the kernel's log since the boot, from /dev/kmsg, else by dmesg or journalctl.

    Returns:
        ``source`` (empty where nobody lets us read it), ``tried`` (source -> why not), ``lines`` ([seconds since the
        boot, text]), ``total`` (lines in all), ``left_out`` (of those that matter), ``since`` (of the first line).
    """
    tried = {}  # type: Dict[str, str]
    wanted = [LOG_WORDS] + [re.compile(pattern) for pattern in patterns]
    lines = _read_kmsg(kmsg, tried)
    source = "/dev/kmsg"
    for words in (["dmesg"], ["journalctl", "-k", "-b", "-q", "--no-pager", "-o", "short-monotonic"]):
        if lines is None:
            source = words[0]
            asked = run(words, seconds, path)
            lines = parse_log(asked["output"])
            if asked["status"] != "ok" or not lines:
                tried[source] = asked["error"].splitlines()[-1] if asked["error"] else (
                    asked["status"] if asked["status"] != "ok" else "it shows nothing to this account")
                lines = None
    if lines is None:
        return {"source": "", "tried": tried, "lines": [], "total": 0, "left_out": 0, "since": None}
    kept = [line for line in lines if any(pattern.search(line[1]) for pattern in wanted)
            and not LOG_SECRETS.search(line[1])]
    return {
        "source": source, "tried": tried, "lines": kept[-MAX_LOG_LINES:], "total": len(lines),
        "left_out": max(0, len(kept) - MAX_LOG_LINES), "since": lines[0][0] if lines else None,
    }


def _read_kmsg(path: str, tried: Dict[str, str]) -> Optional[List[List[Any]]]:
    """Read records of the device: priority, number, microseconds and flags before a semicolon, then text."""
    lines = []  # type: List[List[Any]]
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        tried["/dev/kmsg"] = error.strerror or str(error)
        return None
    try:
        while True:
            try:
                record = os.read(descriptor, 65536)
            except OSError as error:
                if error.errno == errno.EPIPE:
                    # That record was overwritten while this was reading; the next one is there.
                    continue
                if error.errno == errno.EAGAIN:
                    break
                tried["/dev/kmsg"] = error.strerror or str(error)
                return None
            if not record:
                break
            head, _semicolon, text = record.decode("utf-8", "replace").partition(";")
            fields = head.split(",")
            if len(fields) > 2 and fields[2].isdigit():
                lines.append([int(fields[2]) / 1e6, text.splitlines()[0] if text else ""])
    finally:
        os.close(descriptor)
    if not lines:
        tried["/dev/kmsg"] = "it is empty"
    return lines or None


def parse_log(text: str) -> List[List[Any]]:
    """Parse dmesg(1) or journalctl's ``short-monotonic``, as [seconds since the boot, text]."""
    lines = []  # type: List[List[Any]]
    for line in text.splitlines():
        found = re.match(r"\[\s*(\d+\.\d+)\](?:\[[^\]]*\])?\s?(?:\S+ kernel: )?(.*)", line)
        if found:
            lines.append([float(found.group(1)), found.group(2)])
    return lines
