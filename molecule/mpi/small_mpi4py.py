# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Write a source archive of a module over MPI into a directory, the same bytes each time, and print its sha256."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import sys
import tarfile

FILES = {
    "PKG-INFO": "Metadata-Version: 2.1\nName: mpi4py\nVersion: 0.0.1\n",
    "setup.py": """import os
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

class Build(build_ext):
    def build_extensions(self):
        command = os.environ["MPICC"]
        self.compiler.set_executables(compiler_so=[command, "-fPIC"], linker_so=[command, "-shared"])
        super().build_extensions()

setup(name="mpi4py", version="0.0.1", packages=["mpi4py"], cmdclass={"build_ext": Build},
      ext_modules=[Extension("mpi4py._mpi", ["mpi.c"])])
""",
    "mpi4py/__init__.py": "class rc:\n    initialize = True\n",
    "mpi4py/MPI.py": "from mpi4py._mpi import Get_library_version\n",
    "mpi.c": r"""#include <Python.h>
#include <mpi.h>
static PyObject *version(PyObject *self, PyObject *none) {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length;
  MPI_Get_library_version(text, &length);
  return PyUnicode_FromStringAndSize(text, length);
}
static PyMethodDef methods[] = {{"Get_library_version", version, METH_NOARGS, ""}, {NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_mpi", NULL, -1, methods};
PyMODINIT_FUNC PyInit__mpi(void) { return PyModule_Create(&module); }
""",
}


def main(directory):
    """Write it."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, text in FILES.items():
            member = tarfile.TarInfo("mpi4py-0.0.1/" + name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    content = gzip.compress(raw.getvalue(), mtime=0)
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "mpi4py-0.0.1.tar.gz"), "wb") as stream:
        stream.write(content)
    print(hashlib.sha256(content).hexdigest())


if __name__ == "__main__":
    main(sys.argv[1])
