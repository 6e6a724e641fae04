# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the kernel of a node says of its devices and of what went wrong: PCI, network adapters, its log. Facts only.

Runs on compute nodes with the system's own Python, 3.6 or later, without this collection around it. Files are those of
the kernel's ABI documentation (sysfs-bus-pci, sysfs-class-infiniband, sysfs-class-net), of dev-kmsg, and for Slingshot
those that HPE's `cxi_stat` reads.
"""

import errno
import os
import re
from typing import Any, Dict, List, Optional

from .run_programs import listed, read, run

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
"""What is kept of the log: of the hardware, of drivers and file systems. It travels to the login side and is kept."""

LOG_SECRETS = re.compile(r"^(?:Kernel )?[Cc]ommand line:")
"""What is not: a kernel's parameters name half of these words, and may hold what is nobody's business."""

LOG_LINES = 2000
"""Of those, the last ones."""


def devices(top: str = "/sys/bus/pci/devices") -> List[Dict[str, Any]]:
    """The devices on the PCI bus that a release may meet."""
    found = []
    for address in listed(top):
        path = os.path.join(top, address)
        if (read(os.path.join(path, "class")) or "").startswith(PCI_CLASSES):
            facts = {name: read(os.path.join(path, name)) for name in PCI_FILES}  # type: Dict[str, Any]
            facts.update(address=address, driver=_target(os.path.join(path, "driver")))
            found.append(facts)
    return found


def _target(link: str) -> str:
    try:
        return os.path.basename(os.readlink(link))
    except OSError:
        return ""


def driver(top: str = "/proc/driver/nvidia") -> Dict[str, Any]:
    """NVIDIA's driver: ``version`` (its text, None without driver), and ``gpus`` (address -> its text)."""
    gpus = os.path.join(top, "gpus")
    return {
        "version": read(os.path.join(top, "version")),
        "gpus": {address: read(os.path.join(gpus, address, "information")) for address in listed(gpus)},
    }


def modules(top: str = "/sys/module", names: Any = ("nvidia", "amdgpu", "mlx5_core", "cxi_core")) -> Dict[str, Any]:
    """Versions of drivers that are loaded, None where one does not say."""
    return {name: read(os.path.join(top, name, "version")) for name in names if os.path.isdir(os.path.join(top, name))}


def fabric(top: str = "/sys/class") -> Dict[str, Any]:
    """Network adapters: ``infiniband`` (ports), ``cxi`` (Slingshot), ``net`` (interfaces with a device behind them)."""
    return {
        "infiniband": _infiniband(os.path.join(top, "infiniband")),
        "cxi": _cxi(os.path.join(top, "cxi")),
        "net": _net(os.path.join(top, "net")),
    }


def _infiniband(top: str) -> List[Dict[str, Any]]:
    found = []
    for device in listed(top):
        own = os.path.join(top, device)
        about = {name: read(os.path.join(own, name)) for name in ("fw_ver", "hca_type", "board_id")}
        for port in listed(os.path.join(own, "ports")):
            path = os.path.join(own, "ports", port)
            facts = {name: read(os.path.join(path, name)) for name in ("state", "phys_state", "rate", "link_layer")}
            own_counters = os.path.join(path, "counters")
            counters = {name: read(os.path.join(own_counters, name)) for name in listed(own_counters)}
            found.append(dict(about, device=device, port=port, counters=counters, **facts))
    return found


def _cxi(top: str) -> List[Dict[str, Any]]:
    found = []
    for device in listed(top):
        own = os.path.join(top, device, "device")
        facts = {"device": device, "address": os.path.basename(os.path.realpath(own))}  # type: Dict[str, Any]
        for name, files in CXI_FILES.items():
            texts = [text for text in (read(os.path.join(own, path)) for path in files) if text]
            # "Absent" and "Disabled" are said of a kind of PCIe link that the platform does not have.
            facts[name] = next((text for text in texts if text not in ("Absent", "Disabled")), None)
        facts["counters"] = {name: read(os.path.join(own, "telemetry", name)) for name in CXI_COUNTERS}
        found.append(facts)
    return found


def _net(top: str) -> List[Dict[str, Any]]:
    found = []
    for name in listed(top):
        own = os.path.join(top, name)
        if os.path.exists(os.path.join(own, "device")):
            facts = {key: read(os.path.join(own, key)) for key in NET_FILES}  # type: Dict[str, Any]
            counters = {key: read(os.path.join(own, "statistics", key)) for key in NET_COUNTERS}
            driver_name = _target(os.path.join(own, "device", "driver"))
            found.append(dict(facts, name=name, driver=driver_name, counters=counters))
    return found


# --- the kernel's log ------------------------------------------------------------------------------------------------


def log(seconds: float, patterns: Any = (), kmsg: str = "/dev/kmsg", path: Optional[str] = None) -> Dict[str, Any]:
    """The kernel's log since the boot: from /dev/kmsg, else as dmesg or journalctl tell it.

    Args:
        seconds: for each program.
        patterns: regular expressions of what is kept beside :data:`LOG_WORDS`.
        kmsg: the device.
        path: where to look for the programs, instead of PATH and the usual places.

    Returns:
        ``source`` (empty where nobody lets us read it), ``tried`` (source -> why not), ``lines`` ([seconds since the
        boot, text]), ``total`` (lines in all), ``left_out`` (of those that matter), ``since`` (of the first line).
    """
    tried = {}  # type: Dict[str, str]
    wanted = [LOG_WORDS] + [re.compile(pattern) for pattern in patterns]
    lines = _kmsg(kmsg, tried)
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
        "source": source, "tried": tried, "lines": kept[-LOG_LINES:], "total": len(lines),
        "left_out": max(0, len(kept) - LOG_LINES), "since": lines[0][0] if lines else None,
    }


def _kmsg(path: str, tried: Dict[str, str]) -> Optional[List[List[Any]]]:
    """The records of the device: priority, number, microseconds and flags before a semicolon, then the text."""
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
    """Lines of dmesg(1) or of journalctl's ``short-monotonic``, as [seconds since the boot, text]."""
    lines = []  # type: List[List[Any]]
    for line in text.splitlines():
        found = re.match(r"\[\s*(\d+\.\d+)\](?:\[[^\]]*\])?\s?(?:\S+ kernel: )?(.*)", line)
        if found:
            lines.append([float(found.group(1)), found.group(2)])
    return lines
