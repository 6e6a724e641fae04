# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the nccl_ofi role leaves behind, and what becomes of it when something is missing or was interrupted."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import pytest

ROOT = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "root"
PREFIX = ROOT / "2026-11-20"
LIBRARIES = PREFIX / "nccl" / "lib"
STEPS = PREFIX / ".torchstack" / "steps"
BUILD = PREFIX / "src" / "nccl" / "build"


def ask(module, arguments):
    """Whether a module of the collection was content, and what it answers."""
    with tempfile.TemporaryDirectory() as place:
        command = [os.path.join(os.path.dirname(sys.executable), "ansible"), "localhost", "-c", "local", "-t", place]
        process = subprocess.run(
            [*command, "-m", "hpcml.torchstack." + module, "-a", json.dumps(arguments)], check=False,
            stdout=subprocess.DEVNULL, env={**os.environ, "ANSIBLE_PYTHON_INTERPRETER": sys.executable})
        result = json.loads((pathlib.Path(place) / "localhost").read_text())
    return process.returncode == 0, result


def run_program(**environment):
    """NCCL's log of a program that was started in an environment of its own."""
    process = subprocess.run(
        [str(PREFIX / "nccl" / "bin" / "all_reduce_perf")], text=True, check=False, stdout=subprocess.PIPE,
        env={"NCCL_DEBUG": "INFO", **environment})
    return process.returncode, process.stdout


@contextlib.contextmanager
def without(path):
    """A file that is not there meanwhile."""
    path.rename(path.with_name("away"))
    try:
        yield
    finally:
        path.with_name("away").rename(path)


RULES = {
    "paths": [str(PREFIX / "nccl")],
    "plugins": [{"caller": "libnccl.so.2", "name": "libnccl-net.so"}],
    "providers": [
        {"name": "libnccl-net.so", "path": str(LIBRARIES / "**")},
        {"name": "libfabric.so.1", "path": str(ROOT / "libfabric" / "**")},
    ],
    "sealed": [{"name": name, "reason": "it has no plugin"} for name in ("libnccl*", "libfabric.so.1")],
}


def test_s17_the_plugin_is_found_from_nccl_by_its_run_path_and_a_missing_one_is_reported():
    content, result = ask("ldd_verify", RULES)
    assert content, result
    assert result["providers"]["libnccl-net.so"][0]["rule"].startswith("RPATH"), result["providers"]
    with without(LIBRARIES / "libnccl-net.so"):
        content, result = ask("ldd_verify", RULES)
    assert not content
    assert [missing["soname"] for missing in result["missing"]] == ["libnccl-net.so"]


def test_s02_what_nccl_tests_measure_is_the_nccl_that_they_lie_beside_whatever_a_user_has(tmp_path):
    (tmp_path / "libnccl.so.2").write_text("no library, which the loader would say")
    code, _log = run_program(LD_LIBRARY_PATH=str(tmp_path))
    assert code == 0


def test_s17_without_the_plugin_nccl_says_only_in_its_log_that_it_uses_sockets():
    code, log = run_program(NCCL_NET="AWS Libfabric")
    assert code == 0
    assert "Using network AWS Libfabric" in log and "Loaded net plugin AWS Libfabric (v6)" in log
    with without(LIBRARIES / "libnccl-net.so"):
        code, log = run_program()
        assert code == 0
        assert "NET/Plugin: No plugin found (libnccl-net.so)" in log and "Using network Socket" in log
        code, log = run_program(NCCL_NET="AWS Libfabric")
        assert code == 1
        assert "Error: network AWS Libfabric not found." in log


def test_the_record_says_what_was_built_and_for_what():
    record = json.loads((PREFIX / ".torchstack" / "nccl.json").read_text())
    assert (record["version"], record["cuda"], record["runpath"]) == ("2.21.5", "12.2", ["$ORIGIN"])
    assert record["architectures"] == ["8.0", "9.0+PTX"]
    assert record["plugin"]["used"] == 6 and record["plugin"]["libfabric"]["version"] == "1.15.2.0"
    assert record["plugin"]["runpath"] == [str(ROOT / "libfabric" / "lib64"), str(ROOT / "cuda" / "lib64")]
    assert sorted(path.name for path in LIBRARIES.iterdir() if path.suffix in (".a", ".la")) == []
    assert "Version: 2.21.5" in (LIBRARIES / "pkgconfig" / "nccl.pc").read_text()


