# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The loader's rules of this collection against glibc's own ldd, on every ELF file of this machine and of a release.

There is no exception: order, paths, names, missing libraries and missing symbol versions agree for each file. Files for
another class or processor than the machine's own programs are refused; ldd may ask a second loader, if there is one.
"""

from __future__ import annotations

import functools
import os
import pathlib
import re
import resource
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.elf.glibc import MACHINES
from ansible_collections.hpcml.torchstack.plugins.module_utils.elf.resolver import Loader, System
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify.library_rules import UNOPENED

RELEASE = os.path.join(os.environ.get("TORCHSTACK_TEST_ROOT", os.path.expanduser("~/torchstack-test")), "2026-11-20")
ROOTS = ("/usr/lib", "/usr/bin", RELEASE)
BATCH = 40
THREADS = 2

REFUSALS = ("not a dynamic executable", "error while loading shared libraries")

pytestmark = pytest.mark.skipif(
    shutil.which("ldd") is None or os.uname().machine not in [machine.uname for machine in MACHINES.values()],
    reason="needs ldd on a machine whose rules are known",
)


@functools.lru_cache
def elf_files():
    found = []
    for root in ROOTS:
        for directory, _directories, names in os.walk(os.fsencode(root)):
            for name in sorted(names):
                path = os.path.join(directory, name)
                if os.path.islink(path) or not os.path.isfile(path) or not os.access(path, os.R_OK):
                    continue
                with open(path, "rb") as stream:
                    if stream.read(4) == b"\x7fELF":
                        found.append(path)
    return found


def system_of(path):
    """Class and processor that an ELF file is for: EI_CLASS and e_machine of elf(5)."""
    with open(path, "rb") as stream:
        header = stream.read(20)
    return header[4], header[18:]


def library_path():
    """Directories of the release as its modulefile would have them, and others that change what is found."""
    candidates = [os.path.join(RELEASE, "base/lib"), *map(str, pathlib.Path(RELEASE).glob("base/lib/mpich"))]
    candidates += map(str, pathlib.Path(RELEASE).glob("base/lib/python*/site-packages/torch/lib"))
    return [os.fsencode(directory) for directory in [*candidates, "/usr/local/lib", "/usr/lib/x86_64-linux-gnu"]]


def run_ldd(paths, directories):
    """The lines that ldd prints of each file."""
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
    if directories:
        environment["LD_LIBRARY_PATH"] = os.fsdecode(b":".join(directories))
    # Two files at least, so that ldd names each one.
    process = subprocess.run(
        [b"ldd", b"-v", *paths, b"/bin/sh"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        check=False,
    )
    headers = {path + b":": path for path in paths}
    lines = {path: [] for path in paths}
    current = []
    for line in process.stdout.split(b"\n"):
        if line == b"/bin/sh:":
            break
        if line in headers:
            current = lines[headers[line]]
        else:
            current.append(os.fsdecode(line))
    return lines


def read_ldd(lines):
    """(refused, [(name, path)] in order, missing names, missing versions) of ldd's lines."""
    libraries, _title, versions = "\n".join(lines).partition("\tVersion information:\n")
    loaded, missing = [], []
    for line in libraries.splitlines():
        found = re.match(r"\t(?:(.+) => )?(.+?)(?: \(0x[0-9a-f]+\))?$", line)
        if found and not found.group(2).startswith("linux-vdso") and line.endswith((")", "not found")):
            if found.group(2) == "not found":
                missing.append(found.group(1))
            else:
                loaded.append((found.group(1) or found.group(2), found.group(2)))
    unmatched = set()
    needer = ""
    for line in versions.splitlines():
        if line.startswith("\t\t"):
            library, version, path = re.match(r"\t\t(.+) \((.+)\) (?:\[WEAK\] )?=> (.+)$", line).groups()
            if path == "not found" and library not in missing:
                unmatched.add((needer, library, version))
        elif line.startswith("\t"):
            needer = line[1:-1]
    refused = any(word in libraries for word in REFUSALS)
    return refused, loaded, sorted(missing), unmatched


def read_resolution(resolution):
    name = os.fsdecode
    missing = [name(edge.name) for edge in resolution.edges if edge.path is None]
    unmatched = {
        (name(problem.needer), name(problem.name), name(problem.version))
        for problem in (*resolution.version_problems, *resolution.unversioned)
    }
    if resolution.problem:
        return True, [], [], unmatched
    return False, [(name(first), name(second)) for first, second in resolution.loaded], sorted(missing), unmatched


def processor_seconds(who):
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


@pytest.mark.parametrize("directories", [[], library_path()], ids=["no LD_LIBRARY_PATH", "LD_LIBRARY_PATH"])
def test_every_elf_file_finds_what_ldd_finds_in_the_same_order(directories, record_property):
    files = elf_files()
    assert len(files) > 100
    before = processor_seconds(resource.RUSAGE_SELF)
    loader = Loader(System.this_machine(), directories)
    resolutions = {path: loader.resolve(path) for path in files}
    ours = processor_seconds(resource.RUSAGE_SELF) - before

    before = processor_seconds(resource.RUSAGE_CHILDREN)
    with ThreadPoolExecutor(THREADS) as executor:
        batches = [files[start : start + BATCH] for start in range(0, len(files), BATCH)]
        printed = {}
        for lines in executor.map(lambda batch: run_ldd(batch, directories), batches):
            printed.update(lines)
    theirs = processor_seconds(resource.RUSAGE_CHILDREN) - before

    own = {path for path in files if system_of(path) == system_of("/bin/sh")}
    assert all(resolutions[path].problem for path in files if path not in own)
    differences = [
        (path, read_ldd(printed[path]), read_resolution(resolutions[path]), resolutions[path].problem)
        for path in files
        if path in own and read_ldd(printed[path]) != read_resolution(resolutions[path])
    ]
    assert not differences, "%d of %d, the first: %r" % (len(differences), len(own), differences[:3])
    record_property("files", len(own))
    record_property("ratio", theirs / ours)
    print("%d files, processor seconds: loader %.2f, ldd %.2f, ratio %.1f" % (len(own), ours, theirs, theirs / ours))
    assert theirs / ours > 5


def test_no_elf_file_is_called_like_those_that_are_not_opened():
    assert [path for path in elf_files() if os.fsdecode(path).endswith(UNOPENED)] == []
