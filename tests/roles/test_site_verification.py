# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The verification rules of the Cray sites' releases, on small real objects that lie where those of a release do."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest
from ansible_collections.hpcml.torchstack.plugins.filter.verification import filled_rules
from support import sites
from support.elf_objects import program, shared

# With a PyTorch for GPUs.
CRAYS = [
    path for path in sites.RELEASES
    if (sites.load(path).get("nccl") or {}).get("plugin") and "cuda" in sites.load_release(path)
    and path.stem != "rehearsal"]
# One release for each set of rules.
RELEASES = list({json.dumps(sites.load_release(path)["verification"]): path for path in reversed(CRAYS)}.values())
LIBRARIES = ("allow_missing", "preloaded", "providers", "require", "embedded", "plugins", "forbid", "sealed", "exclude")
# What the roles link with: the places of libraries as an RPATH.
OURS = ("-Wl,--disable-new-dtags",)
BANNER = 'const char banner[] = "NCCL version 2.21.5+cuda12.2"; const char *%s(void) { return banner; }'

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc to build small libraries")


class Release:
    """A release file's rules, and a prefix of small objects that they hold for."""

    def __init__(self, definition, top):
        # Places that modules say are filled in by then.
        self.definition = dict(definition, cuda=dict(definition["cuda"], libraries=[str(top / "cudnn" / "lib")]))
        self.top = top
        self.prefix = top / "release"
        self.packages = self.prefix / "base" / "lib" / "python3.11" / "site-packages"
        self.nccl = self.prefix / "nccl"
        self.fabric = top / "libfabric"
        self.cray = top / "opt" / "cray" / "pe"

    def build(self):
        driver = shared(self.top / "driver" / "libcuda.so.1", "", soname="libcuda.so.1")
        self.layer = shared(self.cray / "lib64" / "libmpi_gtl_cuda.so.0", "", driver, soname="libmpi_gtl_cuda.so.0")
        # Of the driver nothing is left, as on a login node.
        shutil.rmtree(driver.parent)
        fabric = shared(self.fabric / "lib64" / "libfabric.so.1", "", soname="libfabric.so.1")
        # A user's libfabric would come before the one of its RUNPATH: that is the site's own way, and not sealed.
        self.mpi = shared(self.cray / "lib64" / "libmpi_gnu_91.so.12", "", fabric, soname="libmpi_gnu_91.so.12")
        library = shared(self.nccl / "lib" / "libnccl.so.2", BANNER % "nccl", soname="libnccl.so.2",
                         flags=("-Wl,-rpath,$ORIGIN", *OURS))
        self.plugin = shared(self.nccl / "lib" / "libnccl-net.so", "", fabric, flags=OURS)
        if self.definition["nccl"].get("tests"):
            self.tests = program(self.nccl / "bin" / "all_reduce_perf", library, flags=OURS)
        cuda = shared(self.packages / "torch" / "lib" / "libtorch_cuda.so", "", library, soname="libtorch_cuda.so",
                      flags=OURS)
        self.cpu = self.packages / "torch" / "lib" / "libtorch_cpu.so"
        shared(self.cpu, "", self.mpi, self.layer, soname="libtorch_cpu.so")
        shared(self.packages / "torch" / "lib" / "libtorch_python.so", "", cuda, self.cpu, soname="libtorch_python.so")
        # As PyTorch's own tools link extensions: they find libtorch where Python has mapped it.
        extension = self.packages / "torchvision" / "_C.so"
        shared(extension, "", flags=("-L%s" % cuda.parent, "-ltorch_cuda", "-ltorch_cpu"))
        # A wheel's that has NCCL without a run-path, as CuPy's: it gets what PyTorch has mapped.
        shared(self.packages / "cupy" / "nccl.so", "", flags=("-L%s" % library.parent, "-l:libnccl.so.2"))
        self.mpi4py = shared(self.packages / "mpi4py" / "MPI.cpython-311.so", "", self.mpi, self.layer)
        if "horovod" in self.definition:
            self.horovod = self.packages / "horovod" / "torch" / "mpi_lib_v2.cpython-311.so"
            shared(self.horovod, "", self.mpi, self.layer, library, flags=OURS)

    def verify(self):
        """The findings of the release's own rules: sentences by their kind."""
        words = {
            "prefix": str(self.prefix), "base": str(self.prefix / "base"), "packages": str(self.packages),
            "python": "python3", "mpi": str(self.cray), "nccl": str(self.nccl), "cuda": str(self.top / "cuda"),
            "libfabric": str(self.fabric),
        }
        written = filled_rules(self.definition["verification"]["libraries"], words, self.definition)
        # Where Cray's libraries are is no word of the rules.
        rules = json.loads(json.dumps(written).replace('"/opt/cray/pe/', '"%s/' % self.cray))
        file = self.top / "rules.json"
        file.write_text(json.dumps({name: rules[name] for name in LIBRARIES if name in rules}))
        command = [str(sites.TOP / "bin" / "verify"), str(self.prefix), "--json", "--rules", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1), done.stderr
        result = json.loads(done.stdout)
        kinds = ("missing", "misplaced", "embedded", "forbidden", "required", "versions", "unsealed", "unreadable")
        return {kind: result[kind] for kind in kinds if result[kind]}


