# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Which MPI there is, and what it says; outputs recorded from the real ones."""

from __future__ import annotations

import os

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.preflight import mpi

MPICH_SHOW = (
    "cc -I/opt/mpich/include -L/opt/mpich/lib -Wl,-rpath -Wl,/opt/mpich/lib -Wl,--enable-new-dtags -lmpi\n")
OPEN_MPI_SHOW = (
    "gcc -I/usr/lib/x86_64-linux-gnu/openmpi/include -I/usr/lib/x86_64-linux-gnu/openmpi/include/openmpi "
    "-L/usr/lib/x86_64-linux-gnu/openmpi/lib -lmpi\n")
INTEL_SHOW = (
    'gcc -I"/opt/intel/mpi/include" -L"/opt/intel/mpi/lib/release" -L"/opt/intel/mpi/lib" -Xlinker --enable-new-dtags '
    '-Xlinker -rpath -Xlinker "/opt/intel/mpi/lib/release" -Xlinker -rpath -Xlinker "/opt/intel/mpi/lib" -lmpifort '
    "-lmpi -lrt -lpthread -Wl,-z,now -Wl,-z,relro -Wl,-z,noexecstack -Wl,--enable-new-dtags "
    "-Wl,-rpath,$:$/..:$/../lib:$/../lib/release -Xlinker --enable-new-dtags -ldl\n")


@pytest.mark.parametrize(
    ("text", "compiler", "include_dirs", "library_dirs", "libraries"),
    [
        (MPICH_SHOW, "cc", ["/opt/mpich/include"], ["/opt/mpich/lib"], ["mpi"]),
        (OPEN_MPI_SHOW, "gcc",
         ["/usr/lib/x86_64-linux-gnu/openmpi/include", "/usr/lib/x86_64-linux-gnu/openmpi/include/openmpi"],
         ["/usr/lib/x86_64-linux-gnu/openmpi/lib"], ["mpi"]),
        (INTEL_SHOW, "gcc", ["/opt/intel/mpi/include"], ["/opt/intel/mpi/lib/release", "/opt/intel/mpi/lib"],
         ["mpifort", "mpi", "rt", "pthread", "dl"]),
        ("g++ -L /a -Wl,-rpath,/b -Wl,--rpath=/c -I /d\n", "g++", ["/d"], ["/a", "/b", "/c"], []),
        ("", "", [], [], []),
        ("gcc 'unfinished", "", [], [], []),
    ],
    ids=["mpich-4.3.2", "openmpi-4.1.4", "intel-2021.19", "spellings", "nothing", "broken"],
)
def test_what_a_wrapper_would_run_is_read(text, compiler, include_dirs, library_dirs, libraries):
    assert mpi.parse_show(text) == {
        "compiler": compiler, "include_dirs": include_dirs, "library_dirs": library_dirs, "libraries": libraries}


HYDRA = """\
HYDRA build details:
    Version:                                 4.3.2
    Release Date:                            Mon Oct  6 11:14:20 AM CDT 2025
    CC:                              cc
    Configure options:                       --with-device=ch4:ucx,ofi --with-pm=hydra:gforker
    Process Manager:                         pmi
"""
INTEL = """\
Intel(R) MPI Library for Linux* OS, Version 2021.19.0 Build 20260929 (id: 1821d9b)
Copyright 2003-2026, Intel Corporation.
"""


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (HYDRA, ("MPICH", "4.3.2")),
        ("mpiexec (OpenRTE) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n", ("Open MPI", "4.1.4")),
        ("mpiexec.openmpi (OpenRTE) 4.1.4\n", ("Open MPI", "4.1.4")),
        ("mpirun (Open MPI) 5.0.6\n", ("Open MPI", "5.0.6")),
        (INTEL, ("Intel", "2021.19.0")),
        ("slurm 22.05.8\n", ("Slurm", "22.05.8")),
        ("PALS version 1.2.12\n", ("PALS", "1.2.12")),
        ("mpiexec from nowhere\n", ("", "")),
        ("", ("", "")),
    ],
)
def test_a_launcher_is_recognised_by_what_it_says(text, answer):
    assert mpi.parse_launcher(text) == answer


