# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What differs between two releases, and that what does not is not spoken of."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import notice_diff as differences
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle.notice_compatibility import actions, changes
from ansible_collections.hpcml.torchstack.plugins.module_utils.release.installed_records import Places

A, B = "a" * 40, "b" * 40


def side(prefix="/soft/1", components=(), python=None, conda=(), **module):
    packages = [{"name": name, "version": version, "source": "wheel"} for name, version in (python or {}).items()]
    installed = {"components": list(components), "python": packages, "conda": list(conda)}
    return differences.Side(Places.of(prefix, {}), installed, module)


def part(key, version, **more):
    return {
        "key": key,
        "name": key.partition(".")[2] or key,
        "version": version,
        "kind": "git",
        "patches": [],
        "flags": {},
        **more,
    }


def component(old, new, **sides):
    return differences.components(side(components=[old] if old else [], **sides), side(components=[new] if new else []))


def test_two_releases_that_differ_in_their_place_alone_do_not_differ():
    def of(prefix):
        return side(
            prefix,
            [part("horovod", "0.28.1", flags={"HOROVOD_NCCL_HOME": prefix + "/nccl"}, place="{prefix}/base")],
            {"numpy": "1.26.4"},
            [{"name": "mkl", "version": "2023.2", "build": "1"}],
            setenv={"CONDA_PREFIX": prefix + "/base", "ROOT": "/soft"},
            prepend=[{"name": "PATH", "values": [prefix + "/base/bin", "/opt/bin"]}],
        )

    for find in (differences.components, differences.flags, differences.packages, differences.settings):
        assert find(of("/soft/2023-10-04"), of("/soft/2026-11-21")) == []


@pytest.mark.parametrize(
    "old, new, expected",
    [
        (part("nccl", "2.18.3"), part("nccl", "2.29.7"), {"change": "up", "before": "2.18.3", "after": "2.29.7"}),
        (part("nccl", "2.29.7"), part("nccl", "2.18.3"), {"change": "down"}),
        (part("horovod", "0.28.1"), None, {"change": "removed", "before": "0.28.1", "after": ""}),
        (None, part("horovod", "0.28.1"), {"change": "added", "before": "", "after": "0.28.1"}),
        (part("apex", "0.1", commit=A), part("apex", "0.1", commit=B), {"change": "changed", "commits": [A, B]}),
        (part("cuda", "12.1", place="/opt/a"), part("cuda", "12.1", place="/opt/b"), {"places": ["/opt/a", "/opt/b"]}),
        (part("torch", "2.1", kind="wheel"), part("torch", "2.1"), {"change": "changed", "kinds": ["wheel", "git"]}),
        (part("horovod", "1", sha256=A), part("horovod", "1", sha256=B), {"change": "rebuilt"}),
    ],
)
def test_a_part_that_differs_is_told_with_what_differs_of_it(old, new, expected):
    (row,) = component(old, new)
    assert {key: row[key] for key in expected} == expected


def test_a_patch_that_is_new_gone_or_rewritten_is_named():
    old = part("horovod", "1", patches=[{"file": "1.patch", "sha256": "x"}, {"file": "2.patch", "sha256": "x"}])
    new = part("horovod", "1", patches=[{"file": "2.patch", "sha256": "y"}, {"file": "3.patch", "sha256": "x"}])
    (row,) = component(old, new)
    assert row["patches"] == {"added": ["2.patch", "3.patch"], "removed": ["1.patch", "2.patch"]}


def test_another_mpi_of_a_lower_number_is_no_older_one():
    (row,) = component(part("mpi", "8.1.28", name="CRAY MPICH"), part("mpi", "5.0.1", name="Open MPI"))
    assert (row["name"], row["change"], row["before"], row["after"]) == (
        "MPI",
        "changed",
        "CRAY MPICH 8.1.28",
        "Open MPI 5.0.1",
    )


def test_what_was_a_dependency_and_is_a_part_of_its_own_now_is_told_once_and_as_newer():
    before, after = (
        side(python={"Triton": "2.0.0"}),
        side(components=[part("packages.triton", "3.4.0")], python={"triton": "3.4.0"}),
    )
    (row,) = differences.components(before, after)
    assert (row["change"], row["before"], row["after"]) == ("up", "2.0.0", "3.4.0")
    assert differences.packages(before, after) == []


def test_build_options_are_compared_of_parts_that_both_have():
    old = [part("horovod", "1", flags={"A": "1", "B": "1", "C": "1"}), part("nccl", "1", flags={"X": "1"})]
    new = [part("horovod", "1", flags={"A": "1", "B": "2", "D": ""}), part("apex", "1", flags={"Y": "1"})]
    found = differences.flags(side(components=old), side(components=new))
    assert [(row["key"], row["name"], row["change"], row["before"], row["after"]) for row in found] == [
        ("horovod", "B", "changed", "1", "2"),
        ("horovod", "C", "removed", "1", ""),
        ("horovod", "D", "added", "", ""),
    ]


def test_a_build_option_that_names_a_place_is_shown_as_its_release_has_it():
    old = part("horovod", "1", flags={"HOME": "{prefix}/nccl"})
    new = part("horovod", "1", flags={"HOME": "{prefix}/other"})
    (row,) = differences.flags(side("/soft/1", [old]), side("/soft/2", [new]))
    assert (row["before"], row["after"]) == ("/soft/1/nccl", "/soft/2/other")


