# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a compute node's facts mean for the builds that will run there: findings, each with its remedy. Pure.

Facts come from compute_facts.py; what is expected is the site's data (``torchstack_jobs.node``, and the options of the
job); the login node's own facts are the other half of every comparison.
"""

from __future__ import annotations

import re
from typing import Any, Mapping, Sequence

from ..batch.options import TMPDIR_CHARACTERS
from ..core.findings import Finding, error, note, warning

Facts = Mapping[str, Any]

TMPDIR_LEAST = 2 << 30
"""Bytes for temporary files below which a warning is given where the site does not say how many it needs."""

MEMORY_TOLERANCE = 0.9
"""The kernel and the firmware keep some of the memory that a node is sold with."""

DRIVERS = {10: (440, 33), 11: (450,), 12: (525,), 13: (580,)}
"""The oldest driver for Linux that runs programs of any toolkit of a major version; of 10, those of the last one.

NVIDIA, CUDA Compatibility, "Minor Version Compatibility", tables 1 and 2.
"""

FIRST_MINOR_COMPATIBLE = 11
"""From this major version on, programs of a newer minor version run on the driver of an older one, with limits."""

_SIZE = re.compile(r"(\d+)\s*([KMGT])i?B?\Z", re.IGNORECASE)


def bytes_of(text: str) -> int:
    """``240G`` in bytes, as batch systems count them: by 1024.

    Raises:
        ValueError: it is no such size.
    """
    found = _SIZE.match(text)
    if not found:
        raise ValueError("%r is no size" % text)
    return int(found.group(1)) << (10 * (1 + "KMGT".index(found.group(2).upper())))


def in_words(size: float) -> str:
    """Bytes for a sentence."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB")):
        if size >= 1 << (10 * power):
            return "%.4g %s" % (size / (1 << (10 * power)), unit)
    return "%d bytes" % size


def judge(facts: Facts, wanted: Facts, login: Facts) -> list[Finding]:
    """Whether builds can run on the node.

    Args:
        facts: from ``compute_facts.collect``.
        wanted: ``nonce``, ``prefix``, ``python`` (version of the release's Python as the login node sees it; empty
            where the release brings its own), ``node`` (the site's data) and ``options`` (of the job).
        login: ``machine`` of the login node, from ``compute_facts.machine``.
    """
    node, options = wanted["node"], wanted["options"]
    host = facts["machine"]["host"]
    return [
        *judge_shared(facts["shared"], host, wanted),
        *(finding for tried in facts["tmpdirs"] for finding in judge_tmpdir(
            tried, host, node.get("tmpdir_space") or "")),
        *judge_cores(facts["capacity"], host, node.get("cores") or options.get("cores")),
        *judge_memory(facts["capacity"], host, str(node.get("memory") or options.get("memory") or "")),
        *judge_gpus(facts["gpus"], host, node.get("cuda") or "", int(options.get("gpus") or 0)),
        *judge_modules(facts["modules"], host, node.get("modules") or [], bool(node.get("of_toolchain"))),
        *judge_programs(facts["programs"], host, wanted["python"]),
        *judge_machine(facts["machine"], login),
        note("compute.python", "Jobs are supervised by Python %s, %s." % (
            facts["python"]["version"], facts["python"]["executable"])),
    ]


def judge_shared(facts: Facts, host: str, wanted: Facts) -> list[Finding]:
    """Whether the node sees what the login side writes, and may write where the release lies."""
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
    """Whether temporary files find a place, may be programs, and leave room for the names of sockets.

    Args:
        facts: of the directory.
        host: the node.
        space: how much of it is needed, such as ``20G``; empty where the site does not say.
    """
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
    free, needed = facts["free"], bytes_of(space) if space else TMPDIR_LEAST
    if free < needed:
        say = error if space else warning
        findings.append(say(check, "%s on %s has %s free, and %s is needed." % (
            path, host, in_words(free), in_words(needed)), remedy))
    return findings or [note(check, "Temporary files go to %s, with %s free." % (path, in_words(free)))]


