# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The history of a conda prefix."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.conda import history
from ansible_collections.hpcml.torchstack.plugins.module_utils.conda.package import Package, plan_transaction

CHANNEL = "https://conda.anaconda.org/conda-forge"


@pytest.mark.parametrize("url, name", [
    (CHANNEL, "conda-forge"), (CHANNEL + "/label/dev", "conda-forge/label/dev"), ("file:///soft/mirror/", "file:///soft/mirror"),
    ("https://repo.anaconda.com/pkgs/main", "defaults"),
])
def test_channels_are_called_as_conda_calls_them(url, name):
    assert history.channel_name(url) == name


def test_the_history_entry_has_condas_form():
    def package(name, version):
        return Package(name, version, "0", "noarch", CHANNEL, "", "a" * 64)

    transaction = plan_transaction([package("a", "1"), package("b", "1")], [package("a", "2"), package("c", "1")])
    entry = history.history_entry(transaction, ["c", "a >=2"], "conda_environment", 0)
    lines = entry.splitlines()
    assert lines[0].startswith("==> 19") and lines[0].endswith(" <==")
    assert lines[1:] == [
        "# cmd: conda_environment", "-conda-forge/noarch::a-1-0", "-conda-forge/noarch::b-1-0",
        "+conda-forge/noarch::a-2-0", "+conda-forge/noarch::c-1-0", '# update specs: ["a >=2", "c"]',
    ]


def test_a_lock_leaves_no_specs_in_the_history():
    assert "specs" not in history.history_entry(plan_transaction([], []), [], "conda_environment", 0)


def test_the_history_goes_on_from_where_it_was(tmp_path):
    (tmp_path / "conda-meta").mkdir()
    history.write_history(str(tmp_path), "old\n", "new\n")
    assert history.read_history(str(tmp_path)) == "old\nnew\n"
    assert history.read_history(str(tmp_path / "nothing")) == ""
