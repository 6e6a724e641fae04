# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The records of the verifications in the few lines of a summary."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify.summary import (
    summarise_imports,
    summarise_libraries,
)


def needed(**places):
    return {"needed": {name.replace("_", "."): {"path": path, "rule": rule} for name, (path, rule) in places.items()}}


RECORD = {
    "format": 1,
    "rules": {
        "allow_missing": [
            {"name": "libcuda*", "object": "{prefix}/base/a", "reason": "no driver"},
            {"name": "libcuda*", "object": "/opt/**", "reason": "never"},
            {"name": "*", "reason": "other"},
        ]
    },
    "objects": {
        "base/a": needed(libmpi_so=("base/lib/libmpi.so", "RUNPATH"), libcuda_so=(None, "")),
        "base/b": needed(libmpi_so=("base/bin/../lib/libmpi.so", "already loaded"), libcuda_so=(None, "")),
        "base/c": needed(libmpi_so=("/usr/lib/libmpi.so", "ld.so.cache")),
        "base/d": needed(libgomp_so=("base/lib/libgomp.so", "already loaded")),
    },
}


def test_each_file_that_a_library_comes_from_is_one_line():
    assert summarise_libraries(RECORD)["providers"] == [
        {"name": "libgomp.so", "path": "base/lib/libgomp.so", "rules": ["already loaded"], "needed_by": 1},
        {"name": "libmpi.so", "path": "/usr/lib/libmpi.so", "rules": ["ld.so.cache"], "needed_by": 1},
        {"name": "libmpi.so", "path": "base/lib/libmpi.so", "rules": ["RUNPATH"], "needed_by": 2},
    ]


def test_what_is_missing_has_the_reason_of_the_first_rule_for_it():
    summary = summarise_libraries(RECORD)
    assert summary["objects"] == 4
    assert summary["allowed"] == [
        {"name": "libcuda.so", "reason": "no driver", "needed_by": 1},
        {"name": "libcuda.so", "reason": "other", "needed_by": 1},
    ]


def test_imports_are_counted_and_keep_what_they_reported():
    record = {"modules": ["torch"], "mapped": [{"path": "a"}, {"path": "b"}], "reported": {"v": 1}, "allowed": []}
    assert summarise_imports(record) == {"modules": ["torch"], "mapped": 2, "reported": {"v": 1}, "allowed": []}


@pytest.mark.parametrize("record", [None, [], {}, {"objects": {"a": 1}, "rules": {}}, {"objects": {}}])
def test_another_files_content_is_refused(record):
    with pytest.raises(ValueError):
        summarise_libraries(record)
    with pytest.raises(ValueError):
        summarise_imports(record)
