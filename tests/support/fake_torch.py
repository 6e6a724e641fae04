# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a build of PyTorch finds on a site, as small as it can be: NCCL, a CUDA toolkit, an MPI, MKL."""

from __future__ import annotations

import pathlib
import subprocess
import sys

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
WRAPPER = """#!/bin/sh
case ${{1-}} in
-show) echo {compiler} -I{prefix}/include -L{prefix}/lib -Wl,-rpath,{prefix}/lib -Wl,--enable-new-dtags -lmpi; exit ;;
-*version) exec {compiler} "$1" ;;
esac
exec {compiler} -I{prefix}/include "$@" -L{prefix}/lib -Wl,-rpath,{prefix}/lib -Wl,--enable-new-dtags -lmpi
"""
MPI_HEADER = """#pragma once
#define MPI_VERSION 3
#define MPI_SUBVERSION 1
#define MPI_SUCCESS 0
#define MPI_MAX_LIBRARY_VERSION_STRING 64
#ifdef __cplusplus
extern "C" {
#endif
int MPI_Init(int*, char***);
int MPI_Finalize(void);
int MPI_Get_library_version(char*, int*);
#ifdef __cplusplus
}
#endif
"""
MPI_SOURCE = """#include <mpi.h>
#include <string.h>
int MPI_Init(int* words, char*** line) { return (void)words, (void)line, MPI_SUCCESS; }
int MPI_Finalize(void) { return MPI_SUCCESS; }
int MPI_Get_library_version(char* text, int* length) {
  strcpy(text, "small MPI");
  *length = 9;
  return MPI_SUCCESS;
}
"""
NCCL_HEADER = """#pragma once
#define NCCL_MAJOR {0}
#define NCCL_MINOR {1}
#define NCCL_PATCH {2}
#define NCCL_VERSION_CODE ({0} * 10000 + {1} * 100 + {2})
enum ncclResult_t {{ ncclSuccess = 0 }};
extern "C" ncclResult_t ncclGetVersion(int* version);
"""
NCCL_SOURCE = """#include <nccl.h>
static const char* volatile banner = "NCCL version {0}.{1}.{2}+cuda11.8";
extern "C" ncclResult_t ncclGetVersion(int* version) {{
  *version = banner ? NCCL_VERSION_CODE : 0;
  return ncclSuccess;
}}
"""


def make_site(place: pathlib.Path) -> str:
    """All of it below one directory, unless it is there, with the git repositories of the sources.

    Returns:
        the commit of PyTorch's stand-in.
    """
    if str(CHECKOUT) not in sys.path:
        sys.path.insert(0, str(CHECKOUT))
    from rehearsal.repositories import make_repositories

    if not (place / "bin").exists():
        make_nccl(place / "nccl", "2.18.3")
        make_mpi(place / "mpi")
        make_cuda(place / "cuda", "11.8")
        make_mkl(place / "mkl")
        make_cudnn(place / "cudnn")
        make_redirected_compilers(place / "bin")
    return {made.name: made.commit for made in make_repositories(place / "git")}["pytorch"]


def make_nccl(prefix: pathlib.Path, version: str, header: str = "") -> None:
    """A shared libnccl of a version, with a header of the same or another one."""
    for name in ("include", "lib"):
        (prefix / name).mkdir(parents=True)
    source = prefix / "nccl.cc"
    numbers = version.split(".")
    (prefix / "include" / "nccl.h").write_text(NCCL_HEADER.format(*numbers))
    source.write_text(NCCL_SOURCE.format(*numbers))
    _compile("c++", source, prefix, "libnccl.so." + version, "-Wl,-soname,libnccl.so.2")
    for link in ("libnccl.so.2", "libnccl.so"):
        (prefix / "lib" / link).symlink_to("libnccl.so." + version)
    if header:
        (prefix / "include" / "nccl.h").write_text(NCCL_HEADER.format(*header.split(".")))


def make_mpi(prefix: pathlib.Path) -> None:
    """An MPI that can say what it is, with compiler wrappers."""
    for name in ("include", "lib", "bin"):
        (prefix / name).mkdir(parents=True)
    (prefix / "include" / "mpi.h").write_text(MPI_HEADER)
    source = prefix / "mpi.c"
    source.write_text(MPI_SOURCE)
    _compile("cc", source, prefix, "libmpi.so")
    for name, compiler in (("mpicc", "cc"), ("mpicxx", "c++")):
        _program(prefix / "bin" / name, WRAPPER.format(compiler=compiler, prefix=prefix))


def make_cuda(prefix: pathlib.Path, version: str) -> None:
    """As much of a CUDA toolkit as a build asks for its version."""
    (prefix / "bin").mkdir(parents=True)
    said = "Cuda compilation tools, release %s, V%s.0" % (version, version)
    _program(prefix / "bin" / "nvcc", '#!/bin/sh\necho "%s"\n' % said)


def make_mkl(prefix: pathlib.Path) -> None:
    """An MKL that can be found."""
    for name in ("include", "lib"):
        (prefix / name).mkdir(parents=True, exist_ok=True)
    (prefix / "include" / "mkl.h").write_text("")
    (prefix / "lib" / "libmkl_rt.so").write_text("")


def make_cudnn(prefix: pathlib.Path) -> None:
    """The header of cuDNN 8.6.0."""
    (prefix / "include").mkdir(parents=True)
    (prefix / "include" / "cudnn.h").write_text(
        "#define CUDNN_MAJOR 8\n#define CUDNN_MINOR 6\n#define CUDNN_PATCHLEVEL 0\n")


def make_redirected_compilers(directory: pathlib.Path) -> dict[str, str]:
    """Compilers that are links to one script, which does what the name says that it is called by.

    Returns:
        the variables of both.
    """
    directory.mkdir(parents=True)
    _program(directory / "redirect", """#!/bin/sh
case ${0##*/} in
gcc) exec cc "$@" ;;
g++) exec c++ "$@" ;;
esac
echo "$0: there is no compiler of this name" >&2
exit 1
""")
    for name in ("gcc", "g++"):
        (directory / name).symlink_to("redirect")
    return {"CC": str(directory / "gcc"), "CXX": str(directory / "g++")}


def _compile(compiler: str, source: pathlib.Path, prefix: pathlib.Path, library: str, *options: str) -> None:
    output = str(prefix / "lib" / library)
    words = [compiler, "-shared", "-fPIC", "-I%s/include" % prefix, *options, "-o", output, str(source)]
    subprocess.run(words, check=True)


def _program(path: pathlib.Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
