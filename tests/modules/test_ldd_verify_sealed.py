# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Whose library wins where a user has another one first in LD_LIBRARY_PATH: as the rule says, and the loader does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from support.elf_objects import shared

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc to build small libraries")

NAMES = ("libnccl.so.2", "libnccl-net.so", "libfabric.so.1")
OPEN = """
#include <dlfcn.h>
void *plugin(void) { return dlopen("libnccl-net.so", RTLD_NOW); }
"""
SHOW = """
import ctypes, os, sys
library = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
nccl = ctypes.CDLL("libnccl.so.2")
nccl.plugin.restype = ctypes.c_void_p
nccl.plugin()
print("\\n".join({line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if ".so" in line}))
"""


def build(top, tags):
    """A release whose torch needs its NCCL, which opens its plugin, which needs a libfabric of the system."""
    flags = ("-Wl,--%s-new-dtags" % tags,)
    fabric = shared(top / "libfabric" / "libfabric.so.1", "int fabric;", soname="libfabric.so.1")
    lib = top / "release" / "nccl" / "lib"
    shared(lib / "libnccl-net.so", "int net;", fabric, soname="libnccl-net.so", flags=flags)
    nccl = shared(lib / "libnccl.so.2", OPEN, soname="libnccl.so.2", flags=("-Wl,-rpath,$ORIGIN", *flags))
    return shared(top / "release" / "torch" / "libtorch_cuda.so", "int torch;", nccl, soname="libtorch_cuda.so",
                  flags=flags)


@pytest.fixture()
def users(tmp_path):
    """A directory of a user with another library of each name."""
    for name in NAMES:
        shared(tmp_path / "users" / name, OPEN if name == NAMES[0] else "int other;", soname=name)
    return tmp_path / "users"


def rules(top, torch, **more):
    return {
        "paths": [str(top / "release")],
        "preloaded": [str(torch)],
        "plugins": [{"caller": "libnccl.so.2", "name": "libnccl-net.so"}],
        "sealed": [{"name": name, "reason": "ours has a plugin"} for name in ("libnccl*", "libfabric.so.1")],
        **more,
    }


def mapped(torch, users):
    """Which files a process has mapped of each name, under the user's LD_LIBRARY_PATH."""
    process = subprocess.run(
        [sys.executable, "-c", SHOW, str(torch)], env={**os.environ, "LD_LIBRARY_PATH": str(users)},
        stdout=subprocess.PIPE, text=True, check=True)
    paths = process.stdout.split()
    return {name: [path for path in paths if os.path.basename(path) == name] for name in NAMES}


def test_s02_an_rpath_comes_before_the_user_s_directory_and_the_verification_is_content(run_module, tmp_path, users):
    torch = build(tmp_path, "disable")
    result = run_module("ldd_verify", rules(tmp_path, torch))
    assert not result.failed and result["unsealed_total"] == 0, result.console
    assert not [path for paths in mapped(torch, users).values() for path in paths if path.startswith(str(users))]


def test_s02_a_runpath_comes_after_it_and_each_object_that_has_one_is_named(run_module, tmp_path, users):
    torch = build(tmp_path, "enable")
    result = run_module("ldd_verify", rules(tmp_path, torch))
    assert result.failed and "a RUNPATH comes after LD_LIBRARY_PATH" in result["msg"]
    found = {(os.path.basename(one["object"]), one["soname"]) for one in result["unsealed"]}
    # A user's NCCL brings the user's plugin, and what that one needs: nobody gets as far as ours.
    assert found == {("libtorch_cuda.so", "libnccl.so.2"), ("libnccl.so.2", "libnccl-net.so"),
                     ("libnccl-net.so", "libfabric.so.1")}
    assert all(one["reason"] == "ours has a plugin" and one["rule"] == "RUNPATH" for one in result["unsealed"])
    wins = mapped(torch, users)
    assert [path.startswith(str(users)) for path in wins["libnccl.so.2"]] == [True]


def test_what_the_system_s_directories_have_is_named_too_and_what_is_not_sealed_is_not(run_module, tmp_path):
    plain = shared(tmp_path / "release" / "plain.so", "int plain;", flags=("-lm",))
    assert not run_module("ldd_verify", {"paths": [str(plain)]}).failed
    result = run_module("ldd_verify", {"paths": [str(plain)], "sealed": [{"name": "libm.so.6", "reason": "ours"}]})
    assert result.failed and "libm.so.6 from any directory that a user has" in result["msg"], result["msg"]
    assert "system's" in result["msg"]


def test_an_object_that_the_process_has_mapped_before_seals_a_library_for_all_others(run_module, tmp_path):
    torch = build(tmp_path, "disable")
    nccl = tmp_path / "release" / "nccl" / "lib" / "libnccl.so.2"
    shared(tmp_path / "release" / "horovod.so", "int h;", nccl)
    assert not run_module("ldd_verify", rules(tmp_path, torch)).failed
    alone = run_module("ldd_verify", rules(tmp_path, torch, preloaded=[]))
    assert [os.path.basename(one["object"]) for one in alone["unsealed"]] == ["horovod.so"]
