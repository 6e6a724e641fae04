# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What Horovod is linked with where PyTorch's wheel brings NCCL, and what its build alone has of the GPU's driver.

The role's own steps run with a small setup.py in place of Horovod's, which asks compiler and linker what CMake would.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile

import jinja2
import pytest
from support import role_plays, sites

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc to build small libraries")

PROGRAMS = pathlib.Path(__file__).parents[2] / "roles" / "python_tools" / "files"
TAG, MINOR = "cp%d%d" % sys.version_info[:2], "python%d.%d" % sys.version_info[:2]
PLATFORM = sysconfig.get_platform().replace("-", "_").replace(".", "_")
REPORT = """Horovod v0.28.1:

Available Frameworks:
    [X] PyTorch

Available Controllers:
    [X] MPI

Available Tensor Operations:
    [X] NCCL
"""
SETUP = """
import json, os, pathlib, subprocess, sys, zipfile

nccl = pathlib.Path(os.environ["HOROVOD_NCCL_HOME"])
names = ("HOROVOD_NCCL_LINK", "LD_LIBRARY_PATH", "LIBRARY_PATH", "HOROVOD_WITHOUT_GPU", "MAKEFLAGS",
         "CMAKE_BUILD_PARALLEL_LEVEL")
seen = {name: os.environ.get(name, "") for name in names}
stub = pathlib.Path(seen["LD_LIBRARY_PATH"].split(":")[0], "libcuda.so.1")
seen["stub"] = os.readlink(stub) if stub.is_symlink() else ""
asked = b"#include <nccl.h>\\nNCCL_VERSION_CODE\\n"
words = ["gcc", "-E", "-isystem", str(nccl / "include"), "-"]
read = subprocess.run(words, input=asked, stdout=subprocess.PIPE, check=True)
seen["header"] = read.stdout.split()[-1].decode()
library = pathlib.Path("mpi_lib_v2.so")
runtime = os.environ["CUDA_HOME"] + "/lib64/libcudart.so.13"
words = "gcc -shared -fPIC -x c - -x none -o %s %s %s %s -Wl,--enable-new-dtags" % (
    library, nccl / "lib" / "libnccl.a", runtime, os.environ.get("LDFLAGS", ""))
code = b"int nccl(void); int cudart(void); int horovod(void) { return nccl() + cudart(); }"
subprocess.run(words, shell=True, input=code, check=True)
program = ["gcc", "-x", "c", "-", "-x", "none", "-o", "asked", os.environ["SMALL_MPI"], "-Wl,--no-as-needed"]
linked = subprocess.run(program, input=b"int mpi(void); int main(void) { return mpi(); }", stderr=subprocess.PIPE)
seen["linked"], seen["said"] = linked.returncode == 0, linked.stderr.decode()
pathlib.Path(os.environ["SEEN"]).write_text(json.dumps(seen))
if not seen["linked"]:
    sys.exit("mpicxx cannot link: " + seen["said"])
where = pathlib.Path(sys.argv[sys.argv.index("--dist-dir") + 1])
where.mkdir(exist_ok=True)
with zipfile.ZipFile(where / os.environ["WHEEL"], "w") as wheel:
    wheel.write(library, "horovod/torch/mpi_lib_v2.so")
"""


def shared(path, source, *words):
    path.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-x", "none", "-Wl,-soname," + path.name, *words]
    subprocess.run([*command, "-o", str(path)], input=source, text=True, check=True)
    return path


