# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Locks of conda packages where bin/lock has no py-rattler, and how their difference is told."""

from __future__ import annotations

import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.locking import conda
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.locking.moving import LockError


def lock(*files):
    return "@EXPLICIT\n" + "".join(
        "https://c.example/noarch/%s.conda#sha256:%s\n" % (name, digest * 64) for name, digest in files)


def test_without_py_rattler_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "rattler", None)
    content = {"base": {"channels": ["file:///nowhere"]}}
    with pytest.raises(LockError, match=r"^'base.lock' is solved by py-rattler, which is not there: install it where "
                       r"bin/lock runs, as with \"pip install 'py-rattler>=0.28'\"\.$"):
        conda.solve(content, "python\n", "", [], False, "linux-64")


def test_a_difference_is_told_by_package():
    before = lock(("a-1.0-0", "1"), ("b-1.0-0", "1"), ("c-1.0-0", "1"))
    after = lock(("a-1.0-0", "2"), ("b-2.0-h1", "1"), ("d-1.0-0", "1"))
    assert list(conda.changes(before, after)) == [
        "a 1.0: another file", "b 1.0-0 -> 2.0-h1", "c 1.0-0 -> (none)", "d (none) -> 1.0-0"]
    assert list(conda.changes(before, "# another form\n" + before)) == []


def test_specs_are_lines_without_comments():
    assert conda.specs_of("# why\npython 3.11.*  # this one\n\nmkl <2025\n") == ["python 3.11.*", "mkl <2025"]
