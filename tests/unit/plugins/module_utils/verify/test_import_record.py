# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Records of verifications: what stands in them, and what is made of the static one."""

from __future__ import annotations

import json
import os

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.elf.process_map import Library
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify.import_checks import Brought
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify.import_record import (
    as_record,
    read_static,
    release_of,
)


def brought(path, step="torch", deleted=False):
    return Brought(step, Library(os.fsencode(path), b"s", ("stat", "0:1", 1), deleted, True))


@pytest.mark.parametrize(
    "record, release", [("/r/.torchstack/imports.json", "/r"), ("/records/imports.json", "/records")]
)
def test_a_record_is_about_the_directory_that_its_own_directory_lies_in(record, release):
    assert release_of(record) == release


def test_the_record_holds_relative_paths_and_nothing_that_differs_from_run_to_run(tmp_path):
    release, scratch = str(tmp_path / "r"), str(tmp_path / "scratch")
    mapped = [
        brought(release + "/lib/libx.so"), brought("/usr/lib/liby.so"), brought(release + "/gone.so", deleted=True),
        brought(scratch + "/home/cache/built.so"),
    ]
    allowed = [{"kind": "duplicates", "soname": "s", "path": release + "/lib/libx.so", "reason": "why"}]
    record = as_record(release, release + "/bin/python3", "3.11.2", ["torch"], mapped, {"a": 1}, allowed, scratch)
    assert record == {
        "format": 1, "python": "bin/python3", "python_version": "3.11.2", "modules": ["torch"], "reported": {"a": 1},
        "mapped": [
            {"path": "lib/libx.so", "soname": "s", "brought_by": "torch"},
            {"path": "/usr/lib/liby.so", "soname": "s", "brought_by": "torch"},
        ],
        "allowed": [{"kind": "duplicates", "soname": "s", "path": "lib/libx.so", "reason": "why"}],
    }


@pytest.fixture()
def release(tmp_path):
    top = tmp_path / "release"
    (top / ".torchstack").mkdir(parents=True)
    (top / "lib").mkdir()
    for name in ("libx.so.1.0", "liby.so"):
        (top / "lib" / name).write_text("")
    (top / "lib" / "libx.so.1").symlink_to("libx.so.1.0")
    link = tmp_path / "link"
    link.symlink_to(top)
    return link


def write(release, record):
    path = release / ".torchstack" / "verification.json"
    path.write_text(record if isinstance(record, str) else json.dumps(record))
    return str(path)


def objects(**more):
    needed = {
        "libx.so.1": {"path": "lib/libx.so.1", "rule": "RUNPATH"},
        "libc.so.6": {"path": "/nowhere/libc.so.6", "rule": "ld.so.cache"},
        "libcuda.so.1": {"path": None, "rule": ""},
    }
    return {"format": 1, "rules": {}, "objects": {"lib/liby.so": dict({"needed": needed}, **more)}}


def test_what_was_found_for_a_mapped_object_is_read_with_links_resolved(release):
    real = os.path.realpath(str(release))
    mapped = [brought(real + "/lib/liby.so"), brought("/usr/lib/libc.so.6")]
    edges = read_static(write(release, objects()), True).of(mapped)
    assert [(edge.name, edge.path) for edge in edges] == [
        (b"libc.so.6", b"/nowhere/libc.so.6"), (b"libx.so.1", os.fsencode(real) + b"/lib/libx.so.1.0"),
    ]


def test_what_a_rule_says_is_opened_is_known_as_that(release):
    record = dict(objects(), rules={"plugins": [{"caller": "liby.so", "name": "libx.so.1"}]})
    edges = read_static(write(release, record), True).of([brought(os.path.realpath(str(release)) + "/lib/liby.so")])
    assert {edge.name: edge.opened for edge in edges} == {b"libc.so.6": False, b"libx.so.1": True}


def test_without_a_library_path_what_the_record_says_of_that_counts(release):
    path = write(release, objects(needed_without={"libx.so.1": {"path": "/other/libx.so.1", "rule": "RUNPATH"}}))
    mapped = [brought(os.path.realpath(str(release)) + "/lib/liby.so")]
    places = [
        {edge.name: edge.path for edge in read_static(path, flag).of(mapped)}[b"libx.so.1"] for flag in (True, False)
    ]
    assert places == [os.fsencode(os.path.realpath(str(release))) + b"/lib/libx.so.1.0", b"/other/libx.so.1"]


def test_a_path_that_is_not_utf8_is_found_again(release):
    real = os.fsencode(os.path.realpath(str(release)))
    open(real + b"/lib/\xff.so", "wb").close()
    needed = {"\\xff.so": {"path": "lib/\\xff.so", "rule": "RUNPATH"}}
    path = write(release, {"format": 1, "objects": {"lib/liby.so": {"needed": needed}}})
    [edge] = read_static(path, True).of([brought(os.fsdecode(real) + "/lib/liby.so")])
    assert edge.path == real + b"/lib/\xff.so"


def test_a_record_of_another_directory_is_refused_instead_of_comparing_nothing(release):
    mapped = [brought(os.path.realpath(str(release)) + "/elsewhere/libz.so")]
    with pytest.raises(StackError, match="knows none of the libraries"):
        read_static(write(release, objects()), True).of(mapped)


@pytest.mark.parametrize("record", [
    "{", "[]", {"format": 2, "objects": {}}, {"format": 1}, {"format": 1, "objects": {"a": {}}},
    {"format": 1, "objects": {"a": {"needed": {"b": {}}}}}, {"format": 1, "objects": {"a": {"needed": {"b": "c"}}}},
])
def test_what_is_not_a_static_record_is_refused_with_the_remedy(release, record):
    with pytest.raises(StackError) as caught:
        read_static(write(release, record), True)
    assert "ldd_verify" in caught.value.remedy


def test_a_missing_static_record_is_refused(release):
    with pytest.raises(StackError, match="There is no record"):
        read_static(str(release / "none.json"), True)
