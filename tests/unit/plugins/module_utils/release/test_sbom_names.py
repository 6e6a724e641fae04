# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Identifiers, download locations and package URLs in a bill of materials."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.release import sbom_names

COMMIT = "0" * 40


@pytest.mark.parametrize("url, expected", [
    ("https://github.com/NVIDIA/nccl", "git+https://github.com/NVIDIA/nccl@" + COMMIT),
    ("ssh://git@git.example.org:2222/a.git", "git+ssh://git@git.example.org:2222/a.git@" + COMMIT),
    ("file:///shared/nccl.git", "NOASSERTION"),
    ("/shared/nccl.git", "NOASSERTION"),
    ("https://mirror/nccl.git", "NOASSERTION"),
    ("", "NOASSERTION"),
])
def test_only_an_address_that_means_something_elsewhere_is_a_location(url, expected):
    assert sbom_names.location(url, COMMIT) == expected


def test_package_urls_are_quoted_and_distributions_named_as_indexes_do():
    assert sbom_names.pypi("Pure.Thing", "1!2.0+cpu") == "pkg:pypi/pure-thing@1%212.0%2Bcpu"
    package = {"name": "numpy", "version": "1.26.4", "build": "py311_0", "subdir": "linux-64",
               "channel": "https://conda.example.org/conda-forge/"}
    assert sbom_names.conda(package) == (
        "pkg:conda/numpy@1.26.4?build=py311_0&channel=conda-forge&subdir=linux-64")
    source = {"name": "NCCL network plugin", "version": "1.6.0", "kind": "git", "commit": COMMIT,
              "url": "https://git.example.org/aws-ofi-nccl"}
    assert sbom_names.source(source) == (
        "pkg:generic/nccl-network-plugin@1.6.0?vcs_url=git%2Bhttps:%2F%2Fgit.example.org%2Faws-ofi-nccl%40" + COMMIT)
    assert sbom_names.source(dict(source, url="https://github.com/AWS/aws-ofi-nccl.git")) == (
        "pkg:github/aws/aws-ofi-nccl@" + COMMIT)
    assert sbom_names.source(dict(source, url="file:///shared/a.git")) == ""


def test_identifiers_have_only_what_spdx_allows():
    assert sbom_names.identifier("Python", "a_b+c") == "SPDXRef-Python-a-b-c"