def header(**values):
    """What a preprocessor makes of the probe, macros without a value being left as they are."""
    lines = ["# 1 \"mpi_probe.c\"", "int MPI_Init(int *, char ***);"]
    for line in mpi.HEADER_PROBE.splitlines()[1:]:
        lines.append(" ".join(str(values.get(word, word)) for word in line.split(" ")))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("values", "answer"),
    [
        ({"MPICH_VERSION": '"4.3.2"'}, ("MPICH", "4.3.2")),
        ({"OMPI_MAJOR_VERSION": 4, "OMPI_MINOR_VERSION": 1, "OMPI_RELEASE_VERSION": 4}, ("Open MPI", "4.1.4")),
        ({"MPICH_VERSION": '"3.4a2"', "I_MPI_VERSION": '"2021.19.0"'}, ("Intel", "2021.19.0")),
        ({"MPICH_VERSION": '"3.4a2"', "CRAY_MPICH_VERSION": "8.1.28"}, ("Cray MPICH", "8.1.28")),
        ({"MPICH_VERSION": '"3.3.2"', "MVAPICH2_VERSION": '"2.3.7"'}, ("MVAPICH", "2.3.7")),
        ({}, ("", "")),
    ],
)
def test_the_header_tells_the_vendor_even_of_an_mpi_that_descends_from_another(values, answer):
    assert mpi.parse_header(header(**values)) == answer


@pytest.mark.parametrize(
    ("vendor", "launcher", "answer"),
    [("Open MPI", "Open MPI", True), ("MPICH", "MPICH", True), ("Intel", "MPICH", True), ("Open MPI", "MPICH", False),
     ("MPICH", "Open MPI", False), ("Cray MPICH", "PALS", True), ("Open MPI", "Slurm", True), ("", "MPICH", True),
     ("MPICH", "", True)],
)
def test_a_launcher_of_another_family_does_not_fit(vendor, launcher, answer):
    assert mpi.fits(vendor, launcher) is answer


@pytest.fixture
def install(tmp_path):
    """Makes an installation of commands that do nothing, and returns its prefix."""

    def make(name, *commands):
        directory = tmp_path / name / "bin"
        directory.mkdir(parents=True)
        for command in commands:
            (directory / command).write_text("#!/bin/sh\n")
            (directory / command).chmod(0o755)
        return str(tmp_path / name)

    return make


def paths(prefix, *names):
    return tuple(os.path.join(prefix, "bin", name) for name in names)


def chosen(wanted, *path):
    found = mpi.find(wanted, {"PATH": ":".join(os.path.join(prefix, "bin") for prefix in path)})
    return found["provider"], found["cc"], found["cxx"], found["launcher"]


def test_the_mpi_that_is_named_goes_before_the_one_on_path_and_that_before_the_wheel(install):
    named = install("named", "mpicc", "mpicxx", "mpirun")
    other = install("other", "mpicc", "mpic++", "mpiexec", "mpirun")
    assert chosen({"prefix": named}, other) == ("named", *paths(named, "mpicc", "mpicxx", "mpirun"))
    assert chosen({}, other) == ("path", *paths(other, "mpicc", "mpic++", "mpiexec"))
    assert chosen({"allow_path": False}, other) == ("wheel", "", "", "")
    assert chosen({}) == ("wheel", "", "", "")
    assert chosen({"wheel": False}) == ("", "", "", "")


def test_an_installation_that_is_not_there_is_not_exchanged_for_another(install):
    other = install("other", "mpicc", "mpicxx")
    found = mpi.find({"prefix": "/no/such"}, {"PATH": os.path.join(other, "bin")})
    assert found["provider"] == "named" and found["cc"] == "" and found["looked_for"] == "/no/such/bin/mpicc"


def test_s05_wrappers_of_a_programming_environment_are_typed_beside_the_prefix_of_the_mpi(install):
    cray, mpich = install("cray", "cc", "CC"), install("mpich", "mpicc", "mpicxx", "mpiexec")
    wanted = {"prefix": mpich, "cc": "cc", "cxx": "CC", "launcher": "mpiexec"}
    found = mpi.find(wanted, {"PATH": ":".join([cray + "/bin", mpich + "/bin"])})
    assert (found["cc"], found["cxx"], found["bin"], found["prefix"]) == ("cc", "CC", cray + "/bin", mpich)
    assert found["launcher"] == mpich + "/bin/mpiexec"
    inside = mpi.find({"prefix": mpich, "cc": "mpicc"}, {"PATH": cray + "/bin"})
    assert inside["cc"] == mpich + "/bin/mpicc"


