# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Which installed packages a transaction links again."""

from __future__ import annotations

from ansible_collections.hpcml.torchstack.plugins.module_utils.conda.environment import _relinked
from ansible_collections.hpcml.torchstack.plugins.module_utils.conda.package import Package, plan
from ansible_collections.hpcml.torchstack.plugins.module_utils.conda.prefix import Record


def package(name, version="1"):
    return Package(name, version, "0", "noarch", "https://c", "", "a" * 64)


RECORDS = [
    Record(package("python", "3.11"), "", ()), Record(package("pip"), "", (), "python"),
    Record(package("libtoy"), "", ()), Record(package("toydata"), "", (), "generic"),
]
INSTALLED = [record.package for record in RECORDS]


def test_another_python_links_packages_again_that_lie_below_its_directory():
    wanted = [package("python", "3.12"), *INSTALLED[1:]]
    assert _relinked(plan(INSTALLED, wanted), RECORDS) == {"pip"}
    assert _relinked(plan(INSTALLED, [package("python", "3.12"), package("pip", "2")]), RECORDS) == set()


def test_only_what_is_damaged_is_linked_again_otherwise():
    wanted = [*INSTALLED[:3], package("toydata", "2")]
    assert _relinked(plan(INSTALLED, wanted), RECORDS) == set()
    assert _relinked(plan(INSTALLED, INSTALLED, ["libtoy"]), RECORDS) == {"libtoy"}
