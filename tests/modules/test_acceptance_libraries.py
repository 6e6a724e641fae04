# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Which libraries ranks have mapped under a user's LD_LIBRARY_PATH with others first: real MPICH, mpi4py and loader.

NCCL, its plugin and libfabric are small libraries that are linked as the roles link them, or as linkers do unasked.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from support.elf_objects import shared

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc to build small libraries")

OPEN = """
#include <dlfcn.h>
void *plugin(void) { return dlopen("libnccl-net.so", RTLD_NOW); }
"""
TORCH = """
import ctypes, pathlib
library = ctypes.CDLL(str(pathlib.Path(__file__).parents[2] / "torch" / "libtorch_cuda.so"), mode=ctypes.RTLD_GLOBAL)
nccl = ctypes.CDLL("libnccl.so.2")
nccl.plugin.restype = ctypes.c_void_p
nccl.plugin()
"""
NCCL_RULE = "another NCCL has no plugin beside it"


@pytest.fixture(scope="module")
def mpi(tmp_path_factory):
    """A prefix with MPICH and mpi4py, as pip installs them."""
    prefix = tmp_path_factory.mktemp("mpi")
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--prefix", str(prefix), "mpich", "mpi4py"]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        pytest.skip("pip cannot install MPICH and mpi4py: %s" % done.stdout.strip()[-300:])
    return prefix


def build(release, fabric, tags):
    flags = ("-Wl,--%s-new-dtags" % tags,)
    lib = release / "nccl" / "lib"
    shared(lib / "libnccl-net.so", "int net;", fabric, soname="libnccl-net.so", flags=flags)
    nccl = shared(lib / "libnccl.so.2", OPEN, soname="libnccl.so.2", flags=("-Wl,-rpath,$ORIGIN", *flags))
    shared(release / "torch" / "libtorch_cuda.so", "int torch;", nccl, soname="libtorch_cuda.so", flags=flags)


@pytest.fixture()
def site(mpi, tmp_path):
    """A release over that MPI, a user whose LD_LIBRARY_PATH has others of everything, and the module's arguments."""
    top = tmp_path / "site"
    release = top / "r1"
    shutil.copytree(str(mpi), str(release), symlinks=True)
    (packages,) = release.glob("lib/python3*/site-packages")
    (release / "lib" / "toy").mkdir()
    (release / "lib" / "toy" / "toytorch.py").write_text(TORCH)
    (release / "bin" / "python3").symlink_to(sys.executable)
    fabric = shared(tmp_path / "libfabric" / "libfabric.so.1.20", "int fabric;", soname="libfabric.so.1")
    (fabric.parent / "libfabric.so.1").symlink_to(fabric.name)
    build(release, fabric.parent / "libfabric.so.1", "disable")
    users = tmp_path / "users"
    for name, source in (("libnccl.so.2", OPEN), ("libnccl-net.so", "int other;"), ("libfabric.so.1", "int other;")):
        shared(users / name, source, soname=name)
    # Another MPI works, too: nothing but the map tells.
    shutil.copytree(str(mpi / "lib"), str(tmp_path / "other-mpi"), symlinks=True)
    return {
        "root": str(top), "release": "r1", "subject": "sha256:1", "module_system": "none", "ranks": 2,
        "environment": {
            "PATH": "%s/bin:/usr/bin:/bin" % release, "PYTHONPATH": "%s:%s" % (packages, release / "lib" / "toy"),
            "MPI4PY_LIBMPI": "%s/lib/libmpi.so.12" % release,
            "LD_LIBRARY_PATH": "%s:%s" % (users, tmp_path / "other-mpi")},
        "imports": ["toytorch", "mpi4py.MPI"], "checks": ["mpi4py"], "where_possible": [], "timeout": 300,
        "providers": [
            {"name": "libnccl*.so*", "path": "%s/nccl/lib/*" % release, "reason": NCCL_RULE},
            {"name": "libfabric.so.1", "path": "%s/libfabric/**" % tmp_path},
            {"name": "libmpi.so.12", "path": "%s/lib/*" % release}],
    }


def test_s02_ranks_have_the_release_s_own_libraries_mapped_whatever_a_user_has_first(run_module, site):
    result = run_module("acceptance_run", site)
    assert result.get("passed") is True, result.console
    record = json.loads(pathlib.Path(result["record"]).read_text())
    nccl = os.path.join(site["root"], "r1", "nccl", "lib")
    for row in record["ranks"]:
        mapped = {os.path.basename(path): os.path.dirname(path) for path in row["declared"]}
        assert mapped["libnccl.so.2"] == mapped["libnccl-net.so"] == nccl
        assert mapped["libfabric.so.1.20"].endswith("/libfabric") and mapped["libmpi.so.12"].startswith(site["root"])


def test_s02_the_user_s_nccl_in_the_ranks_refuses_the_release_with_its_place_and_what_to_do(run_module, site):
    # A RUNPATH, which linkers write unasked.
    fabric = pathlib.Path(site["providers"][1]["path"][:-3]) / "libfabric.so.1"
    build(pathlib.Path(site["root"]) / "r1", fabric, "enable")
    result = run_module("acceptance_run", site)
    assert result.get("failed_step") == "libraries", result.console
    users = site["environment"]["LD_LIBRARY_PATH"].split(":")[0]
    assert (
        "has libnccl.so.2 mapped from %s, which is in its LD_LIBRARY_PATH, and not from %s/r1/nccl/lib/* (%s)" % (
            users, site["root"], NCCL_RULE)) in "\n".join(result["failures"])
    assert "Take %s out of LD_LIBRARY_PATH" % users in result["msg"]


def test_s02_the_user_s_libfabric_that_mpi_has_brought_first_refuses_the_release(run_module, site):
    # That of the wheel has no RPATH to a libfabric: what comes after it gets the same one.
    result = run_module("acceptance_run", {**site, "imports": ["mpi4py.MPI", "toytorch"]})
    assert result.get("failed_step") == "libraries", result.console
    (sentence,) = result["failures"]
    assert "has libfabric.so.1 mapped from %s" % site["environment"]["LD_LIBRARY_PATH"].split(":")[0] in sentence


def test_s07_another_mpi_of_the_user_s_refuses_the_release_though_every_value_is_right(run_module, site):
    # So mpi4py's wheel looks for it by its name.
    environment = {name: value for name, value in site["environment"].items() if name != "MPI4PY_LIBMPI"}
    result = run_module("acceptance_run", {**site, "environment": environment})
    assert result.get("failed_step") == "libraries", result.console
    others = site["environment"]["LD_LIBRARY_PATH"].split(":")[1]
    assert "has libmpi.so.12 mapped from %s, which is in its" % others in result["msg"]
    record = json.loads(pathlib.Path(result["record"]).read_text())
    assert {check["name"]: check["status"] for check in record["checks"]}["mpi4py"] == "passed"


def test_a_rule_whose_path_can_never_match_is_refused_before_anything_runs(run_module, site):
    site["providers"] = [{"name": "libmpi.so.12", "path": "lib/*"}]
    result = run_module("acceptance_run", site, check=True)
    assert result.failed and "acceptance_providers can never match" in result["msg"]