class Machine:
    """A machine without a driver, and a release with an installed torch that brings its NCCL."""

    def __init__(self, top, name="release"):
        self.top = top
        self.toolkit, self.prefix = top / "toolkit", top / name
        self.base, self.tree = self.prefix / "base", self.prefix / "src" / "horovod-0.28.1"
        self.packages = self.base / "lib" / MINOR / "site-packages"
        self.nccl = self.packages / "nvidia" / "nccl"
        self.steps = self.prefix / ".torchstack" / "steps"
        self.wheel = "horovod-0.28.1-%s-%s-%s.whl" % (TAG, TAG, PLATFORM)
        self.stub = shared(self.toolkit / "lib64" / "stubs" / "libcuda.so", "int cuInit(void) { return 34; }",
                           "-Wl,-soname,libcuda.so.1")
        (self.toolkit / "lib64" / "stubs" / "driver").mkdir()
        driver = self.toolkit / "lib64" / "stubs" / "driver" / "libcuda.so.1"
        driver.symlink_to(self.stub)
        mpi = "int cuInit(void); int mpi(void) { return cuInit(); }"
        self.mpi = shared(top / "mpi" / "lib" / "libmpi.so.40", mpi, str(driver))
        shutil.rmtree(driver.parent)
        (self.toolkit / "nccl").mkdir(exist_ok=True)
        (self.toolkit / "nccl" / "nccl.h").write_text("#define NCCL_VERSION_CODE 22103\n")
        shared(self.nccl / "lib" / "libnccl.so.2", "int nccl(void) { return 2; }")
        for runtime in (self.toolkit / "lib64", self.packages / "nvidia" / "cu13" / "lib"):
            shared(runtime / "libcudart.so.13", "int cudart(void) { return 3; }")
        (self.nccl / "include").mkdir()
        (self.nccl / "include" / "nccl.h").write_text("#define NCCL_VERSION_CODE 22005\n")
        for step in ("horovod-source", "pytorch"):
            (self.steps / step).mkdir(parents=True)
            (self.steps / step / "stamp.json").write_text(json.dumps({"digest": step, "nonce": step}))
        self.tree.mkdir(parents=True)
        (self.tree / "setup.py").write_text(SETUP)
        package = self.packages / "horovod"
        package.mkdir()
        (package / "__init__.py").write_text("__version__ = '0.28.1'\n")
        tools = self.prefix / "tools" / "bin"
        tools.mkdir(parents=True)
        (tools / "python").symlink_to(sys.executable)
        for program in ("node_jobs.py", "relocate-wheel"):
            shutil.copy(PROGRAMS / program, tools)
        (self.prefix / ".torchstack" / "pytorch.json").write_text("{}")
        run = self.base / "bin" / "horovodrun"
        run.parent.mkdir()
        run.write_text("#!/bin/sh\ncat <<'END'\n%sEND\n" % REPORT)
        run.chmod(0o755)

    def variables(self):
        """Those of the role; what the cases differ in comes from each case."""
        base = {
            "kind": "python_overlay", "prefix": str(self.base), "python": sys.executable, "tag": TAG,
            "platform": PLATFORM, "site_packages": str(self.packages), "pip": {"install": "true"},
            "environment": {"PYTHONPATH": str(self.packages)},
        }
        return {
            "horovod_base": base, "horovod_records": str(self.prefix / ".torchstack"),
            "horovod_wheels": str(self.prefix / "wheels"), "horovod_sources": str(self.prefix / "src"),
            "horovod_tools": str(self.prefix / "tools"), "horovod_version": "0.28.1", "horovod_sha256": "0" * 64,
            "horovod_mpi": {"provider": "prefix", "bin": "/usr/bin"}, "horovod_compilers": {"CC": "gcc", "CXX": "g++"},
            "horovod_environment": {
                "CPATH": str(self.toolkit / "nccl"), "SMALL_MPI": str(self.mpi), "WHEEL": self.wheel,
                "SEEN": "{{ case.seen }}",
            },
            "horovod_expect": {"operations": ["NCCL"]},
            "horovod_cuda": {"prefix": str(self.toolkit), "architectures": ["7.0"]},
            "horovod_nccl": "", "horovod_nccl_origin": "wheel", "horovod_driver_stub": "{{ case.stub }}",
            "horovod_jobs": "{{ case.jobs | default(0) }}",
            "release_context": {
                "records": str(self.prefix / ".torchstack"), "series": {"horovod": "0" * 64},
                "definition": {"pytorch": {}},
            },
        }

    def case(self, name, **changed):
        return {"seen": str(self.top / (name + ".json")), "stub": True, **changed}

    def play(self, environment, directory, *cases, **variables):
        asked = {**self.variables(), **variables}
        return role_plays.play_tasks("horovod", "wheel", asked, cases, environment, directory)