def judge_cores(facts: Facts, host: str, wanted: int | None) -> list[Finding]:
    """Whether the job may use the cores that the site's data speaks of."""
    check, cores = "compute.cores", facts["cores"]
    text = "A job may use %g of the %s processors of %s" % (cores, facts["machine_cores"], host)
    if wanted and cores < int(wanted):
        return [error(check, "%s, and %d are expected." % (text, int(wanted)),
                      "Ask for them as torchstack_jobs.options.cores, or correct torchstack_jobs.node.cores.")]
    return [note(check, text + ".")]


def judge_memory(facts: Facts, host: str, wanted: str) -> list[Finding]:
    """Whether the job may use the memory that the site's data speaks of."""
    check, memory = "compute.memory", facts["memory"]
    if memory is None:
        return [note(check, "How much memory a job may use on %s is not known." % host)]
    text = "A job may use %s of memory on %s" % (in_words(memory), host)
    if wanted and memory < MEMORY_TOLERANCE * bytes_of(wanted):
        return [error(check, "%s, and %s are expected." % (text, in_words(bytes_of(wanted))),
                      "Ask for it as torchstack_jobs.options.memory, or correct torchstack_jobs.node.memory.")]
    return [note(check, text + ".")]


def judge_gpus(facts: Facts, host: str, toolkit: str, expected: int) -> list[Finding]:
    """Whether the GPUs are there, and their driver runs what the toolkit makes.

    Args:
        facts: of the GPUs.
        host: the node.
        toolkit: version of CUDA, such as ``12.4``; empty where the site names none.
        expected: GPUs that the job asks for.
    """
    check = "compute.gpus"
    if not toolkit and not expected:
        return [note(check, "GPUs and their driver were not checked: the site's data speaks of none.")]
    if facts["cuda"] is None and not facts["driver"]:
        text = "%s has no driver of NVIDIA%s" % (host, _because(facts["problem"]))
        if toolkit:
            return [error(check, text + ".",
                          "Ask for a node with GPUs (torchstack_jobs.options), or take node.cuda out.")]
        return [warning(check, text + "; its GPUs were not looked at.",
                        "Name the toolkit as torchstack_jobs.node.cuda, unless the GPUs are another maker's.")]
    findings = []
    if facts["problem"]:
        findings.append(error(check, "The driver on %s is not usable: %s." % (host, facts["problem"]),
                              "Have the site's staff look at that node, or ask for another one."))
    count = facts["count"]
    if expected and count is not None and count < expected:
        findings.append(error(check, "A job sees %d GPUs on %s, and asks for %d." % (count, host, expected),
                              "Correct torchstack_jobs.options, where the batch system wants other words for them."))
    return findings + (judge_driver(facts, host, toolkit) if toolkit else []) or [
        note(check, "%s has %s." % (host, _gpus_in_words(facts)))]