WANTED = {
    "prefix": str(PREFIX / "nccl"), "path": str(PREFIX / ".torchstack" / "nccl.json"),
    "version": "2.21.5", "cuda": "12.2", "api": 6,
    "runpath": [str(ROOT / "libfabric" / "lib64"), str(ROOT / "cuda" / "lib64")],
}


def test_what_is_not_as_it_was_asked_for_is_refused_all_of_it_at_once():
    archive = LIBRARIES / "libnccl_static.a"
    archive.touch()
    try:
        others = {"version": "2.18.3", "cuda": "11.8", "api": 8, "runpath": ["/opt/lib"]}
        content, result = ask("nccl_ofi_record", {**WANTED, **others})
    finally:
        archive.unlink()
    assert not content
    assert result["problems"] == [
        "NCCL 2.18.3 was asked for, and nccl.h says 2.21.5",
        "NCCL 2.18.3 was asked for, and its banner says 2.21.5",
        "NCCL 2.18.3 was asked for, and nccl.pc says 2.21.5",
        "NCCL was built with CUDA 12.2, and not with 11.8",
        "lib/libnccl_static.a is there, which others could embed unseen",
        "lib/libnccl-net.so has the RPATH '%s', and not '/opt/lib'" % ":".join(WANTED["runpath"]),
        "lib/libnccl-net.so offers version 2, 3, 4, 5, 6 of the plugin interface, and version 8 was expected",
    ]


@pytest.fixture()
def build_again():
    """Run the steps' scripts by hand, as an operator would: with NCCL, what lies beside it is built again."""

    def run():
        for step in ("nccl", "nccl-plugin", "nccl-tests"):
            script = (STEPS / step / "script.sh").read_text()
            subprocess.run(["bash"], input=script, text=True, check=True, stdout=subprocess.PIPE)

    return run


def test_a_build_that_was_killed_goes_on_but_for_what_it_wrote_last(build_again):
    old, half = BUILD / "obj" / "net.o", BUILD / "obj" / "init.o"
    hours_ago = time.time() - 7200
    for path in BUILD.parent.rglob("*"):
        if path.is_file():
            os.utime(path, (hours_ago, hours_ago))
    half.write_bytes(half.read_bytes()[:100])
    (BUILD / "running").touch()
    build_again()
    assert old.stat().st_mtime == pytest.approx(hours_ago)
    assert half.stat().st_size > 100
    assert not (BUILD / "running").exists()


def test_a_tree_of_other_settings_is_not_built_on(build_again):
    (BUILD / "settings").write_text("others")
    (BUILD / "obj" / "left").touch()
    build_again()
    assert not (BUILD / "obj" / "left").exists()
    assert (LIBRARIES / "libnccl.so.2").exists() and (LIBRARIES / "libnccl-net.so").exists()


# --- beside the NCCL of PyTorch's wheel ------------------------------------------------------------------------------

OF_WHEEL = ROOT / "2026-11-21"
PACKAGES = OF_WHEEL / "base" / "packages"
LINK = PACKAGES / "nvidia" / "nccl" / "lib" / "libnccl-net.so"
TORCH = PACKAGES / "torch" / "lib" / "libtorch_cuda.so"


def run_of_wheel(**environment):
    """NCCL's log of a program that calls PyTorch's library, in an environment of its own."""
    process = subprocess.run(
        [str(OF_WHEEL / "program")], text=True, check=False, stdout=subprocess.PIPE,
        env={"NCCL_DEBUG": "INFO", **environment})
    return process.returncode, process.stdout


def record_of_wheel(**others):
    """What the record's module says of the release, asked for with other values."""
    wanted = {**WANTED, "prefix": str(OF_WHEEL / "nccl"), "path": str(OF_WHEEL / ".torchstack" / "nccl.json"),
              "wheel": str(PACKAGES / "nvidia" / "nccl")}
    return ask("nccl_ofi_record", {**wanted, **others})


