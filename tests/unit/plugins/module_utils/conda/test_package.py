# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Transactions between sets of conda packages, and what an operator reads of them."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.conda.package import (
    Package,
    as_result,
    package_of_url,
    plan,
    render,
    replace_start,
    restored,
)

CHANNEL = "https://conda.anaconda.org/conda-forge"


def package(name, version="1.0", build="0", sha256="a" * 64, channel=CHANNEL):
    url = "%s/noarch/%s-%s-%s.conda" % (channel, name, version, build)
    return Package(name, version, build, "noarch", channel, url, sha256)


def test_packages_are_added_removed_changed_and_left():
    transaction = plan([package("a"), package("b"), package("c")], [package("b", "2.0"), package("c"), package("d")])
    assert [one.name for one in transaction.added] == ["d"]
    assert [one.name for one in transaction.removed] == ["a"]
    assert [(one.before.version, one.after.version) for one in transaction.changed] == [("1.0", "2.0")]
    assert transaction.repaired == () and not transaction.is_empty


@pytest.mark.parametrize("other", [
    package("a", version="2.0"), package("a", build="1"), package("a", sha256="b" * 64),
    package("a")._replace(subdir="linux-64"),
])
def test_a_package_of_another_version_build_subdir_or_digest_is_another_one(other):
    assert len(plan([package("a")], [other]).changed) == 1


def test_the_same_archive_from_a_mirror_is_the_same_package():
    assert plan([package("a")], [package("a", channel="file:///soft/mirror")]).is_empty


def test_a_damaged_package_is_linked_again_unless_it_is_replaced_or_removed_anyway():
    have = [package("a"), package("b"), package("c")]
    transaction = plan(have, [package("a"), package("b", "2.0")], ["a", "b", "c"])
    assert [one.name for one in transaction.repaired] == ["a"]


def test_nothing_to_do_is_empty_and_renders_nothing():
    transaction = plan([package("a")], [package("a")])
    assert transaction.is_empty and render(transaction) == {"before": "", "after": ""}


def test_the_difference_names_version_build_and_channel_of_both_sides():
    transaction = plan([package("a"), package("b")], [package("a", "2.0", "py_1"), package("b")], ["b"])
    assert render(transaction) == {
        "before": "a 1.0 0 (%s/noarch)\nb 1.0 0 (%s/noarch), damaged\n" % (CHANNEL, CHANNEL),
        "after": "a 2.0 py_1 (%s/noarch)\nb 1.0 0 (%s/noarch)\n" % (CHANNEL, CHANNEL),
    }


def test_the_result_holds_plain_data_of_both_sides_of_a_change():
    change = as_result(plan([package("a")], [package("a", "2.0")]))["changed_packages"]
    assert change == [{
        "name": "a", "sha256": "a" * 64, "version_before": "1.0", "version": "2.0", "build_before": "0", "build": "0",
        "channel_before": CHANNEL, "channel": CHANNEL,
    }]


@pytest.mark.parametrize("name, expected", [
    ("linux-64/aws-ofi-nccl-1.9.1-h1_0.conda", ("aws-ofi-nccl", "1.9.1", "h1_0", "linux-64")),
    ("noarch/pip-24.3-pyh8b19718_0.tar.bz2", ("pip", "24.3", "pyh8b19718_0", "noarch")),
])
def test_an_address_says_which_package_lies_there(name, expected):
    found = package_of_url(CHANNEL + "/" + name, "a" * 64)
    assert (found.name, found.version, found.build, found.subdir) == expected and found.channel == CHANNEL


@pytest.mark.parametrize("url", ["pip-1-0.conda", CHANNEL + "/noarch/pip.conda", CHANNEL + "/noarch/pip-1-0.whl"])
def test_another_address_is_none_of_a_package(url):
    assert package_of_url(url, "") is None


def test_the_longest_start_is_replaced_and_only_at_the_end_of_a_part():
    places = {"https://a": "file:///x", "https://a/b": "file:///y/"}
    assert replace_start("https://a/b/c", places) == "file:///y/c"
    assert replace_start("https://a/bc", places) == "file:///x/bc"
    assert replace_start("https://ab", places) == "https://ab"
    assert replace_start("https://a/b", places) == "file:///y"


def test_a_package_from_a_mirror_goes_under_its_channels_address():
    found = restored(package("a", channel="file:///m/cf"), {"file:///m/cf": CHANNEL})
    assert found == package("a")