@pytest.fixture(scope="module")
def built(tmp_path_factory, ansible_environment):
    """A machine on which Horovod was built once with the stub and then, in vain, without; and what Ansible printed."""
    machine = Machine(tmp_path_factory.mktemp("machine"))
    toolkit = sorted(machine.toolkit.rglob("*"))
    cases = [machine.case("with"), machine.case("without", stub=False)]
    done = machine.play(ansible_environment, machine.top, *cases)
    machine.said = done.stdout
    machine.kept = sorted(machine.toolkit.rglob("*")) == toolkit
    assert (machine.top / "without.json").exists(), done.stdout[-4000:]
    machine.seen, machine.refused = (json.loads(pathlib.Path(case["seen"]).read_text()) for case in cases)
    return machine


def entries(path, tag):
    """What the dynamic section of an object has under a tag."""
    text = subprocess.run(["readelf", "--dynamic", str(path)], stdout=subprocess.PIPE, text=True, check=True).stdout
    return re.findall(r"\(%s\).*\[(.*)\]" % tag, text)


@pytest.fixture(scope="module")
def library(built):
    with zipfile.ZipFile(built.prefix / "wheels" / built.wheel) as wheel:
        wheel.extractall(built.packages)
    return built.packages / "horovod" / "torch" / "mpi_lib_v2.so"


@pytest.mark.parametrize(("nccl", "horovod", "expected"), [
    (None, {}, ("", "")), (None, {"nccl": "wheel"}, ("", "wheel")), ({"version": "2.21.5"}, {}, ("/r/nccl", "")),
    ({"version": "2.21.5", "cuda": {"version": "12.2"}}, {}, ("", "")),
    ({"version": "2.21.5", "wheel": True}, {}, ("", "wheel")),
    ({"version": "2.21.5", "wheel": True}, {"nccl": "wheel"}, ("", "wheel")),
])
def test_s27_horovod_follows_the_release_to_its_own_nccl_or_to_that_of_the_wheel(nccl, horovod, expected):
    defaults = sites.load(sites.TOP / "roles/horovod/defaults/main.yml")
    definition = {"horovod": horovod, **({"nccl": nccl} if nccl else {})}
    if not (nccl or {}).get("cuda"):
        definition["cuda"] = {"version": "12.2"}
    context = {"prefix": "/r", "definition": definition}
    found = tuple(
        jinja2.Template(defaults[name]).render(release_context=context).strip()
        for name in ("horovod_nccl", "horovod_nccl_origin"))
    assert found == expected


def test_s27_horovod_is_linked_shared_with_the_nccl_of_pytorchs_wheel(built, library):
    assert built.seen["HOROVOD_NCCL_LINK"] == "SHARED"
    assert "libnccl.so.2" in entries(library, "NEEDED")
    mapped = subprocess.run(["ldd", str(library)], stdout=subprocess.PIPE, text=True, check=True).stdout
    found = next(line for line in mapped.splitlines() if "libnccl.so.2" in line).split("=> ")[1].split(" ")[0]
    assert os.path.realpath(found) == str(built.nccl / "lib" / "libnccl.so.2")
    runtime = next(line for line in mapped.splitlines() if "libcudart.so.13" in line).split("=> ")[1].split(" ")[0]
    assert os.path.realpath(runtime) == str(built.packages / "nvidia" / "cu13" / "lib" / "libcudart.so.13")


def test_s27_nothing_of_the_build_stays_in_horovods_search_path_or_in_the_wheels_nccl(built, library):
    assert entries(library, "RPATH") == ["$ORIGIN/../../nvidia/nccl/lib:$ORIGIN/../../nvidia/cu13/lib"]
    assert [path.name for path in (built.nccl / "lib").iterdir()] == ["libnccl.so.2"]


