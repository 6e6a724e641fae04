# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How it is said what a mirror lacks."""

from __future__ import annotations

from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror.lack import Lack, missing_error
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror.requirements import FILE, TREE, Need

WHEEL = Need(FILE, "numpy", "2.1.0", "locks.base", ("a" * 64, "b" * 64))
COMMIT = Need(TREE, "mpi4py", "", "mpi4py", commit="c" * 40)


def test_a_lack_names_version_digest_and_who_needs_it():
    assert Lack(WHEEL, "").described == "numpy 2.1.0 (sha256 one of 2, the first %s), for locks.base" % ("a" * 64)


def test_a_lack_says_what_was_found_instead():
    assert Lack(COMMIT, "the archive is damaged").described.endswith(
        " (commit %s), for mpi4py: the archive is damaged" % ("c" * 40))


def test_all_that_is_missing_is_one_failure():
    error = missing_error("/m", "2026-05-02", [Lack(WHEEL, ""), Lack(COMMIT, "")], False)
    assert error.message.startswith("The mirror /m lacks 2 things that release 2026-05-02 needs:\n  - numpy")
    assert [one["name"] for one in error.as_result()["missing"]] == ["numpy", "mpi4py"]


def test_where_files_may_be_fetched_the_remedy_is_another_one():
    error = missing_error("/m", "2026-05-02", [Lack(WHEEL, "")], True)
    assert error.message.startswith("1 thing that release 2026-05-02 needs cannot be found:")
    assert "pip config list" in error.remedy
