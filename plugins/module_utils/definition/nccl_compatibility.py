# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check by a table that NCCL, network plugin, libfabric and CUDA go together. Pure.

NCCL and a plugin talk over an interface that both have in several versions, and use the highest one in common. Without
one, NCCL goes on over sockets and says so only in its log. The table is roles/nccl_ofi/vars/compatibility.yml.
"""

from __future__ import annotations

import re
from typing import Any, Iterable, Iterator, Mapping, NamedTuple

from ..core.errors import StackError
from ..core.findings import Finding, error, note, warning

API, LIBFABRIC, CUDA, HWLOC, UNTESTED = "api", "libfabric", "cuda", "hwloc", "untested"
PROBLEMS = (API, LIBFABRIC, CUDA, HWLOC, UNTESTED)
"""What may be wrong, by the names under which a release file accepts it."""

STEP = "compatibility"


class Asked(NamedTuple):
    """What a release file asks for."""

    nccl: str
    """version, as 2.21.5"""
    plugin: str
    """the plugin's name, that of its repository; empty for NCCL alone"""
    plugin_version: str
    """as 1.6.0 or 1.9.1-aws"""
    cuda: str
    """version of the toolkit; empty where the release file does not say"""
    architectures: tuple[str, ...]
    """compute capabilities, as 8.0 or 9.0+PTX"""


class There(NamedTuple):
    """What the machine has."""

    libfabric: str
    """version; empty where there is none"""
    libfabric_prefix: str
    cuda: str
    """version of the toolkit; empty where there is none"""
    cuda_prefix: str
    hwloc: bool
    hwloc_prefix: str
    """empty for the compiler's own directories"""


class Verdict(NamedTuple):
    """What came of it."""

    api: int | None
    """the version of the interface that NCCL and the plugin will use"""
    networks: tuple[str, ...]
    """values of NCCL_NET that choose the plugin"""
    findings: tuple[Finding, ...]


def repository_name(repository: str) -> str:
    """Return the last part of a repository's address, by which a plugin is known."""
    name = repository.rstrip("/").rpartition("/")[2]
    return name[: -len(".git")] if name.endswith(".git") else name


