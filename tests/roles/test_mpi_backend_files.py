# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Whether a source of PyTorch fits an installed torch, and how its MPI backend is compiled, judged without either."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import shutil
import sys
import types
import zipfile

import pytest

FILES = pathlib.Path(__file__).parents[2] / "roles" / "pytorch" / "files" / "mpi_backend"
COMMIT = "1eba9b3aa3c43f86f4a2c807ac8e12c4a7767340"
SOURCE = """#include <torch/csrc/distributed/c10d/ProcessGroupMPI.hpp>
#ifdef USE_C10D_MPI
#include <map>
#include <c10/util/irange.h>
#if defined(OPEN_MPI) && OPEN_MPI
#include <mpi-ext.h> // Needed for CUDA-aware check
#endif
#include <mpi.h>
  MPI_CHECK(MPI_Bcast(data, 1, MPI_FLOAT, root, comm));
  MPI_Barrier(comm); MPI_Barrier(comm);
  AsyncWork(MPI_Request request);
"""


def load(name):
    spec = importlib.util.spec_from_file_location(name, str(FILES / (name + ".py")))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


match_source = load("match_source")
compile_backend = load("compile_backend")


def described(**changes):
    headers = {"ProcessGroupMPI.hpp": b"class", "Backend.hpp": b"base"}
    return dict({"version": "2.6.0a0\n", "commit": COMMIT, "headers": headers}, **changes)


INSTALLED = described(version="2.6.0+cpu")


def test_a_source_of_the_installed_version_matches():
    assert match_source.mismatch(described(), INSTALLED) is None


@pytest.mark.parametrize("commit", ["Unknown", "", None])
def test_a_torch_that_does_not_say_its_commit_is_judged_by_its_headers(commit):
    assert match_source.mismatch(described(), dict(INSTALLED, commit=commit)) is None


def test_a_header_that_only_one_of_both_has_says_nothing():
    theirs = dict(INSTALLED["headers"], **{"Other.hpp": b"theirs"})
    assert match_source.mismatch(described(), dict(INSTALLED, headers=theirs)) is None


@pytest.mark.parametrize(("source", "sentence"), [
    ({"version": "2.5.1"}, "The source is PyTorch 2.5.1, and the installed torch is 2.6.0+cpu."),
    ({"commit": "0" * 40},
     "The source is PyTorch's commit %s, and the installed torch was built from %s." % ("0" * 40, COMMIT)),
    ({"headers": {"Backend.hpp": b"base"}},
     "The source has no torch/csrc/distributed/c10d/ProcessGroupMPI.hpp, without which the two cannot be compared."),
    ({"version": None, "commit": "", "headers": {"ProcessGroupMPI.hpp": b"class", "Backend.hpp": b"bass"}},
     "1 of the headers in torch/csrc/distributed/c10d are not the same in the source and in the installed torch "
     "2.6.0+cpu: Backend.hpp."),
], ids=["version", "commit", "no header", "one byte of a base class"])
def test_a_source_that_does_not_match_is_refused_with_one_sentence(source, sentence):
    assert match_source.mismatch(described(**source), INSTALLED) == sentence


def test_of_many_headers_three_are_named():
    ours = {name: b"1" for name in ("ProcessGroupMPI.hpp", "A.hpp", "B.hpp", "C.hpp", "D.hpp")}
    theirs = {name: b"2" for name in ours}
    sentence = match_source.mismatch(described(headers=ours), dict(INSTALLED, headers=theirs))
    assert sentence.startswith("5 of the headers") and sentence.endswith(": A.hpp, B.hpp, C.hpp and others.")


def test_what_the_source_includes_comes_before_the_names_of_torch_are_changed():
    headers = compile_backend.generated(["#include <mutex>\n#include <map>\n", SOURCE])
    assert headers["includes.h"] == "#include <mutex>\n#include <map>\n#include <c10/util/irange.h>\n"


def test_each_mpi_function_that_the_source_calls_is_counted():
    headers = compile_backend.generated([SOURCE])
    assert headers["counted.h"].splitlines() == [
        '#define MPI_Barrier(...) (count_call("MPI_Barrier"), MPI_Barrier(__VA_ARGS__))',
        '#define MPI_Bcast(...) (count_call("MPI_Bcast"), MPI_Bcast(__VA_ARGS__))',
    ]
    assert headers["uncounted.h"].splitlines() == ["#undef MPI_Barrier", "#undef MPI_Bcast"]


def test_the_language_is_that_of_torch_s_own_extensions():
    assert compile_backend.language_standard("cflags = ['-std=c++20', '-fPIC']") == "c++20"
    assert compile_backend.language_standard("nothing") == "c++17"


def test_the_words_of_a_compiler_wrapper_stay_as_they_are():
    torch = {"root": "/t/torch", "macros": {"A": 1}}
    words = compile_backend.command(["CC", "-target-accel=nvidia80"], torch, "c++17", ["/i"], "/b")
    assert words[:2] == ["CC", "-target-accel=nvidia80"]
    assert "-Wl,--version-script=/b/exports.map" in words and "-Wl,-Bsymbolic" in words and "-DA=1" in words


def test_the_same_files_make_the_same_wheel(tmp_path):
    name = "torchstack_mpi-2.6.0-cp311-cp311-linux_x86_64.whl"
    wheels = [tmp_path / "one" / name, tmp_path / "two" / name]
    for wheel in wheels:
        wheel.parent.mkdir()
        compile_backend.write_wheel(str(wheel), {"torchstack_mpi/_backend.so": b"library"}, "2.6.0")
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
    with zipfile.ZipFile(str(wheels[0])) as archive:
        information = "torchstack_mpi-2.6.0.dist-info/"
        assert archive.read(information + "WHEEL").endswith(b"Tag: cp311-cp311-linux_x86_64\n")
        assert b"torch.backends" in archive.read(information + "entry_points.txt")
        assert b"Requires-Dist: torch==2.6.0\n" in archive.read(information + "METADATA")


