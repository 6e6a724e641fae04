# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a release fetches."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror import requirements
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror.wheel_tags import Interpreter

PYTHON = Interpreter("3.11.2", "cpython", "cp311", "linux_x86_64", "2.31")
COMMIT = "52e18c894223800cb611682dce27d88050edf1de"


def pin(name, version="1.0", digit="0", marker=""):
    return "%s==%s%s \\\n    --hash=sha256:%s\n" % (name, version, marker, digit * 64)


def definition(**keys):
    return {
        "release": "2026-11-20", "base": {"kind": "python_overlay"},
        "locks": {"tools": pin("cmake"), "base": pin("numpy")},
        "mpi": {"lock": pin("mpich")}, "mpi4py": {"version": "4.1", "sha256": "4" * 64},
        "horovod": {"version": "0.28", "sha256": "5" * 64}, **keys,
    }


def needs(mpi_wheel=True, interpreter=PYTHON, **keys):
    return requirements.needs_of(definition(**keys), interpreter, mpi_wheel)


def named(found):
    return {need.name: need for need in found}


def test_all_locks_and_sources_are_needed_each_for_somebody():
    found = needs().plain
    assert [(need.name, need.who, need.form) for need in found] == [
        ("numpy", "locks.base", "any"), ("cmake", "locks.tools", "any"), ("mpich", "mpi.lock", "any"),
        ("mpi4py", "mpi4py", "source"), ("horovod", "horovod", "source"),
    ]


def test_an_mpi_of_the_machine_needs_no_wheel():
    assert "mpich" not in named(needs(mpi_wheel=False).plain)


def test_what_two_locks_name_alike_is_one_need_of_both():
    found = needs(locks={"tools": pin("pip"), "base": pin("pip")}).plain
    assert named(found)["pip"].who == "locks.base and locks.tools"
    assert [need.name for need in found].count("pip") == 1


def test_requirements_of_other_interpreters_are_left_out():
    lock = pin("networkx", "3.6", marker=" ; python_full_version < '3.12'") + pin(
        "networkx", "3.7", marker=" ; python_full_version >= '3.12'")
    assert named(needs(locks={"base": lock}).plain)["networkx"].version == "3.6"
    newer = PYTHON._replace(version="3.12.1", abi_tag="cp312")
    assert named(needs(locks={"base": lock}, interpreter=newer).plain)["networkx"].version == "3.7"


def test_the_cpu_build_of_pytorch_is_the_first_choice_where_its_hash_is_known():
    pytorch = {
        "version": "2.13.0", "lock": pin("torch", "2.13.0", "1"), "cuda_lock": pin("triton"),
        "cpu": {"index": "https://example.org/cpu", "hashes": {"cp311": "sha256:" + "2" * 64}},
    }
    choice = needs(pytorch=pytorch).pytorch
    assert (choice.first.version, choice.first.hashes, choice.first.place) == (
        "2.13.0+cpu", ("2" * 64,), "https://example.org/cpu")
    assert [need.name for need in choice.otherwise + choice.last] == ["torch", "triton"]
    other = PYTHON._replace(version="3.13.1", abi_tag="cp313")
    assert needs(pytorch=pytorch, interpreter=other).pytorch.first is None


def test_s27_a_wheel_of_one_cuda_comes_from_its_index_and_its_companions_from_the_default_one():
    pytorch = {
        "version": "2.3.1", "index": "https://example.org/cu121", "lock": pin("torch", "2.3.1+cu121", "1"),
        "cuda_lock": pin("nvidia-nccl-cu12", "2.20.5"),
    }
    choice = needs(pytorch=pytorch).pytorch
    assert choice.first is None
    assert [(need.name, need.version, need.place) for need in choice.otherwise + choice.last] == [
        ("torch", "2.3.1+cu121", "https://example.org/cu121"), ("nvidia-nccl-cu12", "2.20.5", "")]


