# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check gathered facts about a machine for a rollout: findings, each with its remedy. Pure.

Facts come from machine_facts.py; what is wanted are the options of the module site_preflight, so that everything in
which sites differ is data. What is said about the root is in root_checks.py.
"""

from __future__ import annotations

import fnmatch
from typing import Any, Mapping, Sequence

from ..core.findings import Finding, error, note, warning
from ..core.interpreter import at_least
from . import mpi
from .compilers import TITLE

Facts = Mapping[str, Any]


def judge_site(facts: Facts, expect: Facts, site: str) -> list[Finding]:
    """Check whether this machine is the site at all, by what it expects of host names, paths and processors."""
    host, missing_paths = facts["host"], facts["missing_paths"]
    globs = expect.get("hostname_globs") or []
    names = (host, host.partition(".")[0])
    reasons = []
    if globs and not any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in globs):
        reasons.append("its host name is not like %s" % " or ".join(globs))
    if missing_paths:
        reasons.append("it has no %s" % " and no ".join(missing_paths))
    title = "the site %s" % site if site else "the site of this inventory"
    if reasons:
        rehearsal = expect.get("rehearsal") or ""
        remedy = "To try the playbook on any machine, run its rehearsal: %s." % rehearsal if rehearsal else (
            "Run it there; the playbook lint looks for mistakes in the site's data on any machine.")
        return [error("site", "%s is not %s: %s." % (host, title, ", and ".join(reasons)), remedy)]
    machine = expect.get("machine") or ""
    if machine and facts["machine"] != machine:
        return [error("site", "%s is %s, and releases of %s are for %s, whose programs do not run here." % (
            host, facts["machine"], title, machine),
            "Run the rollout in a job on a compute node, with launcher: local under torchstack_jobs; docs/how-to/"
            "build-on-compute-nodes.md says how.")]
    return [note("site", "%s passes for %s." % (host, title))]


def judge_account(uid: int, user: str, umask: str) -> list[Finding]:
    """Tell what the running account means for everything else that was found."""
    findings = [note("account", "The rollout runs as %s (uid %d)." % (user, uid)) if uid else note(
        "account", "The rollout runs as root, which may read and write everything, so that permissions that are "
        "wrong for users stay unseen.", "Use the unprivileged account that owns the root.")]
    if umask != "0022":
        findings.append(note("umask", "The caller's umask is %s; every step runs under 0022 all the same." % umask))
    return findings


OPTION = "release_python or base.python"
"""What names the Python that a release is built on: of the site, and of an overlay in the release file."""


def judge_python(facts: Facts, module_python: Facts, wanted: Facts) -> list[Finding]:
    """Check whether the Python that a release is built on will do."""
    minimum = wanted["python_minimum"]
    if facts["problem"]:
        return [error("python", "The Python %s does not answer: %s." % (facts["command"], facts["problem"].rstrip(".")),
                      "Name one that does as %s, or load the module that brings it." % OPTION)]
    findings = []
    pythons = [(facts, OPTION if wanted["python"] else "ansible_python_interpreter")]
    if wanted["python"] and not module_python["problem"]:
        pythons.append((module_python, "ansible_python_interpreter"))
    for python, option in pythons:
        # What runs the modules need not be what the release is built on: for it, the collection's own floor counts.
        needed = minimum if python is facts else wanted["module_python_minimum"]
        if not at_least(python["version"], needed):
            findings.append(error("python.version", "%s is Python %s, and %s is needed." % (
                python["executable"], python["version"], needed), "Name a newer one as %s." % option))
    if "minor" not in facts:
        return findings
    executable, short = facts["executable"], facts["minor"]
    if facts["in_venv"]:
        findings.append(error(
            "python.base", "%s is inside a virtual environment, which a release cannot be built on." % executable,
            "Name its base as %s: %s." % (OPTION, facts["base_executable"])))
    missing = [name for name in ("venv", "ensurepip") if not facts[name]]
    if wanted["python_venv"] and missing:
        findings.append(error(
            "python.venv", "%s lacks %s of its standard library." % (executable, " and ".join(missing)),
            "Install what is missing (python%s-venv on Debian), or name another one as %s." % (short, OPTION)))
    if wanted["python_headers"] and not facts["headers"]:
        findings.append(error(
            "python.headers",
            "%s has no header files: there is no Python.h in %s." % (executable, facts["include_dir"]),
            "Install them (python%s-dev or python%s-devel), or name another one as %s."
            % (short, short.replace(".", ""), OPTION)))
    return findings or [note("python", "Python %s at %s will do." % (facts["version"], executable))]


def judge_compilers(compilers: Mapping[str, Facts], wanted: Sequence[Facts]) -> list[Finding]:
    """Check whether each compiler is there and works."""
    findings = []
    for entry in wanted:
        name, language = entry["name"], TITLE[entry["language"]]
        facts, check = compilers[name], "compiler.%s" % name
        if not facts["path"]:
            if facts["origin"] == "search":
                message = "No compiler for %s was found on PATH: tried %s." % (language, ", ".join(facts["tried"]))
            else:
                where = " in the environment" if facts["origin"] == "environment" else ""
                message = "%s%s is '%s', which is not on PATH." % (name, where, facts["command"])
            findings.append(error(
                check, message, "Load the module that brings it, or give another command for %s." % name))
            continue
        if "compiles" not in facts:
            continue
        said = "%s is '%s' (%s)" % (name, facts["command"], facts["path"])
        what = "%s program%s" % (language, " (%s)" % facts["standard"] if facts["standard"] else "")
        complaint = facts["complaint"].rstrip(".")
        if not facts["compiles"]:
            findings.append(error(
                check, "%s, which cannot compile and link a small %s: %s." % (said, what, complaint),
                "Load a newer compiler, or give another command for %s." % name))
        elif facts["runs"] is False:
            findings.append(error(
                check, "%s, and a small %s that it compiled does not run here: %s." % (said, what, complaint),
                "Load the target of this machine, or set cross when it compiles for another one on purpose."))
        else:
            findings.append(note(check, "%s, which compiles a %s." % (said, what)))
    return findings


def judge_commands(commands: Mapping[str, str]) -> list[Finding]:
    """Check whether the commands that steps call are on PATH."""
    missing = [name for name, path in commands.items() if not path]
    if missing:
        return [error("commands", "Not on PATH: %s." % ", ".join(missing), "Install them or load their modules.")]
    return [note("commands", "On PATH: %s." % ", ".join(commands))] if commands else []


def judge_mpi(facts: Facts) -> list[Finding]:
    """Check whether an MPI is there, whole, and of one piece."""
    check = "mpi"
    if not facts["provider"]:
        return [error(check, "There is no MPI: mpicc is not on PATH, and the wheel is not allowed.",
                      "Load the site's MPI module, name its installation as mpi.prefix, or allow mpi.wheel.")]
    if facts["provider"] == "wheel":
        return [note(check, "MPI comes as a Python wheel.")]
    cc = facts["cc"]
    if not cc:
        return [error(check, "The MPI that was named has no C wrapper: %s is not there." % facts["looked_for"],
                      "Correct mpi.prefix or mpi.cc, or load the module that brings it.")]
    findings = []
    if not facts["header"]:
        findings.append(error(check, "The MPI wrapper %s cannot compile: %s." % (cc, facts["complaint"].rstrip(".")),
                              "Load its module, or install the development package of this MPI."))
    if not facts["cxx"]:
        findings.append(error(
            check, "The MPI of %s has no C++ wrapper: there is no %s beside it, and Horovod is written in C++."
            % (cc, ", ".join(mpi.CXX_WRAPPERS)),
            "Install the C++ wrapper of this MPI, or name another MPI as mpi.prefix, or a wrapper as mpi.cxx."))
    elif facts["library_dirs"] and facts["cxx_library_dirs"] and not (
            set(facts["library_dirs"]) & set(facts["cxx_library_dirs"])):
        findings.append(error(
            check, "%s and %s belong to different MPIs: they link from %s and from %s." % (
                cc, facts["cxx"], facts["library_dirs"][0], facts["cxx_library_dirs"][0]),
            "Name one installation as mpi.prefix, or load one MPI module only."))
    if not facts["launcher"]:
        findings.append(warning(check, "No mpiexec or mpirun was found for the MPI of %s." % cc,
                                "Name the launcher as mpi.launcher."))
    elif not mpi.fits(facts["vendor"], facts["launcher_vendor"]):
        findings.append(warning(
            check, "%s belongs to %s, but %s belongs to %s: every rank would be alone." % (
                facts["launcher"], facts["launcher_vendor"], cc, facts["vendor"]),
            "Name the launcher of %s as mpi.launcher." % facts["vendor"]))
    elif facts.get("launcher_complaint"):
        findings.append(error(
            check, "%s cannot start a process on this machine: %s." % (
                facts["launcher"], facts["launcher_complaint"].rstrip(".")),
            "Install what it lacks, such as an ssh client for Open MPI, or name another MPI as mpi.prefix; where no "
            "mpicc is on PATH, the release brings its own."))
    title = ("%s %s" % (facts["vendor"] or "an unknown MPI", facts["version"])).strip()
    return findings or [note(check, "MPI is %s (%s)." % (title, cc))]


def judge_index(facts: Facts) -> list[Finding]:
    """Check whether pip reaches its package index."""
    check = "index"
    if facts["answers"] is None:
        return [note(check, "Whether pip reaches its package index was not checked: there is no pip to ask.")]
    if not facts["answers"]:
        return [error(check, "pip cannot reach its package index: %s." % facts["complaint"].rstrip("."),
                      "Correct the network or pip's configuration ('pip config list').")]
    return [note(check, "pip reaches its package index.")]


def judge_modules(system: Facts) -> list[Finding]:
    """Tell which module system there is."""
    if system["problem"]:
        return [note("modules", system["problem"])]
    return [note("modules", "Module system: %s %s." % (system["kind"], system["version"] or "of unknown version"))]