def test_the_nccl_of_a_wheel_finds_the_plugin_through_pytorch_and_goes_over_sockets_without_it():
    code, log = run_of_wheel(NCCL_NET="AWS Libfabric")
    assert code == 0 and "Using network AWS Libfabric" in log, log
    with without(LINK):
        code, log = run_of_wheel()
    assert code == 0 and "Using network Socket" in log


def test_nothing_of_nccl_is_built_for_a_wheel_and_its_files_stay_as_they_are():
    steps = OF_WHEEL / ".torchstack" / "steps"
    assert sorted(path.name for path in steps.iterdir()) == [
        "nccl-plugin", "nccl-plugin-source", "nccl-plugin-wheel", "pytorch"]
    assert sorted(path.name for path in LINK.parent.iterdir()) == ["libnccl-net.so", "libnccl.so.2"]
    assert os.readlink(LINK) == "../../../../../nccl/lib/libnccl-net.so"
    assert not (OF_WHEEL / "nccl" / "lib" / "libnccl.so.2").exists()


def test_the_record_of_a_wheel_says_whose_nccl_it_is_and_how_it_finds_the_plugin():
    record = json.loads((OF_WHEEL / ".torchstack" / "nccl.json").read_text())
    assert (record["version"], record["cuda"], record["wheel"]) == ("2.21.5", "12.2", True)
    assert record["plugin"]["found_by"] == "RPATH of libtorch_cuda.so" and record["plugin"]["used"] == 6
    assert "architectures" not in record and "commit" not in record
    assert str(OF_WHEEL) not in json.dumps(dict(record, plugin=dict(record["plugin"], runpath=[])))


def test_what_does_not_go_together_with_a_wheel_is_told_all_of_it_at_once():
    with without(LINK):
        content, result = record_of_wheel(version="2.27.7", cuda="13.0")
    assert not content
    assert result["problems"] == [
        "NCCL 2.27.7 was asked for, and nccl.h of PyTorch's wheel says 2.21.5",
        "NCCL 2.27.7 was asked for, and the banner of PyTorch's wheel says 2.21.5",
        "NCCL of PyTorch's wheel was built with CUDA 12.2, and its plugin with 13.0",
        "The NCCL of PyTorch's wheel finds nothing when it opens libnccl-net.so, and not the plugin",
    ]


def test_a_pytorch_that_has_its_nccl_from_elsewhere_is_told():
    library = PACKAGES / "nvidia" / "nccl" / "lib"
    with without(library):
        library.mkdir()
        try:
            (library / "libnccl.so.2").write_bytes((library.with_name("away") / "libnccl.so.2").read_bytes())
            away = PACKAGES / "nvidia" / "cublas" / "lib"
            away.mkdir(parents=True)
            (away / "libnccl.so.2").write_bytes((library / "libnccl.so.2").read_bytes())
            content, result = record_of_wheel()
        finally:
            shutil.rmtree(PACKAGES / "nvidia" / "cublas")
            shutil.rmtree(library)
    assert not content
    assert result["problems"] == [
        "torch/lib/libtorch_cuda.so gets NCCL from %s, and not from its wheel" % (
            PACKAGES / "torch" / "lib" / "../../nvidia/cublas/lib/libnccl.so.2")]


def test_a_rule_of_the_verification_follows_pytorch_to_the_plugin_of_a_wheel():
    rules = {
        **RULES, "paths": [str(PACKAGES)], "preloaded": [str(TORCH)],
        "allow_missing": [{"name": "libcudart.so.12", "reason": "of the stand-in for CUDA"}],
        "providers": [
            {"name": "libnccl-net.so", "path": str(OF_WHEEL / "nccl" / "lib" / "**")},
            {"name": "libfabric.so.1", "path": str(ROOT / "libfabric" / "**")},
        ],
        "require": [{"object": str(TORCH), "needs": "libnccl-net.so", "reason": "Slingshot"}],
    }
    content, result = ask("ldd_verify", rules)
    assert content, result
    assert "libtorch_cuda.so" in result["providers"]["libnccl-net.so"][0]["rule"], result["providers"]
    with without(LINK):
        content, result = ask("ldd_verify", rules)
    assert not content
    assert {missing["soname"] for missing in result["missing"]} == {"libnccl-net.so"}
