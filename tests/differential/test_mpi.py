# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What is read from MPI wrappers, against what the real MPI of this machine does with a program.

``TORCHSTACK_TEST_MPI`` may name further installations, separated by colons.
"""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.preflight import mpi

PROGRAM = """
#include <mpi.h>
#include <stdio.h>
int main(void) {
  char name[MPI_MAX_LIBRARY_VERSION_STRING];
  int length;
  MPI_Get_library_version(name, &length);
  puts(name);
  return 0;
}
"""
PREFIXES = [prefix for prefix in os.environ.get("TORCHSTACK_TEST_MPI", "").split(":") if prefix]
if shutil.which("mpicc"):
    PREFIXES.append("")


@pytest.mark.skipif(not PREFIXES, reason="no mpicc on PATH and none named by TORCHSTACK_TEST_MPI")
@pytest.mark.parametrize("prefix", PREFIXES)
def test_vendor_and_version_are_those_that_the_library_itself_reports(prefix, tmp_path):
    facts = mpi.describe(mpi.find({"prefix": prefix}, os.environ), str(tmp_path), 60)
    assert facts["header"] and facts["cxx"] and facts["launcher"], facts
    (tmp_path / "version.c").write_text(PROGRAM)
    subprocess.run([facts["cc"], "-o", str(tmp_path / "version"), str(tmp_path / "version.c")], check=True)
    environment = dict(os.environ)
    environment["LD_LIBRARY_PATH"] = ":".join([*facts["library_dirs"], environment.get("LD_LIBRARY_PATH", "")])
    said = subprocess.run(
        [str(tmp_path / "version")], stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout
    assert facts["vendor"].lower() in said.replace("Intel(R)", "Intel").lower()
    assert facts["version"] in said
    assert facts["launcher_vendor"] == facts["vendor"] and facts["launcher_version"] == facts["version"]
    libraries = [os.path.join(directory, "libmpi.so") for directory in facts["library_dirs"]]
    assert any(os.path.exists(library) for library in libraries)
    assert facts["cxx_library_dirs"] == facts["library_dirs"]