def test_compilers_of_other_names_are_taken_as_they_are_typed(install):
    cray = install("cray", "cc", "CC")
    pals = install("pals", "mpiexec")
    assert chosen({"cc": "cc -target-accel=nvidia80", "cxx": "CC"}, cray, pals) == (
        "named", "cc -target-accel=nvidia80", "CC", *paths(pals, "mpiexec"))
    assert chosen({"cc": "cc", "cxx": "CC", "launcher": "mpiexec"}, cray, pals)[3] == paths(pals, "mpiexec")[0]


def test_a_wrapper_for_cxx_is_only_taken_from_beside_the_one_for_c(install):
    bare = install("bare", "mpicc")
    other = install("other", "mpicxx", "mpiexec")
    assert chosen({}, bare, other) == ("path", *paths(bare, "mpicc"), "", *paths(other, "mpiexec"))


def test_an_mpi_is_asked_through_its_wrappers(tmp_path, install):
    prefix = install("mpi", "mpicc", "mpicxx", "mpiexec")
    answers = {
        "mpicc": "if [ $1 = -show ]; then echo 'cc -L/x/lib -lmpi'; else sed 's/ MPICH_VERSION$/ \"9.9\"/' $2; fi",
        "mpicxx": "echo 'c++ -L/x/lib -lmpi'",
        "mpiexec": "echo 'mpiexec (OpenRTE) 4.1.4'",
    }
    for name, body in answers.items():
        with open(os.path.join(prefix, "bin", name), "a", encoding="ascii") as stream:
            stream.write(body + "\n")
    facts = mpi.describe(mpi.find({"prefix": prefix}, os.environ), str(tmp_path), 20)
    assert (facts["vendor"], facts["version"]) == ("MPICH", "9.9")
    assert facts["header"] is True and facts["library_dirs"] == facts["cxx_library_dirs"] == ["/x/lib"]
    assert (facts["launcher_vendor"], facts["launcher_version"]) == ("Open MPI", "4.1.4")
    assert facts["prefix"] == prefix and facts["bin"] == os.path.join(prefix, "bin")


OPEN_MPI_WITHOUT_SSH = """\
--------------------------------------------------------------------------
The value of the MCA parameter "plm_rsh_agent" was set to a path
that could not be found:

  plm_rsh_agent: ssh : rsh
--------------------------------------------------------------------------
"""


def test_a_launcher_that_starts_nothing_is_told_by_its_own_words_where_it_is_tried(tmp_path, install):
    prefix = install("mpi", "mpicc", "mpiexec")
    with open(os.path.join(prefix, "bin", "mpiexec"), "a", encoding="ascii") as stream:
        stream.write("[ $1 = --version ] || { cat <<'END' >&2\n%sEND\nexit 1; }\n" % OPEN_MPI_WITHOUT_SSH)
    found = mpi.find({"prefix": prefix}, os.environ)
    facts = mpi.describe(found, str(tmp_path), 20, start=True)
    complaint = facts["launcher_complaint"]
    assert complaint.endswith("plm_rsh_agent: ssh : rsh") and "----" not in complaint
    assert mpi.describe(found, str(tmp_path), 20)["launcher_complaint"] == ""


def test_a_wrapper_that_does_not_start_is_told_by_its_own_words(tmp_path, install):
    prefix = install("mpi", "mpicc")
    with open(os.path.join(prefix, "bin", "mpicc"), "a", encoding="ascii") as stream:
        stream.write("echo 'mpicc: error while loading shared libraries: libopen-pal.so.40' >&2; exit 127\n")
    facts = mpi.describe(mpi.find({"prefix": prefix}, os.environ), str(tmp_path), 20)
    assert facts["header"] is False and facts["complaint"].endswith("libopen-pal.so.40")
    assert (facts["vendor"], facts["version"]) == ("", "")
