# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What is compiled finds what is its own, wherever its release is, and another release takes the wheel over."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.elf.reader import read_elf
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.produced import binding

PROGRAM = pathlib.Path(__file__).parents[2] / "roles" / "python_tools" / "files" / "relocate-wheel"
CC = shutil.which("cc")
pytestmark = pytest.mark.skipif(CC is None, reason="there is no compiler")
ASK = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).answer())"


class Release:
    """A release with a library, and a wheel with another one that was linked with it."""

    def __init__(self, prefix, search=None):
        self.prefix, self.library = prefix, prefix / "base" / "lib"
        self.packages = self.library / "python3.11" / "site-packages"
        self.packages.mkdir(parents=True)
        (prefix / "mpi.c").write_text("int rank(void) { return 42; }\n")
        (prefix / "use.c").write_text("int rank(void);\nint answer(void) { return rank(); }\n")
        compile_with = [CC, "-shared", "-fPIC", "-o"]
        subprocess.run([*compile_with, str(self.library / "libmpi.so"), str(prefix / "mpi.c")], check=True)
        subprocess.run(
            [*compile_with, str(prefix / "use.so"), str(prefix / "use.c"), "-L%s" % self.library, "-lmpi",
             "-Wl,--enable-new-dtags,-rpath,%s" % (search or self.library)], check=True)
        self.wheel = prefix / "use-1-py3-none-any.whl"
        with zipfile.ZipFile(str(self.wheel), "w") as archive:
            archive.write(str(prefix / "use.so"), "use/deep/use.so")
            archive.writestr("use/__init__.py", "")
            archive.writestr("use-1.dist-info/RECORD", "use/__init__.py,,\nuse/deep/use.so,sha256=x,1\n")

    def make_relative(self, *options, release=None):
        places = (self.wheel, release or self.prefix, self.packages)
        command = [sys.executable, str(PROGRAM), *options, *map(str, places)]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout

    def unpacked(self):
        with zipfile.ZipFile(str(self.wheel)) as archive:
            archive.extractall(str(self.packages))
        return self.packages / "use" / "deep" / "use.so"


def test_a_wheel_works_in_another_release_when_its_own_is_gone(tmp_path):
    one = Release(tmp_path / "2026-11-20")
    assert one.make_relative() == "use/deep/use.so looks for libraries relative to itself\n"
    path = one.unpacked()
    assert read_elf(str(path)).runpath == b"$ORIGIN/../../../.."
    assert binding(str(one.wheel), [str(one.prefix).encode()], lambda: None) == []
    moved = tmp_path / "elsewhere" / "2026-12-01"
    moved.parent.mkdir()
    one.prefix.rename(moved)
    found = subprocess.run(
        [sys.executable, "-c", ASK, str(moved / path.relative_to(one.prefix))], stdout=subprocess.PIPE, check=True)
    assert found.stdout == b"42\n"


def test_the_list_of_files_is_of_what_is_in_it(tmp_path):
    one = Release(tmp_path / "one")
    one.make_relative()
    with zipfile.ZipFile(str(one.wheel)) as archive:
        content = archive.read("use/deep/use.so")
        rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(archive.read("use-1.dist-info/RECORD").decode()))}
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    assert rows == {"use/__init__.py": ["", ""], "use/deep/use.so": ["sha256=" + digest, str(len(content))]}


def test_a_runpath_becomes_an_rpath_and_ld_library_path_comes_after_it(tmp_path):
    one = Release(tmp_path / "one")
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "other.c").write_text("int rank(void) { return 7; }\n")
    subprocess.run([CC, "-shared", "-fPIC", "-o", str(other / "libmpi.so"), str(tmp_path / "other.c")], check=True)

    def answer(path):
        asked = subprocess.run([sys.executable, "-c", ASK, str(path)], stdout=subprocess.PIPE, check=True,
                               env={**os.environ, "LD_LIBRARY_PATH": str(other)})
        return asked.stdout

    assert answer(one.unpacked()) == b"7\n"
    assert "use/deep/use.so has an RPATH in place of a RUNPATH\n" in one.make_relative("--rpath")
    facts = read_elf(str(one.unpacked()))
    assert (facts.rpath, facts.runpath) == (b"$ORIGIN/../../../..", None)
    assert answer(one.unpacked()) == b"42\n"
    assert one.make_relative("--rpath") == ""


# As PyTorch 2.6.0 installs it.
ATEN = """# Find the TH includes and library
set(ATEN_FOUND 1)
set(ATEN_INCLUDE_DIR "%s/include")
set(ATEN_LIBRARIES "")
"""


def test_cmake_finds_the_headers_of_pytorch_wherever_its_wheel_is_installed(tmp_path):
    prefix = tmp_path / "one"
    built, wheel = prefix / "src" / "pytorch-2.6.0" / "torch", prefix / "torch-2.6.0-py3-none-any.whl"
    prefix.mkdir()
    name = "torch/share/cmake/ATen/ATenConfig.cmake"
    with zipfile.ZipFile(str(wheel), "w") as archive:
        archive.writestr(name, ATEN % built)
        archive.writestr("torch/said.txt", str(built))
        archive.writestr("torch-2.6.0.dist-info/RECORD", "%s,sha256=x,1\n" % name)
    command = [sys.executable, str(PROGRAM), "--installed-in", *map(str, (built, wheel, prefix, prefix / "base"))]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert said == name + " finds directories relative to itself\n"
    with zipfile.ZipFile(str(wheel)) as archive:
        assert archive.read(name).decode() == ATEN % "${CMAKE_CURRENT_LIST_DIR}/../../.."
        assert archive.read("torch/said.txt").decode() == str(built)


def test_what_comes_from_elsewhere_stays(tmp_path):
    one = Release(tmp_path / "one", search="/opt/mpi/lib:%s-other/lib" % (tmp_path / "one"))
    before = one.wheel.read_bytes()
    assert one.make_relative() == ""
    assert one.wheel.read_bytes() == before


def test_what_does_not_fit_stays_and_is_said(tmp_path):
    one = Release(tmp_path / "one", search="/r/b")
    said = one.make_relative(release="/r")
    assert said == "use/deep/use.so keeps its search path: its search path would be longer than /r/b\n"
    assert read_elf(str(one.unpacked())).runpath == b"/r/b"
