# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Explicit lists of conda packages."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.conda.lockfile import (
    check_platform,
    is_explicit,
    parse,
    render,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError

URL = "https://conda.anaconda.org/conda-forge/noarch/pip-24.3-pyh_0.conda"
OTHER = "file:///soft/mirror/linux-64/python-3.11.9-h1_0_cpython.conda"
DIGEST = "0123456789abcdef" * 4


@pytest.mark.parametrize("digest", [DIGEST, "sha256:" + DIGEST, DIGEST.upper()])
def test_digests_of_every_client_are_understood(digest):
    (package,) = parse("# platform: linux-64\n\n@EXPLICIT\n%s#%s\n" % (URL, digest), "lock")
    assert (package.stem, package.sha256) == ("pip-24.3-pyh_0", DIGEST)


def test_what_is_written_is_read_as_the_same():
    packages = parse("@EXPLICIT\n%s#%s\n%s#%s\n" % (URL, DIGEST, OTHER, DIGEST), "lock")
    text = render(packages, "linux-64")
    assert text.splitlines()[:2] == ["# platform: linux-64", "@EXPLICIT"] and is_explicit(text)
    assert sorted(parse(text, "lock")) == sorted(packages)


def test_order_does_not_matter_to_what_is_written():
    packages = parse("@EXPLICIT\n%s#%s\n%s#%s\n" % (URL, DIGEST, OTHER, DIGEST), "lock")
    assert render(packages, "linux-64") == render(reversed(packages), "linux-64")


@pytest.mark.parametrize("line, said", [
    (URL, "has no sha256"), (URL + "#" + "0" * 32, "has no sha256"), (URL + "#sha256:12", "has no sha256"),
    ("https://example.org/pip.whl#" + DIGEST, "not the address"), ("noarch/pip-1-0.conda#" + DIGEST, "not the address"),
    ("numpy >=1", "not the address"),
])
def test_a_line_that_pins_nothing_is_refused_with_its_number(line, said):
    with pytest.raises(StackError) as caught:
        parse("@EXPLICIT\n%s\n" % line, "base.lock")
    assert said in caught.value.message and "Line 2 of the lock base.lock" in caught.value.message


def test_a_package_twice_and_an_empty_list_are_refused():
    for text in ("@EXPLICIT\n%s#%s\n%s#%s\n" % (URL, DIGEST, URL, DIGEST), "@EXPLICIT\n"):
        with pytest.raises(StackError):
            parse(text, "lock")


def test_other_locks_are_not_taken_for_explicit_lists():
    assert not is_explicit("version: 6\nenvironments:\n")


def test_a_lock_for_another_kind_of_machine_is_refused_by_the_package_that_says_so():
    packages = parse("@EXPLICIT\n%s#%s\n%s#%s\n" % (URL, DIGEST, OTHER, DIGEST), "base.lock")
    check_platform(packages, "linux-64", "base.lock")
    with pytest.raises(StackError, match=r"^The lock base\.lock is for linux-64, as its python is"):
        check_platform(packages, "linux-aarch64", "base.lock")
