# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the module of a release tells its users."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import module_words
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles import description, description_checks


def lock(*pins):
    return "".join("%s --hash=sha256:%s\n" % (pin, "0" * 64) for pin in pins)


DEFINITION = {
    "title": "PyTorch 2.13.0 with Horovod", "pytorch": {
        "version": "2.13.0", "cpu": {"hashes": {"cp311": ["sha256:0"]}}, "lock": lock("torch==2.13.0", "sympy==1.14.0"),
        "cuda_lock": lock("nvidia-nccl-cu13==2.29.7")},
    "mpi": {"lock": lock("mpich==4.3.2")}, "mpi4py": {"version": "4.1.2"}, "horovod": {"version": "0.28.1"},
    "packages": [{"name": "Einops", "version": "0.8.2", "requires": lock("xxhash==4.1.0")}],
    "bundles": [{"name": "data", "packages": ["pandas"], "lock": lock("pandas==3.1.0", "six==1.17.0")}],
    "locks": {"base": lock("numpy==2.4.6 ; python_version < '3.12'", "numpy==2.5.5 ; python_version >= '3.12'")},
}
CONTEXT = {
    "release": "1", "prefix": "/soft/1", "afterwards": "/soft/.torchstack/1", "definition": DEFINITION,
    "python": {"version": "3.11.2", "platform": "linux_x86_64"}, "mpi": {"provider": "wheel"},
    "base": {"kind": "python_overlay", "minor": "3.11", "tag": "cp311"},
}
GPUS = {"version": "2.13.0+cu130", "cuda": "13.0"}


def words(built=None, site=None, **changed):
    return module_words.describe({**CONTEXT, **changed}, "torchstack", site or {}, built or {})


def test_the_help_names_versions_start_place_and_whom_to_ask():
    assert words(site={"name": "x", "contact": "Write to us.", "documentation": "See there."})["help"] == """\
torchstack/1: PyTorch 2.13.0 with Horovod

What is in it (all packages: python3 -m pip list):
  Python   3.11.2
  PyTorch  2.13.0 (CPU)
  MPI      mpich 4.3.2
  mpi4py   4.1.2
  Horovod  0.28.1

How a program is started:
  torchrun --standalone --nproc-per-node 2 train.py
  horovodrun -np 2 python3 train.py
  mpiexec -n 2 python3 train.py

It lies in /soft/1.
How it is used: /soft/.torchstack/1/use.md

See there.
Write to us."""


def test_of_a_context_without_places_none_is_said():
    assert "/soft" not in words(prefix="", afterwards="")["help"]
    said = module_words.describe({"release": "1", "definition": {}}, "torchstack", {}, {})
    assert said["help"].startswith("torchstack/1: PyTorch\n") and said["extensions"] == []


def test_whatis_has_the_versions_on_one_line():
    assert words()["whatis"] == {
        "Description": "PyTorch 2.13.0 (CPU), Python 3.11.2, mpich 4.3.2, mpi4py 4.1.2, Horovod 0.28.1"}


@pytest.mark.parametrize(("built", "change", "said"), [
    ({}, {"cuda": {"version": "12.4"}}, "PyTorch 2.13.0 (CUDA 12.4)"),
    ({"version": "2.13.0+cu121", "cuda": "12.1"}, {"cuda": {"version": "12.4"}}, "PyTorch 2.13.0 (CUDA 12.1)"),
    (GPUS, {}, "PyTorch 2.13.0 (CUDA 13.0)"), ({"version": "2.13.0+cpu", "cuda": ""}, {}, "PyTorch 2.13.0 (CPU)"),
    ({"version": "2.8.0+rocm6.4", "cuda": ""}, {}, "PyTorch 2.8.0 (ROCm 6.4)"),
    ({}, {"pytorch": {"version": "2.13.0", "cpu": {"hashes": {"cp312": []}}}}, "PyTorch 2.13.0"),
])
def test_what_pytorch_is_built_for_is_said_of_the_one_that_is_there(built, change, said):
    assert words(built, definition={**DEFINITION, **change})["whatis"]["Description"].startswith(said + ", Python")


def test_nccl_is_the_one_that_is_compiled_or_that_of_a_wheel_for_gpus():
    assert "NCCL     2.29.7\n" in words(GPUS)["help"]
    assert "NCCL     2.28.3\n" in words(GPUS, definition={**DEFINITION, "nccl": {"version": "2.28.3"}})["help"]


def test_ranks_are_started_as_the_site_starts_them():
    found = words(jobs={"launcher": "slurm", "options": {}, "steps": {}},
                  ranks={"launcher": ["srun", "--mpi=pmix"], "nodes": 2, "per_node": 4})["help"]
    assert "  srun --mpi=pmix python3 train.py   (within a job)\n" in found and "horovodrun" not in found
    alone = {key: value for key, value in DEFINITION.items() if key not in ("horovod", "mpi4py")}
    assert "mpiexec" not in words(definition=alone)["help"]


def test_of_an_image_only_what_is_asked_for_is_known():
    found = words(definition={"base": {"kind": "container"}, "pytorch": {"version": "2.2.0"}}, mpi={
        "provider": "image"}, base={"kind": "container", "minor": "3.10", "tag": "cp310"})
    assert "torchrun" not in found["help"] and found["extensions"] == ["torch/2.2.0"]
    assert found["whatis"] == {"Description": "PyTorch 2.2.0, Python 3.10"}


def test_the_extensions_are_what_file_and_locks_name_for_this_interpreter():
    names = ["einops/0.8.2", "horovod/0.28.1", "mpi4py/4.1.2", "numpy/2.4.6", "pandas/3.1.0", "six/1.17.0",
             "sympy/1.14.0", "torch/2.13.0", "xxhash/4.1.0"]
    assert words()["extensions"] == names
    assert words(GPUS)["extensions"] == sorted([*names, "nvidia-nccl-cu13/2.29.7"])
    assert "numpy/2.5.5" in words(base={"kind": "conda", "minor": "3.12", "tag": "cp312"})["extensions"]


def test_of_a_list_of_conda_packages_those_of_python_are_among_them():
    builds = ["numpy-2.1.0-py312h1_0", "tqdm-4.67.1-pyhd8ed1ab_0", "zlib-1.3.1-h4_0", "python-3.12.1-h1_0_cpython"]
    urls = ["https://c.invalid/linux-64/%s.conda#%s" % (build, "0" * 64) for build in builds]
    base = {"kind": "conda", "lock": "\n".join(["@EXPLICIT", *urls])}
    assert words(definition={"base": base})["extensions"] == ["numpy/2.1.0", "tqdm/4.67.1"]


def test_there_is_an_end_to_them_and_what_is_asked_for_comes_first():
    many = lock(*("p%d==1" % number for number in range(2 * module_words.MOST)))
    found = words(definition={**DEFINITION, "locks": {"base": many}})["extensions"]
    assert len(found) == module_words.MOST and {"torch/2.13.0", "einops/0.8.2", "pandas/3.1.0"} <= set(found)


def test_nothing_in_it_is_what_a_modulefile_refuses():
    site = {"contact": "a\nb\x1b[31mc"}
    for definition in ({**DEFINITION, "title": "a\x07\n$b [c]"}, {**DEFINITION, "locks": {"base": "not a lock"}}, {}):
        raw = {"name": "torchstack", "version": "1", "prefix": "/soft/1", **words(site=site, definition=definition)}
        assert description_checks.find_faults(description.normalise(raw)) == []
