# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The module of a toolkit, loaded, and what compilers and pkg-config find after it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.cuda_toolkit import find_toolkit
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.module_system import EM
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.session import differences
from support.role_plays import play_tasks

CC = shutil.which("cc")
PKG_CONFIG = shutil.which("pkg-config")
NEEDS = pytest.mark.skipif(not (CC and PKG_CONFIG), reason="no C compiler or no pkg-config")
PARTS = {"cuda": "cuda/%s", "nvvm": "cuda/%s/nvvm", "cupti": "cuda/%s/extras/CUPTI", "math": "math_libs/%s"}
PROGRAM = "#include <cuda_runtime.h>\nint main(void) { return cudaVersionHere() == CUDA_VERSION_HERE ? 0 : 1; }\n"


def version_of(prefix):
    """The version of a whole toolkit; empty where there is none."""
    try:
        find_toolkit({"name": "cudatoolkit", "version": "any", "prefix": prefix})
        with open(os.path.join(prefix, "include", "cuda.h"), encoding="utf-8") as stream:
            number = int(re.search(r"define CUDA_VERSION (\d+)", stream.read()).group(1))
    except (StackError, OSError):
        return ""
    return "%d.%d" % (number // 1000, number % 1000 // 10)


REAL = "/usr/local/cuda"
REAL_VERSION = version_of(REAL)


def make_toolkit(sdk, version):
    """Directories like the HPC SDK's, with a library that tells the version of its toolkit."""
    major, minor = map(int, version.split("."))
    number = major * 1000 + minor * 10
    parts = {name: sdk / (pattern % version) for name, pattern in PARTS.items()}
    for part in parts.values():
        (part / "include").mkdir(parents=True)
        (part / "lib64").mkdir()
    cuda = parts["cuda"]
    (cuda / "bin").mkdir()
    (cuda / "include" / "cuda.h").write_text("#define CUDA_VERSION %d\n" % number)
    (cuda / "include" / "cuda_runtime.h").write_text(
        "#define CUDA_VERSION_HERE %d\nint cudaVersionHere(void);\n" % number)
    (parts["cupti"] / "include" / "cupti.h").write_text("#include <cuda_runtime.h>\n")
    source = sdk / "cudart.c"
    source.write_text("int cudaVersionHere(void) { return %d; }\n" % number)
    library = cuda / "lib64" / "libcudart.so"
    subprocess.run([CC, "-shared", "-fPIC", "-Wl,-soname,libcudart.so", "-o", library, source], check=True)
    (cuda / "lib64" / "stubs").mkdir()
    shutil.copy(library, cuda / "lib64" / "stubs" / "libcuda.so")
    return {name: str(path) for name, path in parts.items()}


@pytest.fixture(scope="module")
def sdk(tmp_path_factory):
    """The parts of each version of a toolkit."""
    top = tmp_path_factory.mktemp("sdk")
    return {version: make_toolkit(top, version) for version in ("11.8", "12.2")}


@pytest.fixture(scope="module")
def root(sdk, ansible_environment, tmp_path_factory):
    """A module tree as the role makes it from a site's data."""
    top = tmp_path_factory.mktemp("root")
    old, new = ({"prefix": parts["cuda"], "math": parts["math"]} for parts in (sdk["11.8"], sdk["12.2"]))
    toolkits = [
        {"version": "11.8", **old},
        {"version": "12.2", **new, "header_variables": ["C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"]},
        {"name": "cuda-first", "version": "12.2", **new, "pkg_config": "first", "header_variables": ["CPATH"]},
    ]
    if REAL_VERSION:
        toolkits.append({"name": "cuda-real", "version": REAL_VERSION, "prefix": REAL, "pkg_config": "real"})
    variables = {"torchstack_root": str(top), "torchstack_toolkits": toolkits, "modulefile_shells": ["bash"]}
    play = play_tasks("modulefile", "toolkit", variables, [{}], ansible_environment, top)
    assert play.returncode == 0, play.stdout
    return top


@pytest.fixture()
def modules(root, system, session):
    """Load and unload modules of that tree in bash."""

    def run(*commands, **environment):
        path = str(root / "modulefiles" / ("tcl" if system.kind == EM else "lmod"))
        return session(system, shutil.which("bash"), commands, MODULEPATH=path, **environment).snapshots

    return run


def ask(environment, *words, directory=None):
    """Run a program with the environment of a session; its status and what it said."""
    process = subprocess.run(
        words, env=environment, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return process.returncode, process.stdout


def flags(environment, *words):
    status, text = ask(environment, PKG_CONFIG, *words)
    assert status == 0, text
    return text.split()


@NEEDS
def test_s08_after_loading_the_headers_are_found_through_pkg_config_and_the_libraries_at_run_time(
    modules, sdk, root, tmp_path
):
    before, loaded, after = modules(
        ("load", "cudatoolkit/11.8"), ("unload", "cudatoolkit/11.8"), PE_PKGCONFIG_LIBS="libsci:mpich")
    parts, here = sdk["11.8"], loaded.environment
    assert here["PE_PKGCONFIG_LIBS"] == "ctk-11.8:libsci:mpich"
    assert here["PKG_CONFIG_PATH"] == str(root / "modulefiles" / "pkgconfig")
    assert (here["CUDA_HOME"], here["CRAY_CUDATOOLKIT_VERSION"], here["cudatoolkit_VERSION"]) == (
        parts["cuda"], "11.8", "11.8")
    assert flags(here, "--cflags", "ctk-11.8") == [
        "-I%s/include" % parts[name] for name in ("cuda", "nvvm", "cupti", "math")]
    program = tmp_path / "program.c"
    program.write_text(PROGRAM)
    assert ask(here, CC, "-c", "program.c", directory=tmp_path)[0] != 0
    words = [CC, "program.c", *flags(here, "--cflags", "--libs", "ctk-11.8")]
    assert ask(here, *words, directory=tmp_path) == (0, "")
    assert ask(here, str(tmp_path / "a.out")) == (0, "")
    assert ask(before.environment, str(tmp_path / "a.out"))[0] != 0
    assert not [name for name, value in here.items() if "/stubs" in value]
    assert not [word for word in flags(here, "--libs", "ctk-11.8") if "stubs" in word]
    assert flags(here, "--variable=stubs", "ctk-11.8") == [os.path.join(parts["cuda"], "lib64", "stubs")]
    assert differences(before, after) == []


@NEEDS
def test_s08_a_compiler_that_is_called_directly_finds_the_headers_where_a_site_wants_it(modules, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "cuda_runtime.h").write_text("#error the project's own\n")
    (tmp_path / "program.c").write_text(PROGRAM)
    (tmp_path / "program.cc").write_text(PROGRAM)
    for module, wins in (("cudatoolkit/12.2", "the project's own"), ("cuda-first/12.2", "")):
        _before, loaded = modules(("load", module))
        for name in ("program.c", "program.cc"):
            assert ask(loaded.environment, CC, "-fsyntax-only", name, directory=tmp_path) == (0, "")
        _status, text = ask(loaded.environment, CC, "-fsyntax-only", "-isystem", "own", "program.c", directory=tmp_path)
        assert wins in text and bool(wins) == bool(text)


def test_s08_one_version_at_a_time(modules, system, sdk):
    load, other = ("load", "cudatoolkit/11.8"), ("load", "cudatoolkit/12.2")
    if system.kind == EM:
        with pytest.raises(AssertionError, match="conflict"):
            modules(load, other)
        other = ("switch", "cudatoolkit/11.8", "cudatoolkit/12.2")
    before, _old, new, after = modules(load, other, ("unload", "cudatoolkit/12.2"))
    assert new.environment["CUDA_HOME"] == sdk["12.2"]["cuda"]
    assert new.environment["PE_PKGCONFIG_LIBS"] == "ctk-12.2"
    assert not [name for name, value in new.environment.items() if "cuda/11.8" in value]
    assert differences(before, after) == []


@NEEDS
@pytest.mark.skipif(not REAL_VERSION, reason="no CUDA in " + REAL)
def test_s08_a_real_toolkit(modules, tmp_path):
    (tmp_path / "program.c").write_text(
        "#include <cuda_runtime.h>\n#include <stdio.h>\n"
        "int main(void) { int v = 0; cudaRuntimeGetVersion(&v); printf(\"%d.%d\", v / 1000, v % 1000 / 10); }\n")
    _before, loaded = modules(("load", "cuda-real"))
    words = [CC, "program.c", *flags(loaded.environment, "--cflags", "--libs", "real")]
    assert ask(loaded.environment, *words, directory=tmp_path) == (0, "")
    assert ask(loaded.environment, str(tmp_path / "a.out")) == (0, REAL_VERSION)
    status, text = ask(loaded.environment, "nvcc", "--version")
    assert status == 0 and "release %s," % REAL_VERSION in text


@pytest.mark.skipif(not CC, reason="no C compiler")
def test_s08_check_do_check_do(run_module, sdk, tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    arguments = {"root": str(root), "toolkit": {"version": "11.8", "prefix": sdk["11.8"]["cuda"]}}
    planned = run_module("modulefile_toolkit", arguments, check=True, diff=True)
    assert planned.changed and not list(root.iterdir())
    assert "+Cflags: -I${prefix}/include -I${nvvm}/include -I${cupti}/include" in planned.console
    done = run_module("modulefile_toolkit", arguments)
    assert done.changed and done["written"] == planned["written"]
    assert [os.path.relpath(path, root / "modulefiles") for path in done["written"]] == [
        "pkgconfig/ctk-11.8.pc", "tcl/cudatoolkit/11.8", "lmod/cudatoolkit/11.8.lua"]
    assert all(entry["passed"] for entry in done["checked"])
    assert "bash" in {entry["shell"] for entry in done["checked"]} or len(done["not_checked"]) == 2
    assert not run_module("modulefile_toolkit", arguments, check=True).changed
    again = run_module("modulefile_toolkit", arguments)
    assert not again.changed and again["checked"] == []
    (root / "modulefiles" / "pkgconfig" / "ctk-11.8.pc").write_text("Name: somebody's\n")
    foreign = run_module("modulefile_toolkit", arguments)
    assert foreign.failed and "was not written by this collection" in foreign["msg"]
