# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Compile a source of PyTorch's MPI backend against the torch that is installed, and put it in a wheel."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import zipfile

SOURCE = "torch/csrc/distributed/c10d/ProcessGroupMPI"
PACKAGE = "torchstack_mpi"


def included(text):
    """The headers that a source includes by <name>, in order. Those of the MPI and the backend's own are left out."""
    names = re.findall(r"^\s*#\s*include\s*<([^>]+)>", text, re.MULTILINE)
    return [name for name in names if name not in ("mpi.h", "mpi-ext.h", SOURCE + ".hpp")]


def functions_called(text):
    """The MPI functions that a source calls, sorted."""
    return sorted(set(re.findall(r"\b(MPI_[A-Z][a-z_]+)\(", text)))


def generated(texts):
    """The headers around the source, {name: content}: what it includes, and the count of its MPI calls."""
    includes = [name for text in texts for name in included(text)]
    called = functions_called("\n".join(texts))
    return {
        "includes.h": "".join("#include <%s>\n" % name for name in dict.fromkeys(includes)),
        "counted.h": "".join('#define %s(...) (count_call("%s"), %s(__VA_ARGS__))\n' % (f, f, f) for f in called),
        "uncounted.h": "".join("#undef %s\n" % name for name in called),
        "exports.map": "{ global: PyInit__backend; local: *; };\n",
    }


def language_standard(extension_builder):
    """The C++ standard that torch compiles its extensions in, from the text of torch/utils/cpp_extension.py."""
    found = re.search(r"""['"]-std=(c\+\+\d+)['"]""", extension_builder)
    return found.group(1) if found else "c++17"


def command(compiler, torch, standard, python_include, build):
    """The one command that compiles and links the library.

    Parameters:
        compiler: words of the MPI's C++ wrapper.
        torch: {"root": directory of the package, "macros": {name: value}}.
        standard: such as c++17.
        python_include: directories of Python.h.
        build: the directory of the sources and of the result.
    """
    root = torch["root"]
    include = [os.path.join(root, "include"), os.path.join(root, "include/torch/csrc/api/include"), *python_include]
    return (
        compiler
        + ["-shared", "-fPIC", "-O2", "-std=" + standard, "-Wno-deprecated-declarations"]
        + ["-fvisibility=hidden", "-fvisibility-inlines-hidden"]
        + ["-D%s=%s" % item for item in sorted(torch["macros"].items())]
        + ["-I" + build]
        + [word for directory in include for word in ("-isystem", directory)]
        + [os.path.join(build, "backend.cpp"), "-o", os.path.join(build, "_backend.so")]
        + ["-L" + os.path.join(root, "lib"), "-ltorch_python", "-ltorch_cpu", "-lc10", "-ldl"]
        + ["-Wl,-Bsymbolic", "-Wl,--version-script=" + os.path.join(build, "exports.map")]
        + ["-Wl,-rpath,$ORIGIN/../torch/lib"]
    )


def described(torch):
    """What the compiler has to know of an installed torch: where it is, and by which macros libraries share objects."""
    macros = {"_GLIBCXX_USE_CXX11_ABI": int(torch._C._GLIBCXX_USE_CXX11_ABI)}
    for name in ("COMPILER_TYPE", "STDLIB", "BUILD_ABI"):
        value = getattr(torch._C, "_PYBIND11_" + name, None)
        if value is not None:
            macros["PYBIND11_" + name] = '"%s"' % value
    return {"root": os.path.dirname(os.path.abspath(torch.__file__)), "macros": macros}


def write_wheel(path, files, version):
    """Write a wheel; the same files make the same bytes.

    Parameters:
        path: PACKAGE-VERSION-TAGS.whl.
        files: {name in the wheel: content}.
        version: of the package.
    """
    information = "%s-%s.dist-info" % (PACKAGE, version)
    tags = "-".join(os.path.basename(path)[: -len(".whl")].split("-")[2:])
    files = dict(files)
    files[information + "/METADATA"] = (
        "Metadata-Version: 2.1\nName: %s\nVersion: %s\n"
        "Summary: MPI backend of torch.distributed for an installed torch\n"
        "Requires-Dist: torch==%s\n" % (PACKAGE, version, version)
    ).encode()
    files[information + "/WHEEL"] = (
        "Wheel-Version: 1.0\nGenerator: hpcml.torchstack\nRoot-Is-Purelib: false\nTag: %s\n" % tags
    ).encode()
    files[information + "/entry_points.txt"] = b"[torch.backends]\ntorchstack_mpi = torchstack_mpi_autoload:autoload\n"
    record = information + "/RECORD"
    lines = [
        "%s,sha256=%s,%d"
        % (name, base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode(), len(content))
        for name, content in sorted(files.items())
    ]
    files[record] = ("\n".join([*lines, record + ",,"]) + "\n").encode()
    with zipfile.ZipFile(path + ".part", "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in sorted(files.items()):
            member = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            member.external_attr = (0o755 if name.endswith(".so") else 0o644) << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(member, content)
    os.replace(path + ".part", path)


def read(path):
    with open(path, "rb") as stream:
        return stream.read()


def main(tree, ours, build, wheel, compiler, name):
    import torch

    if not compiler.strip():
        sys.exit("The MPI of the release has no C++ wrapper. Name it as mpi.cxx in the release file.")
    if name == "mpi" and hasattr(torch._C._distributed_c10d, "ProcessGroupMPI"):
        sys.exit(
            "The installed torch has an MPI backend of its own, named mpi. Nothing was compiled. "
            "Give this one another name: pytorch.mpi_backend.name of the release file, as torchstack_mpi."
        )
    shutil.rmtree(build, ignore_errors=True)
    os.makedirs(build)
    shutil.copy(os.path.join(tree, SOURCE + ".cpp"), build)
    shutil.copy(os.path.join(ours, PACKAGE, "backend.cpp"), build)
    texts = [read(os.path.join(tree, SOURCE + ending)).decode() for ending in (".hpp", ".cpp")]
    for header, content in generated(texts).items():
        with open(os.path.join(build, header), "w") as stream:
            stream.write(content)
    installed = described(torch)
    standard = language_standard(read(os.path.join(installed["root"], "utils/cpp_extension.py")).decode())
    python_include = sorted({sysconfig.get_path("include"), sysconfig.get_path("platinclude")})
    words = command(shlex.split(compiler), installed, standard, python_include, build)
    print(" ".join(shlex.quote(word) for word in words), flush=True)
    done = subprocess.run(words, check=False)
    if done.returncode:
        sys.exit("The MPI backend was not compiled: see the compiler's lines above.")
    built = {
        "name": name,
        "torch": torch.__version__,
        "commit": torch.version.git_version,
        "functions": functions_called("\n".join(texts)),
    }
    write_wheel(
        wheel,
        {
            PACKAGE + "/__init__.py": read(os.path.join(ours, PACKAGE, "__init__.py")),
            PACKAGE + "/_backend.so": read(os.path.join(build, "_backend.so")),
            PACKAGE + "/built.json": json.dumps(built, indent=2, sort_keys=True).encode(),
            PACKAGE + "_autoload.py": read(os.path.join(ours, PACKAGE + "_autoload.py")),
        },
        torch.__version__.partition("+")[0],
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
