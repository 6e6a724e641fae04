# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Locks leave a release file for files beside it, and everything else in it stays as it was written."""

from __future__ import annotations

import pytest
import yaml
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.locking.split import split

TEXT = """\
---
# about it
release: a
mpi:
  lock: |  # a wheel
    mpich==4.3.2 \\
        --hash=sha256:1
  allow_path: true  # why

base: {kind: conda, lock: "x"}
packages:
  - name: einops
    lock: einops==0.8.1 --hash=sha256:2
    imports: [einops]
locks:
  base: ""
  tools: |
    pip==26.3

    # about wheel
    wheel==0.48
  # of conda
  conda: |
    rattler==1
"""


def test_locks_leave_and_comments_stay():
    found = split(TEXT, yaml.safe_load(TEXT), "a")
    assert found.text == """\
---
# about it
release: a
mpi:
  lock: a/mpi.txt  # a wheel
  allow_path: true  # why

base: {kind: conda, lock: a/conda-packages.txt}
packages:
  - name: einops
    lock: a/packages/einops.txt
    imports: [einops]
locks:
  base: ""
  tools: a/tools.txt
  # of conda
  conda: a/conda.txt
"""
    assert found.files == {
        "a/mpi.txt": "mpich==4.3.2 \\\n    --hash=sha256:1\n", "a/packages/einops.txt": "einops==0.8.1 --hash=sha256:2",
        "a/tools.txt": "pip==26.3\n\n# about wheel\nwheel==0.48\n", "a/conda.txt": "rattler==1\n",
        "a/conda-packages.txt": "x"}


def test_what_is_split_already_has_nothing_to_move():
    text = split(TEXT, yaml.safe_load(TEXT), "a").text
    again = split(text, yaml.safe_load(text), "a")
    assert again.text == text and again.files == {}


def test_a_lock_in_quotes_over_several_lines_is_left_to_its_writer():
    text = 'locks:\n  base: "pip==1\n    wheel==2"\n'
    with pytest.raises(ValueError, match=r"'locks.base' goes over several lines and is no block"):
        split(text, yaml.safe_load(text), "a")


def test_the_lock_of_a_bundle_gets_a_file_of_its_name():
    text = "bundles:\n  - name: science\n    lock: |\n      scipy==1 --hash=sha256:%s\n" % ("0" * 64)
    found = split(text, yaml.safe_load(text), "a")
    assert found.text == "bundles:\n  - name: science\n    lock: a/bundles/science.txt\n"
    assert list(found.files) == ["a/bundles/science.txt"]
