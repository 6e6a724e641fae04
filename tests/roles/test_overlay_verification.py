# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The verification rules of releases on overlays, on small real objects that lie where wheels and Horovod have them."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest
from ansible_collections.hpcml.torchstack.plugins.filter.verification import filled_rules
from support import sites
from support.elf_objects import shared

RELEASE = sites.TOP / "inventories" / "cirrus" / "releases" / "2.3.1.yml"
LIBRARIES = ("allow_missing", "preloaded", "providers", "require", "embedded", "forbid")
KINDS = ("missing", "misplaced", "embedded", "forbidden", "required", "versions", "unreadable")
BANNER = 'const char banner[] = "NCCL version %s"; const char *ncclGetErrorString(void) { return banner; }'

EITHER_BUILD = [path for path in sites.RELEASES if "cpu" in (sites.load_release(path).get("pytorch") or {})]
"""The releases that take PyTorch's build for CUDA where the one for CPUs is not to be had."""

NEEDED_ELSEWHERE = {
    "torch/lib/libcaffe2_nvrtc.so": ("libcuda.so.1",),
    "nvidia/cu13/lib/libcufile_rdma.so.1": ("libcufile.so.0", "libibverbs.so.1", "libmlx5.so.1", "librdmacm.so.1"),
    "nvidia/nvshmem/lib/nvshmem_transport_ibgda.so.3": ("libmlx5.so.1",),
    "nvidia/nvshmem/lib/nvshmem_transport_ucx.so.3": ("libucp.so.0", "libucs.so.0"),
}
"""What the wheels of torch 2.13.0 and of its libraries need of a GPU's driver and of networks."""

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc to build small libraries")


class Overlay:
    """A prefix with what the wheels bring and Horovod, and beside it the site's toolkit with an NCCL of its own."""

    def __init__(self, top):
        self.top, self.prefix = top, top / "release"
        self.packages = self.prefix / "base" / "lib" / "python3.12" / "site-packages"
        self.toolkit = top / "nvhpc"
        nccl = self.packages / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
        self.nccl = shared(nccl, BANNER % "2.20.5+cuda12.4", soname=nccl.name)
        self.mpi = shared(top / "openmpi" / "lib" / "libmpi.so.40", "", soname="libmpi.so.40")
        torch = self.packages / "torch" / "lib"
        # As PyTorch's wheels are, with an RPATH, which comes before LD_LIBRARY_PATH.
        self.cuda = shared(torch / "libtorch_cuda.so", "", self.nccl, soname="libtorch_cuda.so",
                           flags=("-Wl,--disable-new-dtags",))
        shared(torch / "libtorch_python.so", "", self.cuda, soname="libtorch_python.so")
        self.other = shared(self.toolkit / "comm_libs" / "nccl" / "lib" / "libnccl.so.2", BANNER % "2.18.5+cuda12.2",
                            soname="libnccl.so.2")
        self.link(self.nccl)

    def link(self, *needs, source="", paths=("$ORIGIN/../../nvidia/nccl/lib",)):
        """Link Horovod with MPI, PyTorch and more, from source as it is; ``paths`` are its run-path."""
        self.horovod = self.packages / "horovod" / "torch" / "mpi_lib_v2.cpython-312.so"
        flags = [*map(str, needs), *("-Wl,-rpath," + path for path in paths)]
        shared(self.horovod, source, self.mpi, self.cuda, flags=flags)

    def verify(self, search=(), release=RELEASE):
        """The findings of a release's own rules, by their kind.

        Args:
            search: directories of LD_LIBRARY_PATH, as a user's other modules set it.
            release: the release file.
        """
        definition = sites.load_release(release)
        words = {
            "prefix": self.prefix, "base": self.prefix / "base", "packages": self.packages, "python": "python3",
            "mpi": self.mpi.parents[1], "cuda": self.toolkit, "nccl": self.prefix / "nccl",
            "libfabric": self.top / "libfabric",
        }
        rules = filled_rules(
            definition["verification"]["libraries"], {word: str(path) for word, path in words.items()}, definition)
        file = self.top / "rules.json"
        file.write_text(json.dumps({name: rules[name] for name in LIBRARIES if name in rules}))
        command = [str(sites.TOP / "bin" / "verify"), str(self.prefix), "--json", "--rules", str(file)]
        command += [word for path in search for word in ("--library-path", str(path))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1), done.stderr
        self.result = json.loads(done.stdout)
        return {kind: self.result[kind] for kind in KINDS if self.result[kind]}


@pytest.fixture()
def overlay(tmp_path):
    return Overlay(tmp_path)


def test_s27_a_release_with_the_nccl_of_the_wheel_has_one_nccl_whatever_other_modules_offer(overlay):
    assert overlay.verify() == {}
    assert overlay.verify([overlay.other.parent]) == {}
    assert [found["path"] for found in overlay.result["providers"]["libnccl.so.2"]] == [str(overlay.nccl)]


def test_s27_horovod_as_the_site_linked_it_puts_two_nccls_into_one_process_and_is_a_finding(overlay):
    overlay.link(source=BANNER % "2.18.5+cuda12.2")
    findings = overlay.verify()
    assert list(findings) == ["embedded"]
    (copy,) = findings["embedded"]
    assert copy["object"].endswith(overlay.horovod.name)
    assert "NCCL" in str(copy)


def test_s27_an_nccl_that_pytorch_does_not_bring_is_a_finding(overlay):
    overlay.nccl.unlink()
    findings = overlay.verify([overlay.other.parent])
    assert str(overlay.other) in str(findings["misplaced"])


@pytest.mark.parametrize("needed", [True, False], ids=["taken", "only named"])
def test_s24_a_run_path_that_leads_to_the_toolkits_stubs_is_a_finding(overlay, needed):
    stub = shared(overlay.toolkit / "lib64" / "stubs" / "libcuda.so.1", "", soname="libcuda.so.1")
    overlay.link(overlay.nccl, *([stub] if needed else []), paths=("$ORIGIN/../../nvidia/nccl/lib", str(stub.parent)))
    findings = overlay.verify()
    assert list(findings) == ["forbidden"]
    assert all("a stub has no code" in str(finding) for finding in findings["forbidden"])


@pytest.mark.parametrize("release", EITHER_BUILD, ids=lambda path: "%s-%s" % (path.parts[-3], path.stem))
def test_a_build_for_cuda_is_no_finding_without_a_driver_and_fast_networks(overlay, release):
    for name, needs in NEEDED_ELSEWHERE.items():
        stand_ins = [shared(overlay.top / "elsewhere" / need, "", soname=need) for need in needs]
        shared(overlay.packages / name, "", *stand_ins, soname=name.rpartition("/")[2])
    shutil.rmtree(overlay.top / "elsewhere")
    assert "missing" not in overlay.verify(release=release)
