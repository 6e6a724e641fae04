# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a transaction takes out of a prefix, and how it comes back."""

from __future__ import annotations

import json
import os

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.conda import prefix as conda_prefix
from ansible_collections.hpcml.torchstack.plugins.module_utils.conda import rollback as conda_aside


def add(prefix, stem, files):
    """Install a package by hand."""
    name, version, build = stem.split("-")
    for path, text in files.items():
        (prefix / path).parent.mkdir(parents=True, exist_ok=True)
        (prefix / path).write_text(text)
    (prefix / "conda-meta").mkdir(exist_ok=True)
    record = {"name": name, "version": version, "build": build, "paths_data": {
        "paths": [{"_path": path, "path_type": "hardlink"} for path in files]
    }}
    (prefix / "conda-meta" / (stem + ".json")).write_text(json.dumps(record))


def found(prefix):
    """Every file with its content."""
    return {str(path.relative_to(prefix)): path.read_text() for path in sorted(prefix.rglob("*")) if path.is_file()}


@pytest.fixture()
def prefix(tmp_path):
    """A prefix with a package, a file of its own, and a transaction that has begun."""
    top = tmp_path / "base"
    add(top, "tool-1-0", {"bin/tool": "one", "share/tool/data": "old"})
    (top / "share" / "own").write_text("own")
    (top / "conda-meta" / "history").write_text("history\n")
    (tmp_path / "record").write_text("before")
    return top


def begun(prefix, records):
    conda_aside.begin(str(prefix), str(prefix.parent / "record"))
    (prefix.parent / "record").write_text("journal")
    conda_aside.put(str(prefix), records, [record.package for record in records])
    assert not (prefix / "bin" / "tool").exists() and (prefix / "share" / "own").exists()


@pytest.mark.parametrize("new", [
    {"bin/tool": "two", "share/new": "new"}, {"bin/tool/deep": "a directory now"}, {"share/tool": "a file now"}, {},
])
def test_what_was_put_aside_comes_back_and_the_new_goes(prefix, new):
    records = conda_prefix.read_records(str(prefix))
    kept = conda_prefix.unowned(str(prefix), records)
    before = found(prefix)
    begun(prefix, records)
    if "share/tool" in new:
        (prefix / "share" / "tool").rmdir()
    if new:
        add(prefix, "tool-2-0", new)
    (prefix / "conda-meta" / "half-1-0.json").write_text("")
    (prefix / "conda-meta" / "history").write_text("history\nmore\n")
    conda_aside.take_back(str(prefix), str(prefix.parent / "record"), [one.package for one in records], kept)
    assert found(prefix) == before
    assert (prefix.parent / "record").read_text() == "before"
    assert not conda_aside.left(str(prefix))


def test_another_build_under_the_same_record_leaves_nothing_of_its_own(prefix):
    records = conda_prefix.read_records(str(prefix))
    kept = conda_prefix.unowned(str(prefix), records)
    before = found(prefix)
    begun(prefix, records)
    add(prefix, "tool-1-0", {"bin/tool": "rebuilt", "share/rebuilt": "new"})
    conda_aside.take_back(str(prefix), str(prefix.parent / "record"), [one.package for one in records], kept)
    assert found(prefix) == before


def test_what_a_killed_run_brought_is_not_put_aside_in_place_of_what_was_there_first(prefix):
    records = conda_prefix.read_records(str(prefix))
    kept = conda_prefix.unowned(str(prefix), records)
    before = found(prefix)
    begun(prefix, records)
    add(prefix, "tool-2-0", {"bin/tool": "two"})
    conda_aside.put(str(prefix), conda_prefix.read_records(str(prefix)), [one.package for one in records])
    conda_aside.take_back(str(prefix), str(prefix.parent / "record"), [one.package for one in records], kept)
    assert found(prefix) == before


def test_a_complete_transaction_leaves_nothing_aside_and_no_empty_directory(prefix):
    records = conda_prefix.read_records(str(prefix))
    begun(prefix, records)
    conda_aside.drop(str(prefix))
    assert found(prefix) == {"conda-meta/history": "history\n", "share/own": "own"}
    assert sorted(os.listdir(str(prefix))) == ["conda-meta", "share"] and not conda_aside.left(str(prefix))


def test_what_is_aside_is_no_part_of_the_prefix(prefix):
    records = conda_prefix.read_records(str(prefix))
    kept = conda_prefix.unowned(str(prefix), records)
    conda_aside.begin(str(prefix), str(prefix.parent / "record"))
    assert conda_prefix.unowned(str(prefix), records) == kept == ["conda-meta/history", "share/own"]
    assert conda_prefix.sweep(str(prefix), records, kept) == [] and conda_aside.exists(str(prefix))
