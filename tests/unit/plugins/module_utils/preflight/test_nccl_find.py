# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Where libfabric, hwloc and CUDA say what they are."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.preflight import nccl_find as places

PC = "prefix=/x\n\nName: libfabric\nVersion: 1.15.2.0\n"
INFO = "#!/bin/sh\necho 'fi_info: 1.15.1'; echo 'libfabric: 1.15.1'; echo 'libfabric api: 1.15'\n"
HEADER = "#define FI_MAJOR_VERSION 1\n#define FI_MINOR_VERSION 14\n#define FI_REVISION_VERSION 0\n"


def lay(prefix, **files):
    """Write files below a prefix; two underscores of a name are a slash, and _dot_ is a dot."""
    for name, text in files.items():
        path = prefix.joinpath(*name.replace("__", "/").replace("_dot_", ".").split("/"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    return str(prefix)


@pytest.fixture()
def fabric(tmp_path):
    """A libfabric whose three witnesses differ, in a directory that is called as the fabric's software is numbered."""
    return tmp_path / "22.0.1-SHS2.2.0"


@pytest.mark.parametrize(("files", "version"), [
    ({"lib64__pkgconfig__libfabric_dot_pc": PC, "bin__fi_info": INFO, "include__rdma__fabric_dot_h": HEADER},
     "1.15.2.0"),
    ({"lib__pkgconfig__libfabric_dot_pc": PC}, "1.15.2.0"),
    ({"bin__fi_info": INFO, "include__rdma__fabric_dot_h": HEADER}, "1.15.1"),
    ({"bin__fi_info": "#!/bin/sh\nexit 1\n", "include__rdma__fabric_dot_h": HEADER}, "1.14.0"),
    ({"include__rdma__fabric_dot_h": "#define FI_MAJOR_VERSION 1\n"}, ""),
    ({}, ""),
])
def test_s20_the_version_of_libfabric_is_what_it_says_and_not_what_its_directory_is_called(fabric, files, version):
    assert places.libfabric(lay(fabric, **files)).version == version


def test_the_library_of_libfabric_is_looked_for_where_it_may_lie(fabric):
    assert places.libfabric(lay(fabric, lib__libfabric_dot_so="")).library == str(fabric / "lib")
    assert places.libfabric(lay(fabric, lib64__libfabric_dot_so="")).library == str(fabric / "lib64")
    assert places.libfabric("") == ("", "", "")


def test_the_version_of_cuda_is_what_its_nvcc_says(tmp_path):
    said = "#!/bin/sh\necho 'Cuda compilation tools, release 12.2, V12.2.140'\n"
    assert places.cuda(lay(tmp_path, bin__nvcc=said, lib64__x="")) == (str(tmp_path), "12.2", str(tmp_path / "lib64"))
    lay(tmp_path, bin__nvcc="#!/bin/sh\nexit 1\n", version_dot_json='{"cuda": {"version": "12.3.1"}}')
    assert places.cuda(str(tmp_path)).version == "12.3.1"
    (tmp_path / "version.json").write_text("{")
    assert places.cuda(str(tmp_path)).version == ""
    assert places.cuda(str(tmp_path / "nowhere")).version == ""


def test_hwloc_is_looked_for_in_its_prefix_and_else_where_the_compiler_looks(tmp_path):
    prefix = lay(tmp_path, include__hwloc_dot_h="", lib__libhwloc_dot_so="")
    assert places.hwloc(prefix, {}).library == str(tmp_path / "lib")
    assert places.hwloc(str(tmp_path / "include"), {}).version == ""
    assert places.hwloc("", {"CPATH": "/nowhere:" + prefix + "/include"}).version == prefix + "/include/hwloc.h"


def test_commands_that_are_missing_are_named(tmp_path):
    lay(tmp_path, make="#!/bin/sh\n")
    assert places.missing_commands(["make", "autoreconf"], str(tmp_path)) == ["autoreconf"]