def key(version: str) -> tuple[int, ...]:
    """Parse the numbers that a version begins with: ``1.9.1-aws`` is (1, 9, 1). Raises StackError: there are none."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", version)
    if match is None:
        raise StackError("'%s' is no version." % version, STEP, "Write it as upstream does, such as 2.21.5.")
    return tuple(int(number) for number in match.group(1).split("."))


def older(version: str, than: str) -> bool:
    """Tell whether a version comes before another one; 1.15 and 1.15.0 are the same."""
    one, other = key(version), key(than)
    length = max(len(one), len(other))
    return one + (0,) * (length - len(one)) < other + (0,) * (length - len(other))


def entry_of(known: Mapping[str, Any], version: str) -> Mapping[str, Any] | None:
    """Find the entry of a table for a version; None where the table does not know it."""
    if not older(version, known["until"]):
        return None
    holding = [entry for entry in known["versions"] if not older(version, entry["from"])]
    return holding[-1] if holding else None


def judge(table: Mapping[str, Any], asked: Asked, there: There, accepted: Mapping[str, str]) -> Verdict:
    """Check a combination; ``accepted`` problems have their reasons. Raises StackError: a version is none."""
    nccl = entry_of(table["nccl"], asked.nccl)
    known = table["plugins"].get(asked.plugin) if asked.plugin else None
    plugin = entry_of(known, asked.plugin_version) if known else None
    api = common_api(nccl, plugin)
    absent = list(absence_findings(asked, there))
    found = list(cuda_findings(table, asked, there))
    if asked.plugin:
        found += interface_findings(table, asked, nccl, plugin, api)
        found += requirement_findings(asked, there, plugin)
        found += tested_findings(table, asked, there, plugin)
    networks = tuple(plugin["networks"]) if plugin else ()
    if api is not None:
        found.append(note(API, "NCCL %s and %s %s use version %d of the plugin interface." % (
            asked.nccl, asked.plugin, asked.plugin_version, api)))
    return Verdict(api, networks, (*absent, *_accept(found, accepted)))


def common_api(nccl: Mapping[str, Any] | None, plugin: Mapping[str, Any] | None) -> int | None:
    """Return the highest version of the interface that both have."""
    if nccl is None or plugin is None:
        return None
    lowest, highest = max(nccl["api"][0], plugin["api"][0]), min(nccl["api"][1], plugin["api"][1])
    return highest if lowest <= highest else None


def _accept(found: Iterable[Finding], accepted: Mapping[str, str]) -> Iterator[Finding]:
    """Turn findings that are accepted into notes that say why."""
    for finding in found:
        if not finding.ok and finding.check in accepted:
            reason = accepted[finding.check]
            yield note(finding.check, "%s Accepted by the release file: %s" % (finding.message, reason))
        else:
            yield finding


def _unknown(name: str, version: str, known: Mapping[str, Any] | None) -> Finding:
    reach = "it has no %s at all" % name
    if known:
        reach = "it has %s from %s on, and before %s" % (name, known["versions"][0]["from"], known["until"])
    return error(
        UNTESTED, "Nothing is known of %s %s: the table of the role nccl_ofi ends (%s)." % (name, version, reach),
        "Look into its release notes, add it to nccl_ofi_compatibility, or accept the problem 'untested' with a reason "
        "under nccl.accept.")


def interface_findings(
    table: Mapping[str, Any], asked: Asked, nccl: Mapping[str, Any] | None, plugin: Mapping[str, Any] | None,
    api: int | None,
) -> Iterator[Finding]:
    """Check that NCCL and the plugin have a version of the interface in common."""
    if nccl is None:
        yield _unknown("NCCL", asked.nccl, table["nccl"])
    if plugin is None:
        yield _unknown(asked.plugin, asked.plugin_version, table["plugins"].get(asked.plugin))
    if nccl is not None and plugin is not None and api is None:
        yield error(
            API, "NCCL %s looks for versions %d to %d of the plugin interface, and %s %s has %s: NCCL would use "
            "sockets without an error." % (
                asked.nccl, nccl["api"][0], nccl["api"][1], asked.plugin, asked.plugin_version, _range(plugin["api"])),
            "Take %s." % " or ".join(_remedies(table, asked, nccl, plugin)))


def _range(api: list[int]) -> str:
    return "only %d" % api[0] if api[0] == api[1] else "%d to %d" % (api[0], api[1])


def _remedies(
    table: Mapping[str, Any], asked: Asked, nccl: Mapping[str, Any], plugin: Mapping[str, Any]
) -> Iterator[str]:
    """Find versions that would have an interface in common with the other one."""
    plugins = [one["from"] for one in table["plugins"][asked.plugin]["versions"] if common_api(nccl, one) is not None]
    if plugins:
        yield "%s %s or newer" % (asked.plugin, plugins[0])
    nccls = table["nccl"]["versions"]
    fitting = [place for place, one in enumerate(nccls) if common_api(one, plugin) is not None]
    if fitting and fitting[-1] + 1 < len(nccls):
        yield "an NCCL older than %s" % nccls[fitting[-1] + 1]["from"]


def absence_findings(asked: Asked, there: There) -> Iterator[Finding]:
    """Find what is not there at all, which no reason makes up for."""
    if not there.cuda:
        yield error(
            CUDA, "There is no CUDA toolkit in '%s': no bin/nvcc there says a version." % there.cuda_prefix,
            "Correct cuda.prefix in the release file.")
    if asked.plugin and not there.libfabric:
        yield error(
            LIBFABRIC, "There is no libfabric in '%s': neither libfabric.pc, nor fi_info, nor rdma/fabric.h there says "
            "a version." % there.libfabric_prefix, "Correct nccl.plugin.libfabric in the release file.")


def requirement_findings(asked: Asked, there: There, plugin: Mapping[str, Any] | None) -> Iterator[Finding]:
    """Check that the machine has what the plugin needs."""
    minimum = plugin["libfabric"] if plugin else ""
    if there.libfabric and minimum and older(there.libfabric, minimum):
        yield error(
            LIBFABRIC, "%s %s is documented to need libfabric %s or newer, and %s has %s. Its configure would not "
            "notice; it fails or hangs later." % (
                asked.plugin, asked.plugin_version, minimum, there.libfabric_prefix, there.libfabric),
            "Take an older plugin or a newer libfabric, or accept the problem 'libfabric' with a reason under "
            "nccl.accept.")
    if plugin and plugin["hwloc"] and not there.hwloc:
        yield error(
            HWLOC, "%s %s needs hwloc, and %s." % (
                asked.plugin, asked.plugin_version,
                "%s has no include/hwloc.h" % there.hwloc_prefix if there.hwloc_prefix
                else "the compiler's own directories have no hwloc.h"),
            "Give its prefix as nccl.plugin.hwloc in the release file.")


def tested_findings(
    table: Mapping[str, Any], asked: Asked, there: There, plugin: Mapping[str, Any] | None
) -> Iterator[Finding]:
    """Warn where nobody is known to have run this."""
    if plugin is None:
        return
    trio = (asked.nccl, asked.plugin_version, there.libfabric)
    if trio in [(good["nccl"], good["plugin"], good["libfabric"]) for good in table["known_good"]]:
        return
    accept = "Compare speed and results with those of nccl-tests; accept the problem 'untested' to hear no more of it."
    if plugin.get("tested") and older(plugin["tested"], asked.nccl):
        yield warning(
            UNTESTED, "Upstream tested %s %s with NCCL up to %s, not with %s." % (
                asked.plugin, asked.plugin_version, plugin["tested"], asked.nccl), accept)
    if plugin.get("platform"):
        yield warning(
            UNTESTED, "Upstream released %s %s for %s only." % (
                asked.plugin, asked.plugin_version, plugin["platform"]), accept)


def cuda_findings(table: Mapping[str, Any], asked: Asked, there: There) -> Iterator[Finding]:
    """Check that the toolkit is the one asked for, and compiles for the architectures."""
    if not there.cuda:
        return
    if asked.cuda and key(there.cuda)[: len(key(asked.cuda))] != key(asked.cuda):
        yield error(
            CUDA, "CUDA %s is asked for, and %s has %s." % (asked.cuda, there.cuda_prefix, there.cuda),
            "Correct cuda.version or cuda.prefix in the release file, or the modules of the toolchain.")
    for architecture in asked.architectures:
        yield from _architecture_findings(table, architecture, there)


def _architecture_findings(table: Mapping[str, Any], architecture: str, there: There) -> Iterator[Finding]:
    known = table["architectures"].get(architecture.partition("+")[0].rstrip("af"))
    if known is None:
        yield warning(
            UNTESTED, "Nothing is known of architecture %s." % architecture,
            "Add it to nccl_ofi_compatibility, or accept the problem 'untested'.")
    elif older(there.cuda, known[0]):
        yield error(
            CUDA, "CUDA %s does not compile for architecture %s; %s is the first that does." % (
                there.cuda, architecture, known[0]),
            "Correct cuda.architectures in the release file, or take that toolkit.")
    elif known[1] and not older(there.cuda, known[1]):
        yield error(
            CUDA, "CUDA %s does not compile for architecture %s; %s has dropped it." % (
                there.cuda, architecture, known[1]),
            "Correct cuda.architectures in the release file, or take an older toolkit.")
