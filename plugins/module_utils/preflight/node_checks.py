# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check a compute node's facts for the builds that will run there. Pure.

Facts come from node_facts.py; what is expected is the site's data (``torchstack_jobs.node``, and the options of the
job); the login node's own facts are the other half of every comparison.
"""

from __future__ import annotations

import re
from typing import Any, Mapping, Sequence

from ..batch.options import TMPDIR_CHARACTERS
from ..core.findings import Finding, error, note, warning
from .gpu_checks import judge_gpus

Facts = Mapping[str, Any]

MIN_TMPDIR_BYTES = 2 << 30
"""Bytes for temporary files below which a warning is given where the site does not say how many it needs."""

MEMORY_TOLERANCE = 0.9
"""The kernel and the firmware keep some of the memory that a node is sold with."""


_SIZE = re.compile(r"(\d+)\s*([KMGT])i?B?\Z", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Parse a size such as ``240G`` to bytes, as batch systems count them: by 1024; raise ValueError for another text.
    """
    found = _SIZE.match(text)
    if not found:
        raise ValueError("%r is no size" % text)
    return int(found.group(1)) << (10 * (1 + "KMGT".index(found.group(2).upper())))


def format_bytes(size: float) -> str:
    """Return bytes for a sentence."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB")):
        if size >= 1 << (10 * power):
            return "%.4g %s" % (size / (1 << (10 * power)), unit)
    return "%d bytes" % size


def judge(facts: Facts, wanted: Facts, login: Facts) -> list[Finding]:
    """Tell whether builds can run on the node.

    Args:
        wanted: ``nonce``, ``prefix``, ``python`` (version of the release's Python as the login node sees it; empty
            where the release brings its own), ``node`` (the site's data), ``options`` (of the job) and
            ``gpus`` (how many of them the job has asked for).
    """
    node, options = wanted["node"], wanted["options"]
    host = facts["machine"]["host"]
    return [
        *judge_shared(facts["shared"], host, wanted),
        *(finding for tried in facts["tmpdirs"] for finding in judge_tmpdir(
            tried, host, node.get("tmpdir_space") or "")),
        *judge_cores(facts["capacity"], host, node.get("cores") or options.get("cores")),
        *judge_memory(facts["capacity"], host, str(node.get("memory") or options.get("memory") or "")),
        *judge_gpus(facts["gpus"], host, node.get("cuda") or "", wanted["gpus"]),
        *judge_modules(facts["modules"], host, node.get("modules") or [], bool(node.get("of_toolchain")),
                       str(node.get("module_system") or "")),
        *judge_programs(facts["programs"], host, wanted["python"]), *judge_machine(facts["machine"], login),
        note("compute.python", "Jobs are supervised by Python %s, %s." % (
            facts["python"]["version"], facts["python"]["executable"])),
    ]


def judge_shared(facts: Facts, host: str, wanted: Facts) -> list[Finding]:
    """Check whether the node sees what the login side writes, and may write where the release lies."""
    check, prefix = "compute.prefix", wanted["prefix"]
    mount = "Choose a root on a file system that both mount, or have the job ask for it (torchstack_jobs.options)."
    if facts["nonce"] != wanted["nonce"]:
        return [error(check, "%s does not see what was written for it on the login side, even after %g seconds." % (
            host, facts["waited"]), mount)]
    if not facts["prefix"]:
        return [error(check, "%s has no directory %s." % (host, prefix), mount)]
    if facts["problem"]:
        return [error(check, "%s cannot write in %s: %s." % (host, prefix, facts["problem"]),
                      "Mount it there for writing, or choose another root.")]
    if facts["waited"] > 1:
        return [warning(check, "%s saw a file of the login side only after %g seconds." % (host, facts["waited"]),
                        "Ask how long the file system keeps what it knows of directories (NFS: actimeo).")]
    return [note(check, "%s reads and writes in %s." % (host, prefix))]


def judge_tmpdir(facts: Facts, host: str, space: str) -> list[Finding]:
    """Check that a directory for temporary files is writable, runs programs, and has the space that the site names."""
    check, path = "compute.tmpdir", facts["path"]
    remedy = "Name another directory as torchstack_jobs.node.tmpdir."
    if facts["problem"]:
        return [error(check, "Temporary files cannot be written on %s, in %s: %s." % (host, path, facts["problem"]),
                      remedy)]
    findings = []
    if len(path) > TMPDIR_CHARACTERS:
        findings.append(error(
            check, "The directory for temporary files, %s, has %d characters: with more than %d, sockets in it have "
            "names that are too long (AF_UNIX)." % (path, len(path), TMPDIR_CHARACTERS), remedy))
    if not facts["runs"]:
        findings.append(error(check, "%s on %s is mounted without the right to run programs (noexec), and builds run "
                              "programs that they compiled there." % (path, host), remedy))
    if facts["socket"]:
        findings.append(warning(
            check, "No socket can be made in %s on %s: %s." % (path, host, facts["socket"]), remedy))
    free, needed = facts["free"], parse_size(space) if space else MIN_TMPDIR_BYTES
    if free < needed:
        say = error if space else warning
        findings.append(say(check, "%s on %s has %s free, and %s is needed." % (
            path, host, format_bytes(free), format_bytes(needed)), remedy))
    return findings or [note(check, "Temporary files go to %s, with %s free." % (path, format_bytes(free)))]


def judge_cores(facts: Facts, host: str, wanted: int | None) -> list[Finding]:
    """Check whether the job may use the cores that the site's data speaks of."""
    check, cores = "compute.cores", facts["cores"]
    text = "A job may use %g of the %s processors of %s" % (cores, facts["machine_cores"], host)
    if wanted and cores < int(wanted):
        return [error(check, "%s, and %d are expected." % (text, int(wanted)),
                      "Ask for them as torchstack_jobs.options.cores, or correct torchstack_jobs.node.cores.")]
    return [note(check, text + ".")]


def judge_memory(facts: Facts, host: str, wanted: str) -> list[Finding]:
    """Check whether the job may use the memory that the site's data speaks of."""
    check, memory = "compute.memory", facts["memory"]
    if memory is None:
        return [note(check, "How much memory a job may use on %s is not known." % host)]
    text = "A job may use %s of memory on %s" % (format_bytes(memory), host)
    if wanted and memory < MEMORY_TOLERANCE * parse_size(wanted):
        return [error(check, "%s, and %s are expected." % (text, format_bytes(parse_size(wanted))),
                      "Ask for it as torchstack_jobs.options.memory, or correct torchstack_jobs.node.memory.")]
    return [note(check, text + ".")]


def judge_modules(
    facts: Facts, host: str, names: Sequence[str], of_toolchain: bool = False, system: str = ""
) -> list[Finding]:
    """Check whether the modules of the site's nodes, or of the release's toolchain, load in a plain shell."""
    check = "compute.modules"
    where, init = "torchstack_jobs.node.modules", "torchstack_jobs.node.module_init"
    place = "name the directory in node.module_init (module use)"
    if of_toolchain:
        where, init = "toolchain.modules in the release file", "torchstack_module_init"
        place = "name their directory in torchstack_module_path"
    if facts.get("setup"):
        return [error(check, "toolchain.setup in the release file fails on %s: %s." % (
            host, facts["setup"].rstrip(".")), "Have what it sources installed on compute nodes, at the same place.")]
    if not names:
        return [note(check, "No modules were tried: torchstack_jobs.node.modules names none.")]
    if not facts["command"]:
        example = " there, for example %s" % facts["inits"][0] if facts["inits"] else ""
        return [error(check, "A plain shell on %s has no command module." % host,
                      "Name the file that defines it%s as %s." % (example, init))]
    if system not in ("", facts.get("system")):
        return [error(check, "In a plain shell on %s, module is of %s, and torchstack_module_system is %s." % (
            host, facts.get("system") or "nobody", system), "Name the file that defines that one as %s." % init)]
    if facts["failed"]:
        return [error(check, "The module %s does not load on %s: %s." % (name, host, said.rstrip(".")),
                      "Correct %s, or %s." % (where, place))
                for name, said in facts["failed"].items()]
    return [note(check, "On %s load: %s." % (host, ", ".join(names)))]


def judge_programs(facts: Mapping[str, Facts], host: str, python: str) -> list[Finding]:
    """Check whether the programs that the login side found are there as well."""
    check = "compute.programs"
    findings = [
        error(check, "%s has no %s, which is %s on the login side." % (host, program["command"], name),
              "Have it installed on compute nodes, or name one that is on both.")
        for name, program in facts.items() if not program["path"]]
    found = facts.get("python", {}).get("version", "")
    if python and facts.get("python", {}).get("path") and found != python:
        findings.append(error(
            check, "%s is Python %s on the login side and %s on %s." % (
                facts["python"]["command"], python, found or "does not answer", host),
            "Name a Python as release_python that is the same on both."))
    return findings or ([note(check, "%s has %s." % (host, ", ".join(
        program["command"] for program in facts.values())))] if facts else [])


def judge_machine(facts: Facts, login: Facts) -> list[Finding]:
    """Tell what differs between the two sides; what is built on one of them has to run on the other."""
    check, host = "compute.machine", facts["host"]
    if facts["architecture"] != login["architecture"]:
        return [error(check, "%s is %s, and the login side is %s." % (
            host, facts["architecture"], login["architecture"]), "Run the rollout from a login node of the same kind, "
            "or in a job on a compute node; release_expect.machine: %s then refuses any other machine at once." % (
                facts["architecture"]))]
    findings = []
    if facts["uid"] != login["uid"]:
        findings.append(error(check, "The account has uid %d on %s and %d on the login side." % (
            facts["uid"], host, login["uid"]), "Have the site's staff correct the account."))
    if facts["glibc"] != login["glibc"]:
        findings.append(note(
            check, "glibc is %s on %s and %s on the login side: what is built with the newer one may not run with the "
            "older one." % (facts["glibc"] or "unknown", host, login["glibc"] or "unknown")))
    if facts["system"] != login["system"]:
        findings.append(note(check, "%s runs %s, the login side %s." % (host, facts["system"], login["system"])))
    own, other = set(facts["flags"]), set(login["flags"])
    for more, less, where, lacking in ((own, other, host, "the login side"), (other, own, "the login side", host)):
        if more - less:
            findings.append(note(check, "The processor of %s knows what that of %s does not: %s." % (
                where, lacking, _list_some(sorted(more - less)))))
    return findings or [note(check, "%s is like the login side: %s, glibc %s, the same instruction sets." % (
        host, facts["system"], facts["glibc"]))]


def _list_some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:8])
    return shown + (" and %d more" % (len(names) - 8) if len(names) > 8 else "")
