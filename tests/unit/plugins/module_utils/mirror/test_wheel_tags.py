# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Which files pip would take."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror import wheel_tags as wheel_names
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror.wheel_tags import Interpreter

PYTHON = Interpreter("3.11.2", "cpython", "cp311", "linux_x86_64", "2.31")


def best(form, *filenames, interpreter=PYTHON):
    chooser = wheel_names.Chooser(interpreter)
    ranked = [(chooser.rank(wheel_names.parse(name, "thing"), form), name) for name in filenames]
    ranked = sorted((rank, name) for rank, name in ranked if rank is not None)
    return ranked[0][1] if ranked else None


def test_a_wheel_for_the_interpreter_comes_before_one_for_all_and_a_source():
    names = ["thing-1.0.tar.gz", "thing-1.0-py3-none-any.whl", "thing-1.0-cp39-abi3-manylinux_2_17_x86_64.whl",
             "thing-1.0-cp311-cp311-manylinux_2_17_x86_64.whl"]
    for count in range(4, 0, -1):
        assert best("any", *names[:count]) == names[count - 1]


def test_a_wheel_that_needs_a_newer_glibc_is_not_taken():
    names = ["thing-1.0-cp311-cp311-manylinux_2_35_x86_64.whl", "thing-1.0-cp311-cp311-manylinux_2_28_x86_64.whl",
             "thing-1.0-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"]
    assert best("any", *names) == names[1]
    assert best("any", *names, interpreter=PYTHON._replace(glibc="2.36")) == names[0]
    assert best("any", *names, interpreter=PYTHON._replace(glibc="2.17")) == names[2]
    assert best("any", *names, interpreter=PYTHON._replace(glibc="")) is None


def test_other_machines_interpreters_and_platforms_are_not_taken():
    for name in ("cp310-cp310-linux_x86_64", "cp311-cp311-linux_aarch64", "cp311-cp311t-linux_x86_64",
                 "cp312-abi3-linux_x86_64", "cp311-cp311-musllinux_1_2_x86_64", "py2-none-any",
                 "pp311-pypy311_pp73-any"):
        assert best("any", "thing-1.0-%s.whl" % name) is None


def test_an_interpreter_without_the_lock_takes_no_stable_abi():
    free = PYTHON._replace(version="3.13.1", abi_tag="cp313t")
    assert best("any", "thing-1.0-cp38-abi3-linux_x86_64.whl", interpreter=free) is None
    assert best("any", "thing-1.0-cp313-cp313t-linux_x86_64.whl", interpreter=free)


def test_only_the_form_that_was_asked_for_is_taken():
    names = ["thing-1.0.tar.gz", "thing-1.0-py3-none-any.whl"]
    assert best("source", *names) == names[0]
    assert best("wheel", names[0]) is None
    assert best("source", names[1]) is None


def test_the_higher_build_number_is_taken():
    names = ["thing-1.0-2-py3-none-any.whl", "thing-1.0-10-py3-none-any.whl", "thing-1.0-py3-none-any.whl"]
    assert best("any", *names) == names[1]


@pytest.mark.parametrize("filename, project, version", [
    ("typing_extensions-4.16.0-py3-none-any.whl", "typing-extensions", "4.16.0"),
    ("torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl", "torch", "2.13.0+cpu"),
    ("ruamel.yaml-0.18.tar.gz", "ruamel_yaml", "0.18"),
    ("backports-zoneinfo-0.2.1.zip", "backports.zoneinfo", "0.2.1"),
    ("thing-extra-1.0.tar.gz", "thing", "extra-1.0"),
])
def test_the_version_is_read_from_the_name(filename, project, version):
    assert wheel_names.parse(filename, project).version == version


@pytest.mark.parametrize(
    "filename", ["other-1.0-py3-none-any.whl", "thing-1.0.exe", "thing.tar.gz", "README", "thing-1.whl"])
def test_what_is_another_file_is_none(filename):
    assert wheel_names.parse(filename, "thing") is None


@pytest.mark.parametrize("asked, found, same", [
    ("1.0", "1.0", True), ("1.0", "1.0.0", True), ("1", "1.0.0", True), ("1.0", "1.0.1", False), ("10", "1", False),
    ("2.13.0", "2.13.0+cpu", True), ("2.13.0+cpu", "2.13.0", False), ("2.13.0+cpu", "2.13.0+cpu", True),
    ("1.0rc1", "1.0-RC.1", True), ("1.0a1", "1.0alpha1", True), ("1.0.post1", "1.0-post1", True),
    ("1.0", "1.0rc1", False),
])
def test_spellings_of_a_version_are_the_same(asked, found, same):
    assert wheel_names.same_version(asked, found) is same