def test_packages_bring_their_origin_and_their_locks():
    entries = [
        {"name": "einops", "version": "1.0", "licence": "MIT", "lock": pin("einops"), "requires": pin("tiny")},
        {"name": "xxhash", "version": "1.0", "licence": "BSD", "lock": pin("xxhash"), "source": True,
         "build_requires": pin("scikit-build")},
        {"name": "apex", "version": "0.1", "licence": "BSD", "repository": "https://example.org/apex",
         "commit": COMMIT},
        {"name": "far", "version": "2.0", "licence": "MIT", "archive": "https://example.org/far-2.0.zip",
         "sha256": "7" * 64},
        {"name": "placed", "version": "1.0", "licence": "MIT", "lock": pin("placed"), "index": "/wheels"},
    ]
    found = named(needs(packages=entries).plain)
    assert (found["einops"].form, found["einops"].who) == ("wheel", "package einops")
    assert found["tiny"].who == "package einops (requires)"
    assert found["xxhash"].form == "source"
    assert (found["scikit-build"].form, found["scikit-build"].who) == ("wheel", "package xxhash (build_requires)")
    assert (found["apex"].kind, found["apex"].commit) == ("tree", COMMIT)
    assert (found["far"].kind, found["far"].hashes) == ("archive", ("7" * 64,))
    assert found["placed"].place == "/wheels"


def test_git_sources_of_components_are_needed_each_once():
    source = {"repository": "https://example.org/pytorch", "tag": "v2.6.0", "commit": COMMIT}
    nccl = {
        "version": "2.21.5", "repository": "https://example.org/nccl", "commit": "1" * 40,
        "plugin": {"version": "1.6.0", "repository": "file:///sources/aws-ofi-nccl.git", "commit": "2" * 40},
        "tests": {"repository": "https://example.org/nccl-tests/", "tag": "v2.13.10", "commit": "3" * 40},
    }
    pytorch = {"version": "2.6.0", "source": source, "mpi_backend": dict(source, name="mpi")}
    found = needs(nccl=nccl, pytorch=pytorch).plain
    assert [(need.name, need.version, need.who, need.commit) for need in found if need.kind == "tree"] == [
        ("nccl", "2.21.5", "nccl", "1" * 40), ("aws-ofi-nccl", "1.6.0", "nccl.plugin", "2" * 40),
        ("nccl-tests", "v2.13.10", "nccl.tests", "3" * 40),
        ("pytorch", "2.6.0", "pytorch.source and pytorch.mpi_backend", COMMIT),
    ]
    assert [need for need in needs(nccl={"version": "2.21.5"}).plain if need.kind == "tree"] == []


def test_a_build_of_its_own_choosing_cannot_be_mirrored():
    entry = {"name": "far", "version": "2.0", "licence": "MIT", "repository": "https://example.org/far",
             "commit": COMMIT, "build_isolation": True}
    assert "give it build_requires instead" in needs(packages=[entry]).problems[0]


def test_a_conda_base_has_an_interpreter_of_its_own():
    base = {"kind": "conda", "python": "3.10"}
    lock = pin("new", marker=" ; python_version >= '3.11'") + pin("old", marker=" ; python_version < '3.11'")
    found = named(needs(base=base, locks={"base": lock, "conda": lock, "tools": ""}).plain)
    assert (found["old"].who, found["old"].for_machine) == ("locks.base", False)
    assert (found["new"].who, found["new"].for_machine) == ("locks.conda", True)


def test_what_is_installed_on_top_of_an_image_is_for_the_images_python():
    lock = pin("new", marker=" ; python_version >= '3.11'") + pin("old", marker=" ; python_version < '3.11'")
    release = {"base": {"kind": "container", "python": "3.10", "venv": {"name": "own", "lock": lock}},
               "pytorch": {"version": "2.2.0"}}
    (found,) = requirements.needs_of(release, PYTHON, False).plain
    assert (found.name, found.who) == ("old", "base.venv.lock")


@pytest.mark.parametrize("lock", ["numpy>=2\n", pin("numpy", marker=" ; nonsense == '1'")])
def test_a_lock_that_cannot_be_read_is_said(lock):
    with pytest.raises(StackError, match=r"^In locks\.base, '"):
        needs(locks={"base": lock})


def test_the_wheels_of_a_bundle_are_needed_for_it_one_by_one():
    found = named(needs(bundles=[{"name": "science", "packages": ["scipy"], "lock": pin("scipy") + pin("six")}]).plain)
    assert [(found[name].who, found[name].form) for name in ("scipy", "six")] == [("bundle science", "wheel")] * 2