def test_packages_are_known_by_their_canonical_names_and_told_once():
    before = side(
        python={"Typing_Extensions": "4.8", "torch": "2.0", "numpy": "1.26"},
        components=[part("pytorch", "2.0")],
        conda=[
            {"name": "numpy", "version": "1.26", "build": "a"},
            {"name": "mkl", "version": "1", "build": "a"},
            {"name": "libaio", "version": "1", "build": "a"},
        ],
    )
    after = side(
        python={"typing-extensions": "4.16", "torch": "2.1", "numpy": "1.26"},
        components=[part("pytorch", "2.1")],
        conda=[{"name": "mkl", "version": "1", "build": "b"}, {"name": "magma", "version": "2", "build": "a"}],
    )
    before.installed["python"][2]["conda_package"] = "numpy"
    found = {(row["kind"], row["name"], row["change"]) for row in differences.packages(before, after)}
    assert found == {
        ("python", "typing-extensions", "up"),
        ("conda", "mkl", "rebuilt"),
        ("conda", "libaio", "removed"),
        ("conda", "magma", "added"),
    }


def test_all_that_loading_the_module_does_otherwise_is_told():
    before = side(
        setenv={"A": "1", "B": "1"},
        unsetenv=["U"],
        depends_on=["gcc/12"],
        conflicts=["x"],
        aliases={"ll": "ls"},
        prepend=[{"name": "PATH", "values": ["/soft/1/bin", "/one", "/two"]}],
    )
    after = side(
        "/soft/2",
        setenv={"A": "2", "C": "1"},
        reasons={"A": "It is faster", "C": "So"},
        depends_on=["gcc/13"],
        functions={"f": {"sh": "echo"}},
        prepend=[{"name": "PATH", "values": ["/two", "/soft/2/bin", "/three"]}],
    )
    found = {(row["kind"], row["name"], row["change"], row["reason"]) for row in differences.settings(before, after)}
    assert found == {
        ("variable", "A", "changed", "It is faster"),
        ("variable", "B", "removed", ""),
        ("variable", "C", "added", "So"),
        ("unset", "U", "removed", ""),
        ("module", "gcc/12", "removed", ""),
        ("module", "gcc/13", "added", ""),
        ("conflict", "x", "removed", ""),
        ("alias", "ll", "removed", ""),
        ("function", "f", "added", ""),
        ("directory", "PATH", "removed", ""),
        ("directory", "PATH", "added", ""),
        ("order", "PATH", "changed", ""),
    }


def test_only_interfaces_that_compiled_software_sees_are_told_and_what_to_do_about_them():
    before = {
        "python": "3.10",
        "torch": "2.0.1+cu118",
        "cuda": "11.8",
        "numpy": "1.26.0",
        "nccl": "2.18.3",
        "GLIBCXX": "3.4.29",
        "mpi": "MPICH 4.3.2",
        "libmpi": "libmpi.so.12",
        "only_old": "1",
    }
    after = {
        "python": "3.12",
        "torch": "2.0.9+cu118",
        "cuda": "11.8",
        "numpy": "1.27.1",
        "nccl": "2.18.9",
        "GLIBCXX": "3.4.32",
        "mpi": "MPICH 4.4.0",
        "libmpi": "libmpi.so.40",
    }
    rows = changes(before, after)
    assert [(row["key"], row["before"], row["after"]) for row in rows] == [
        ("python", "3.10", "3.12"),
        ("libmpi", "libmpi.so.12", "libmpi.so.40"),
        ("GLIBCXX", "3.4.29", "3.4.32"),
    ]
    said = actions(rows, {"kind": "python_overlay"}, {"before": "t/1", "after": "t/2"})
    assert said[0] == "Compile C++ and CUDA extensions of your own again, for Python 3.12."
    assert (
        said[1] == "Link MPI programs of your own again: the MPI library is libmpi.so.40 now, no longer libmpi.so.12."
    )
    assert said[2] == "Make your virtual environments anew on top of t/2: those made with t/1 do not find its packages."
    assert said[4].endswith("it has to know GLIBCXX_3.4.32.") and len(said) == 5


@pytest.mark.parametrize(
    "kind, words",
    [
        ("python_overlay", "run `extend-venv-activate` on it"),
        ("conda", "Make your virtual environments anew"),
        ("container", ""),
    ],
)
def test_a_virtual_environment_moves_on_an_overlay_alone(kind, words):
    said = actions([], {"kind": kind}, {"before": "t/1", "after": "t/2"})
    assert (words in said[0]) if words else len(said) == 1
    assert "pip install --user" in said[-1]


def test_of_a_part_the_version_counts_that_is_installed():
    before = side(components=[part("packages.einops", "0.8")], python={"einops": "0.8.1"})
    after = side(components=[part("packages.einops", "0.8")], python={"einops": "0.8.2"})
    (row,) = differences.components(before, after)
    assert (row["change"], row["before"], row["after"]) == ("up", "0.8.1", "0.8.2")


def test_the_runtime_of_cuda_is_not_told_beside_cuda():
    rows = changes({"cuda": "11.8", "libcudart": "libcudart.so.11"}, {"cuda": "12.9", "libcudart": "libcudart.so.12"})
    said = actions(rows, {"kind": "container"}, {"before": "t/1", "after": "t/2"})
    assert said[0] == "Compile C++ and CUDA extensions of your own again, for CUDA 12.9."
    said = actions(rows[1:], {"kind": "container"}, {"before": "t/1", "after": "t/2"})
    assert said[0].endswith("for CUDA runtime library libcudart.so.12.")


def test_a_lower_need_of_symbols_asks_nothing_of_anybody():
    rows = changes({"GLIBCXX": "3.4.32"}, {"GLIBCXX": "3.4.9"})
    assert len(rows) == 1 and len(actions(rows, {"kind": "container"}, {"before": "t/1", "after": "t/2"})) == 1
