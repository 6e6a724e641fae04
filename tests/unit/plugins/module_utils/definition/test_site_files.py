# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The site's own files of a release: where they may lie, and what may be in them."""

from __future__ import annotations

import base64

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import (
    component_problems,
    left_over,
    site_files,
)

KNOWN = (
    "{base}, {cuda}, {libfabric}, {mpi}, {nccl}, {packages}, {prefix}, {python}, and texts of the release file by "
    "their keys, such as {pytorch.version}.")
KERNEL = "share/jupyter/kernels/torchstack/kernel.json"
BASE = {"prefix": "/soft/r/base", "site_packages": "/soft/r/base/lib/python3.11/site-packages"}


def coded(text):
    return base64.b64encode(text if isinstance(text, bytes) else text.encode()).decode()


def file(text="{}", **keys):
    return {"path": KERNEL, "content": coded(text), **keys}


def problems(*given, **keys):
    return site_files.problems({"release": "r", "pytorch": {"version": "2.13.0"}, "files": list(given), **keys})


def test_files_in_order_have_no_problems_and_a_release_without_any_neither():
    assert problems(file(), file("import sys\n", path="site-packages/sitecustomize.py"), file(path="bin/x")) == []
    assert problems(file("{release} {pytorch.version} {connection_file}", fill=["release", "pytorch.version"])) == []
    assert site_files.problems({}) == site_files.problems({"files": None}) == site_files.problems(None) == []
    assert problems({"path": KERNEL, "source": "files/kernel.json"}) == []


@pytest.mark.parametrize(("entry", "sentence"), [
    ({"source": "files/a"},
     "' has both source and content; keep source, a file in a directory beside the release file."),
    ({"content": "{}"}, ".content' is not base64; name a file as source, and leave content out."),
    ({"content": coded(b"x" * (site_files.LIMIT + 1))},
     "' is larger than 100 KiB; bring it as a wheel, under packages."),
    ({"path": "bin/extend-venv-activate"},
     ".path' is bin/extend-venv-activate, which belongs to the release's own command; give it another path."),
    ({"path": "etc/conda/activate.d/zz-torchstack.sh"},
     ".path' is etc/conda/activate.d/zz-torchstack.sh, which belongs to conda's activation; give it another path."),
    ({"path": "site-packages/torch-1.dist-info/RECORD"},
     ".path' is site-packages/torch-1.dist-info/RECORD, which belongs to what pip records of packages; give it another "
     "path."),
    ({"path": "site-packages/__pycache__/a.pyc"},
     ".path' is site-packages/__pycache__/a.pyc, which belongs to Python; give it another path."),
    ({"fill": ["release"]},
     ".fill' has {release}, which the file does not have; take it out there, or write it into the file."),
    ({"fill": ["module.name"]}, ".fill' has {module.name}, and nobody knows what it stands for. Known are " + KNOWN),
    ({"fill": ["pakages"]},
     ".fill' has {pakages}, and nobody knows what it stands for. Did you mean {packages}? Known are " + KNOWN),
    ({"fill": ["pytorch"]},
     ".fill' has {pytorch}, and nobody knows what it stands for. Did you mean {python}? Known are " + KNOWN),
    ({"content": coded("{nccl}"), "fill": ["nccl"]},
     ".fill' has {nccl}, and the release has no 'nccl'; take it out, or add that."),
    ({"content": coded(b"\xff{base}"), "fill": ["base"]},
     ".fill' is of a file that is no text in UTF-8; take it out."),
    ({"content": coded("https://user:geheim@example.org/")},
     "' has a password in an address in it, which everybody may read in the release; keep it in a file of the "
     "account."),
])
def test_a_file_that_cannot_be_written_is_refused_in_one_sentence(entry, sentence):
    assert problems(file(**entry)) == ["'files[0]" + sentence]


def test_a_file_without_anything_in_it_is_refused():
    assert problems({"path": KERNEL}) == [
        "'files[0]' has no source; name a file in a directory beside the release file."]


def test_two_files_cannot_have_one_place_nor_lie_below_each_other():
    assert problems(file(), file()) == [
        "'files[1].path' is %s, and so is 'files[0].path'; keep one of the two." % KERNEL]
    assert problems(file(path="share/a/b"), file(path="share/ab"), file(path="share/a")) == [
        "'files[2].path' is share/a, and 'files[0].path' is share/a/b: one of them would be a directory and a "
        "file."]


def test_a_container_has_no_files_of_the_site():
    definition = {"base": {"kind": "container"}, "files": [file()]}
    assert component_problems.problems(definition, "releases/x.yml") == [
        "'files' in releases/x.yml means nothing to a container, of which only the image has it or does without; "
        "remove it."]


def test_what_is_in_a_file_is_no_installed_package():
    assert not left_over.has({"files": [file(path="share/horovod")]}, "horovod")


def test_a_plan_says_where_each_file_lies_below_the_base_and_what_its_words_stand_for():
    definition = {"release": "r", "pytorch": {"version": "2.13.0"}}
    entries = [
        file("{base} {release} {other}", fill=["base", "release"]),
        file("#!/bin/sh\n", path="bin/site/tool", executable=True), file("", path="site-packages/a/b.py")]
    planned = site_files.planned_files(entries, BASE, {"base": BASE["prefix"]}, definition)
    assert [(one["path"], one["mode"], one["words"]) for one in planned] == [
        (KERNEL, "0644", {"base": "/soft/r/base", "release": "r"}), ("bin/site/tool", "0755", {}),
        ("lib/python3.11/site-packages/a/b.py", "0644", {})]
    assert planned[0]["content"] == entries[0]["content"] and planned[2]["name"] == "site-packages/a/b.py"
    assert site_files.planned_files([], {}, {}, {}) == []