def judge_driver(facts: Facts, host: str, toolkit: str) -> list[Finding]:
    """Whether a driver runs the programs of a CUDA toolkit."""
    check = "compute.driver"
    major, minor = (int(part) for part in toolkit.split(".")[:2])
    driver = "the driver %s on %s" % (facts["driver"] or "of unknown version", host)
    remedy = "Build with an older toolkit, have the driver renewed, or load NVIDIA's forward compatibility package."
    if facts["cuda"] is not None:
        speaks = (facts["cuda"] // 1000, facts["cuda"] % 1000 // 10)
        what = "%s speaks CUDA %d.%d" % (driver[0].upper() + driver[1:], *speaks)
        if speaks >= (major, minor):
            return [note(check, "%s, which runs programs of CUDA %s." % (what, toolkit))]
        if speaks[0] == major >= FIRST_MINOR_COMPATIBLE:
            return [warning(
                check, "%s, and the toolkit is %s: programs run, but the driver cannot compile the toolkit's PTX for a "
                "GPU that they were not built for." % (what, toolkit),
                "Name every architecture of the site's GPUs in the build (TORCH_CUDA_ARCH_LIST).")]
        return [error(check, "%s, which does not run programs of CUDA %s." % (what, toolkit), remedy)]
    oldest = DRIVERS.get(major)
    found = tuple(int(part) for part in facts["driver"].split(".") if part.isdigit())
    if not oldest or not found:
        return [note(check, "It is not known whether %s runs programs of CUDA %s." % (driver, toolkit))]
    if found < oldest:
        return [error(check, "%s does not run programs of CUDA %s, which needs %s or newer." % (
            driver[0].upper() + driver[1:], toolkit, ".".join(map(str, oldest))), remedy)]
    return [note(check, "%s runs programs of CUDA %d." % (driver[0].upper() + driver[1:], major))]


def _because(reason: str) -> str:
    return ": " + reason if reason else ""


def _gpus_in_words(facts: Facts) -> str:
    names = list(dict.fromkeys(facts["names"]))
    count = "GPUs" if facts["count"] is None else "%d GPU%s" % (facts["count"], "" if facts["count"] == 1 else "s")
    return count + (" (%s)" % ", ".join(names) if names else "")


def judge_modules(facts: Facts, host: str, names: Sequence[str], of_toolchain: bool = False) -> list[Finding]:
    """Whether the modules load in a plain shell of the node.

    Args:
        facts: of the modules.
        host: the node.
        names: the modules.
        of_toolchain: whether they are those of the release's toolchain, and not the site's own list for its nodes.
    """
    check = "compute.modules"
    where, init = "torchstack_jobs.node.modules", "torchstack_jobs.node.module_init"
    place = "name the directory in node.module_init (module use)"
    if of_toolchain:
        where, init = "toolchain.modules in the release file", "torchstack_module_init"
        place = "name their directory in torchstack_module_path"
    if not names:
        return [note(check, "No modules were tried: torchstack_jobs.node.modules names none.")]
    if not facts["command"]:
        example = " there, for example %s" % facts["inits"][0] if facts["inits"] else ""
        return [error(check, "A plain shell on %s has no command module." % host,
                      "Name the file that defines it%s as %s." % (example, init))]
    if facts["failed"]:
        return [error(check, "The module %s does not load on %s: %s." % (name, host, said.rstrip(".")),
                      "Correct %s, or %s." % (where, place))
                for name, said in facts["failed"].items()]
    return [note(check, "On %s load: %s." % (host, ", ".join(names)))]


def judge_programs(facts: Mapping[str, Facts], host: str, python: str) -> list[Finding]:
    """Whether the programs that the login side found are there as well."""
    check = "compute.programs"
    findings = []
    for name, program in facts.items():
        if not program["path"]:
            findings.append(error(check, "%s has no %s, which is %s on the login side." % (
                host, program["command"], name), "Have it installed on compute nodes, or name one that is on both."))
    found = facts.get("python", {}).get("version", "")
    if python and facts.get("python", {}).get("path") and found != python:
        findings.append(error(
            check, "%s is Python %s on the login side and %s on %s." % (
                facts["python"]["command"], python, found or "does not answer", host),
            "Name a Python as release_python that is the same on both."))
    return findings or ([note(check, "%s has %s." % (host, ", ".join(
        program["command"] for program in facts.values())))] if facts else [])


def judge_machine(facts: Facts, login: Facts) -> list[Finding]:
    """What differs between the two sides; what is built on one of them has to run on the other."""
    check, host = "compute.machine", facts["host"]
    if facts["architecture"] != login["architecture"]:
        return [error(check, "%s is %s, and the login side is %s." % (
            host, facts["architecture"], login["architecture"]), "Run the rollout from a login node of the same kind.")]
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
                where, lacking, _some(sorted(more - less)))))
    return findings or [note(check, "%s is like the login side: %s, glibc %s, the same instruction sets." % (
        host, facts["system"], facts["glibc"]))]


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:8])
    return shown + (" and %d more" % (len(names) - 8) if len(names) > 8 else "")
