# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""With which MPI mpi4py is linked: a wrapper's own, and not one that lies beside a shared Python."""

from __future__ import annotations

import importlib.util
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

PROGRAM = pathlib.Path(__file__).parents[2] / "roles" / "mpi" / "files" / "link_of_mpi.py"


@pytest.fixture()
def world(tmp_path):
    """Two MPIs of other names, the chosen one's wrapper, and an object of an extension that calls MPI."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    source = tmp_path / "mpi.c"
    source.write_text("int MPI_Init(int *a, char ***b) { return 0; }\n")
    for name, version in (("chosen", "12"), ("systems", "40")):
        place = tmp_path / name
        place.mkdir()
        subprocess.run(
            ["gcc", "-shared", "-fPIC", source, "-Wl,-soname,libmpi.so." + version, "-o", place / "libmpi.so"],
            check=True)
    wrapper = tmp_path / "mpicc"
    wrapper.write_text(
        '#!/bin/sh\n[ "$1" = -show ] && exec echo gcc -I/x -L%s/chosen -lmpi\nexec gcc "$@" -L%s/chosen -lmpi\n'
        % (tmp_path, tmp_path))
    wrapper.chmod(0o755)
    (tmp_path / "extension.c").write_text("int MPI_Init(int *, char ***); int f(void) { return MPI_Init(0, 0); }\n")
    return tmp_path


def run(*words):
    return subprocess.run([sys.executable, str(PROGRAM), *map(str, words)], capture_output=True, text=True)


def wheel(world, *before):
    """A wheel with an extension that is linked as setuptools does: the options ``before`` come before the wrapper's."""
    built = world / "MPI.so"
    subprocess.run([world / "mpicc", "-shared", "-fPIC", *before, world / "extension.c", "-o", built], check=True)
    path = world / "mpi4py.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(built, "mpi4py/MPI.cpython-312.so")
        archive.writestr("mpi4py/readme.so.txt", "no object")
    return path


def test_an_extension_linked_with_another_mpi_than_the_wrappers_is_refused_in_one_sentence(world):
    outcome = run("judge", world / "mpicc", wheel(world, "-L%s/systems" % world))
    assert outcome.returncode == 1
    said, = outcome.stderr.strip().splitlines()
    assert said.startswith(
        "ERROR: mpi4py/MPI.cpython-312.so is compiled for the MPI of %s/mpicc, which links libmpi.so.12, " % world)
    assert "and is linked with libmpi.so.40 of another one." in said
    assert "mpi4py.environment.LDFLAGS" in said


def test_the_wrappers_directories_come_before_those_of_a_shared_python(world):
    said = run("directories", world / "mpicc").stdout.split()
    assert said == ["-L%s/chosen" % world]
    outcome = run("judge", world / "mpicc", wheel(world, *said, "-L%s/systems" % world))
    assert (outcome.returncode, outcome.stderr) == (0, "")


def test_a_wrapper_that_does_not_say_what_it_links_adds_nothing(world):
    quiet = world / "cc"
    quiet.write_text("#!/bin/sh\nexit 1\n")
    quiet.chmod(0o755)
    assert run("directories", quiet).stdout == "\n"
    assert run("judge", quiet, wheel(world, "-L%s/systems" % world)).returncode == 0


@pytest.mark.parametrize(
    ("found", "others"),
    [
        ({"libmpi.so.12"}, set()),
        ({"libmpi.so.12", "libmpi_gtl_cuda.so.0"}, set()),
        ({"libmpi.so.12", "libmpi.so.40"}, {"libmpi.so.40"}),
        ({"libmpich.so.12"}, {"libmpich.so.12"}),
        (set(), set()),
    ],
)
def test_what_an_mpi_has_besides_is_its_own_and_another_version_of_its_library_is_not(found, others):
    spec = importlib.util.spec_from_file_location("link_of_mpi", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.foreign(found, {"libmpi.so.12"}) == others


def test_the_script_of_mpi4py_sets_them_before_it_builds_and_judges_before_it_keeps_the_wheel():
    script = (PROGRAM.parents[1] / "templates" / "mpi4py.sh.j2").read_text()
    order = ("link_of_mpi directories", " pip wheel ", "link_of_mpi judge", "/relocate-wheel ")
    places = [script.index(words) for words in order]
    assert places == sorted(places)
