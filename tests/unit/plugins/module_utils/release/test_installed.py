# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What is installed in a release; releases on disk are in tests/modules/test_release_sbom.py.

Covers installed_components, installed_python and installed_records, too; installed_libraries, spdx and sbom_file are
covered there.
"""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.release import installed_components, installed_python
from ansible_collections.hpcml.torchstack.plugins.module_utils.release.installed import installed
from ansible_collections.hpcml.torchstack.plugins.module_utils.release.installed_records import Places


@pytest.mark.parametrize("said, expected", [
    ("MPICH Version:      4.3.2\nMPICH Release date: Mon", "MPICH 4.3.2"),
    ("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4", "Open MPI 4.1.4"),
    ("MPI VERSION    : CRAY MPICH version 8.1.28.29 (ANL base 3.4a2)", "CRAY MPICH 8.1.28.29"),
    ("Intel(R) MPI Library 2021.9 for Linux* OS", "Intel MPI Library 2021.9"),
    ("small MPI", "small MPI"),
    ("", ""),
])
def test_an_mpi_is_called_what_it_calls_itself(said, expected):
    assert installed_components.library_version(
        {"imports": {"reported": {"mpi4py.MPI.Get_library_version()": said}}}) == expected


def test_places_are_named_innermost_first_and_only_where_a_path_ends():
    places = Places.of("/moved/2026", {
        "tools": "/soft/.torchstack/tools/abc", "base": {"prefix": "/soft/2026/base", "tag": "cp311"}})
    assert places.generic("-L/soft/2026/base/lib:/soft/.torchstack/tools/abc/bin:/soft/else") == (
        "-L{prefix}/base/lib:{tools}/bin:{root}/else")
    assert places.generic("/moved/2026-old /moved/2026") == "{root}/2026-old {prefix}"
    assert places.tag == "cp311"


def test_of_nothing_nothing_is_said(tmp_path):
    found = installed(str(tmp_path), {})
    assert (found["python"], found["conda"], found["components"], found["libraries"]) == ([], [], [], {})


def test_the_nccl_of_a_wheel_is_a_python_package_and_only_its_plugin_is_a_component(tmp_path):
    plugin = {"version": "1.6.0", "repository": "https://example.org/aws-ofi-nccl", "commit": "1" * 40}
    of_wheel = {"version": "2.21.5", "wheel": True, "plugin": plugin}
    found = installed(str(tmp_path), {"definition": {"nccl": of_wheel}})
    assert [(one["key"], one["version"]) for one in found["components"]] == [("nccl.plugin", "1.6.0")]
    compiled = {"version": "2.21.5", "repository": "https://example.org/nccl", "commit": "0" * 40, "plugin": plugin}
    found = installed(str(tmp_path), {"definition": {"nccl": compiled}})
    assert {one["key"] for one in found["components"]} == {"nccl", "nccl.plugin"}


def test_the_toolkit_of_an_nccl_alone_is_a_component_and_no_cuda_of_the_release_s(tmp_path):
    nccl = {"version": "2.28.3", "repository": "https://example.org/nccl", "commit": "0" * 40,
            "cuda": {"version": "12.9", "prefix": "/opt/cuda"}}
    found = installed(str(tmp_path), {"definition": {"nccl": nccl}})
    assert {one["key"]: one["version"] for one in found["components"]} == {"nccl": "2.28.3", "nccl.cuda": "12.9"}
    assert "cuda" not in found["libraries"]


def test_what_is_built_is_known_by_its_canonical_name():
    names = installed_python.built_names({
        "horovod": {}, "pytorch": {"source": {}},
        "packages": [
            {"name": "Flash_Attn", "version": "1", "repository": "https://git.example.org/x", "commit": "0" * 40},
            {"name": "einops", "version": "1", "lock": "einops==1 --hash=sha256:" + "0" * 64},
        ],
    })
    assert names == {"horovod", "torch", "flash-attn"}