class FakeBackend:
    GLOO, MPI = "gloo", "mpi"
    registered = None

    @classmethod
    def register_backend(cls, name, creator, extended_api, devices):
        cls.registered = (name, extended_api, devices)


@pytest.fixture
def imported(tmp_path, monkeypatch):
    """Imports the package with a torch that has what it asks of one; gives what torch.distributed has afterwards."""
    def import_package(name, built_in=False, built_for="2.6.0", world=4, functions=()):
        shutil.copytree(FILES / "torchstack_mpi", tmp_path / "torchstack_mpi")
        built = {"name": name, "torch": built_for, "commit": COMMIT, "functions": functions}
        (tmp_path / "torchstack_mpi" / "built.json").write_text(json.dumps(built))
        inner = types.ModuleType("torch.distributed.distributed_c10d")
        inner._MPI_AVAILABLE = built_in
        inner.is_mpi_available = lambda: inner._MPI_AVAILABLE
        inner.Backend = type("Backend", (FakeBackend,), {})
        outer = types.ModuleType("torch.distributed")
        outer.distributed_c10d, outer.is_mpi_available = inner, inner.is_mpi_available
        outer.is_available, outer.get_world_size = (lambda: True), (lambda: world)
        torch = types.ModuleType("torch")
        torch.__version__, torch.distributed = "2.6.0", outer
        torch.version = types.SimpleNamespace(git_version=COMMIT)
        bound = types.SimpleNamespace(**({"ProcessGroupMPI": object} if built_in else {}))
        torch._C = types.SimpleNamespace(_distributed_c10d=bound)
        for module in (torch, outer, inner):
            monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.delitem(sys.modules, "torchstack_mpi", raising=False)
        spec = importlib.util.spec_from_file_location("torchstack_mpi", tmp_path / "torchstack_mpi" / "__init__.py")
        package = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(package)
        return package, inner

    return import_package


def test_a_torch_without_mpi_gets_one_of_that_name(imported):
    package, inner = imported("mpi")
    assert inner.is_mpi_available() and inner.ProcessGroupMPI is package.ProcessGroupMPI


@pytest.mark.parametrize(("name", "built_in"), [("mpi", True), ("gloo", False), ("gloo", True)])
def test_a_name_that_is_taken_is_refused(imported, name, built_in):
    with pytest.raises(ImportError, match="has a backend named %s already. Give this one another name" % name):
        imported(name, built_in=built_in)


def test_beside_a_built_in_backend_it_has_a_name_of_its_own(imported):
    inner = imported("torchstack_mpi", built_in=True)[1]
    assert inner.Backend.registered == ("torchstack_mpi", True, ["cpu", "cuda"])
    assert not hasattr(inner, "ProcessGroupMPI")


def test_a_torch_that_it_was_not_compiled_for_is_refused(imported):
    with pytest.raises(ImportError, match=r"was compiled for torch 2.5.1 .* and torch 2.6.0 .* is installed here"):
        imported("mpi", built_for="2.5.1")


class Group:
    def rank(self):
        return 1

    def size(self):
        return 4


def options(ranks, rank):
    return types.SimpleNamespace(global_ranks_in_group=ranks, group_rank=rank, group_size=4)


def test_a_source_that_waits_for_all_ranks_makes_no_group_of_some(imported):
    package = imported("torchstack_mpi", built_in=True)[0]
    with pytest.raises(RuntimeError, match="torchstack_mpi makes groups of all ranks only"):
        package._create_named(options([0, 1], 0), None)


def test_a_source_that_asks_the_members_only_makes_a_group_of_some(imported, monkeypatch):
    package = imported("torchstack_mpi", built_in=True, world=8, functions=["MPI_Comm_create_group"])[0]
    monkeypatch.setattr(package.ProcessGroupMPI, "create", staticmethod(lambda ranks: Group()))
    assert package._create_named(options([0, 2, 4, 6], 1), None).size() == 4


def test_ranks_that_mpi_numbers_otherwise_are_refused(imported, monkeypatch):
    package = imported("torchstack_mpi", built_in=True)[0]
    monkeypatch.setattr(package.ProcessGroupMPI, "create", staticmethod(lambda ranks: Group()))
    assert package._create_named(options([], 1), None).rank() == 1
    with pytest.raises(RuntimeError, match=r"rank 1 of 4 to MPI, and rank 3 of 4 to torch.distributed"):
        package._create_named(options([0, 1, 2, 3], 3), None)


@pytest.mark.parametrize(("version", "open_mpi", "right"), [
    ("MPICH Version: 4.3.2", False, True), ("Open MPI v5.0.7", False, False), ("Open MPI v5.0.7", True, True),
    ("MPICH Version: 4.3.2", True, False), ("MPI VERSION : CRAY MPICH version 8.1.27", False, True),
])
def test_calls_that_another_mpi_would_answer_are_refused(imported, monkeypatch, version, open_mpi, right):
    package = imported("mpi")[0]
    library = types.SimpleNamespace(library=lambda: ("/lib/libmpi.so", version), compiled_with_open_mpi=open_mpi,
                                    end=lambda: None)
    monkeypatch.setattr(package.importlib, "import_module", lambda name: library)
    if right:
        assert package.library() == {"path": "/lib/libmpi.so", "version": version}
    else:
        with pytest.raises(ImportError, match="its MPI calls are answered by %s in /lib/libmpi.so" % version):
            package.library()