def test_s27_the_header_is_the_one_of_that_nccl_whatever_a_module_puts_before_it(built):
    assert built.seen["header"] == "22005"


def test_s24_while_it_builds_the_stub_is_found_as_the_driver_in_a_directory_of_the_build_tree(built):
    assert built.seen["linked"] is True
    assert built.seen["stub"] == str(built.stub)
    assert pathlib.Path(built.seen["LD_LIBRARY_PATH"].split(":")[0]).parent.parent == built.tree
    assert built.seen["LIBRARY_PATH"].split(":")[0] == built.seen["LD_LIBRARY_PATH"].split(":")[0]


def test_s24_when_the_build_has_ended_nothing_of_the_stub_is_left_and_the_toolkit_is_as_it_was(built):
    assert not pathlib.Path(built.seen["LD_LIBRARY_PATH"].split(":")[0]).exists()
    assert [path for path in built.tree.rglob("*") if path.is_symlink() and "stubs" in os.readlink(path)] == []
    assert built.kept
    assert "stubs" not in (built.steps / "horovod-install" / "script.sh").read_text()


def test_where_there_are_gpus_they_are_not_left_out(built):
    assert built.seen["HOROVOD_WITHOUT_GPU"] == ""


@pytest.mark.parametrize(("jobs", "seen"), [(1, 1), (1000, len(os.sched_getaffinity(0)))])
def test_horovod_jobs_reaches_the_build_tool_and_is_never_more_than_cores(tmp_path, ansible_environment, jobs, seen):
    machine = Machine(tmp_path)
    machine.play(ansible_environment, tmp_path, machine.case("jobs", jobs=jobs))
    found = json.loads((tmp_path / "jobs.json").read_text())
    asked = int(found["CMAKE_BUILD_PARALLEL_LEVEL"])
    assert found["MAKEFLAGS"] == "-j%d" % asked  # without them setup.py asks for 8, whatever CMake was told
    assert 1 <= asked <= seen


def test_s24_without_the_stub_the_same_build_does_not_link_on_a_machine_without_a_driver(built):
    assert built.refused["linked"] is False
    assert built.refused["stub"] == ""
    assert "undefined reference to `cuInit" in built.said and "libcuda.so.1" in built.refused["said"]


@pytest.mark.parametrize("spoil, sentence", [
    (lambda machine: shutil.rmtree(machine.toolkit / "lib64"), "has no stubs/libcuda.so below its libraries"),
    (lambda machine: shutil.rmtree(machine.nccl), "There is no NCCL in"),
], ids=["no stub", "no NCCL"])
def test_what_is_not_there_is_said_with_the_key_of_the_release_file(tmp_path, ansible_environment, spoil, sentence):
    machine = Machine(tmp_path)
    spoil(machine)
    done = machine.play(ansible_environment, tmp_path, machine.case("none"))
    assert done.returncode != 0
    assert sentence in " ".join(done.stdout.split())
    assert not (tmp_path / "none.json").exists()


def test_another_release_below_the_same_root_takes_over_what_was_built(tmp_path, ansible_environment):
    builds = {"horovod_cache": str(tmp_path / ".torchstack" / "builds")}
    first, second = (Machine(tmp_path, name) for name in ("first", "second"))
    mpis = [{"provider": "wheel", "bin": str(one.base / "bin")} for one in (first, second)]
    for machine in (first, second):
        (machine.steps / "mpi").mkdir()
        (machine.steps / "mpi" / "stamp.json").write_text(json.dumps({"digest": "mpi", "nonce": "mpi"}))
    done = first.play(ansible_environment, tmp_path, first.case("seen"), horovod_mpi=mpis[0], **builds)
    assert (tmp_path / "seen.json").exists(), done.stdout[-4000:]
    (tmp_path / "seen.json").unlink()
    done = second.play(ansible_environment, tmp_path, second.case("seen"), horovod_mpi=mpis[1], **builds)
    assert not (tmp_path / "seen.json").exists() and "release first" in done.stdout, done.stdout[-4000:]
    assert (second.prefix / "wheels" / second.wheel).exists()