@pytest.fixture(scope="module", params=RELEASES, ids=lambda path: "%s-%s" % (path.parts[-3], path.stem))
def made(request, tmp_path_factory):
    release = Release(sites.load_release(request.param), tmp_path_factory.mktemp("made"))
    release.build()
    return release


@pytest.fixture()
def release(made):
    """A release whose objects a test may replace: they are put back."""
    kept = made.top / "kept"
    shutil.copytree(made.prefix, kept, symlinks=True)
    yield made
    shutil.rmtree(made.prefix)
    kept.rename(made.prefix)


def test_a_release_that_is_as_it_should_be_has_no_finding_on_a_login_node_without_driver(release):
    assert release.verify() == {}


def test_s42_mpi4py_without_the_gpu_transport_layer_is_reported_with_the_remedy(release):
    shared(release.mpi4py, "", release.mpi)
    findings = release.verify()
    assert list(findings) == ["required"]
    (finding,) = findings["required"]
    assert finding["object"].endswith(release.mpi4py.name)
    assert "MPICH_GPU_SUPPORT_ENABLED is set" in str(finding) and "link with the accelerator's target" in str(finding)


def test_s42_what_else_calls_mpi_with_gpu_buffers_without_the_layer_is_reported_too(release):
    path = release.horovod if "horovod" in release.definition else release.cpu
    if "horovod" not in release.definition and "libtorch_cpu" not in str(release.definition["verification"]):
        pytest.skip("nothing else of this release hands MPI buffers of the GPU")
    shared(path, "", release.mpi, *((release.nccl / "lib" / "libnccl.so.2",) if path != release.cpu else ()),
           soname="libtorch_cpu.so" if path == release.cpu else "", flags=OURS)
    assert [finding["object"].rpartition("/")[2] for finding in release.verify()["required"]] == [path.name]


def test_s17_a_release_without_the_plugin_beside_nccl_is_reported(release):
    release.plugin.unlink()
    assert "libnccl-net.so" in str(release.verify()["missing"])


def test_s02_a_copy_of_nccl_within_pytorch_is_reported(release):
    cuda = release.packages / "torch" / "lib" / "libtorch_cuda.so"
    shared(cuda, BANNER % "torch", release.nccl / "lib" / "libnccl.so.2", flags=OURS)
    assert list(release.verify()) == ["embedded"]


def test_s02_what_a_user_s_nccl_or_plugin_could_replace_is_reported_and_no_library_of_the_site_s(release):
    nccl, torch = release.nccl / "lib" / "libnccl.so.2", release.packages / "torch" / "lib"
    shared(nccl, BANNER % "nccl", soname=nccl.name, flags=("-Wl,-rpath,$ORIGIN",))
    shared(torch / "libtorch_cuda.so", "", nccl, soname="libtorch_cuda.so")
    wrong = {("libtorch_cuda.so", nccl.name), (nccl.name, "libnccl-net.so")}
    if release.definition["nccl"].get("tests"):
        program(release.tests, nccl)
        wrong.add((release.tests.name, nccl.name))
    findings = release.verify()
    assert list(findings) == ["unsealed"]
    found = {(finding["object"].rpartition("/")[2], finding["soname"]) for finding in findings["unsealed"]}
    assert found == wrong
    assert all("goes by sockets" in finding["reason"] for finding in findings["unsealed"])
