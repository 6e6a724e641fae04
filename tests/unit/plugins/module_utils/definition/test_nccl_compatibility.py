# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Which NCCL, plugin, libfabric and toolkit go together, as the table of the role says."""

from __future__ import annotations

import os

import pytest
from ansible.module_utils.common.yaml import yaml_load
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import nccl_compatibility as compatibility

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), *[os.pardir] * 5)
with open(os.path.join(TOP, "roles", "nccl_ofi", "vars", "compatibility.yml"), encoding="utf-8") as stream:
    TABLE = yaml_load(stream)["nccl_ofi_compatibility"]


def judged(nccl, plugin, libfabric, name="aws-ofi-nccl", accepted=None, **differing):
    """The verdict on a trio with a toolkit that fits."""
    values = {"cuda": "12.2", "architectures": ("8.0",), "has_cuda": "12.2", "hwloc": True, **differing}
    return compatibility.judge(
        TABLE,
        compatibility.Asked(nccl, name, plugin, values["cuda"], values["architectures"]),
        compatibility.There(
            libfabric, "/opt/cray/libfabric/x", values["has_cuda"], "/opt/cuda", values["hwloc"], ""),
        accepted or {},
    )


def problems(verdict):
    return [(finding.check, finding.severity) for finding in verdict.findings if not finding.ok]


@pytest.mark.parametrize(
    ("nccl", "plugin", "libfabric", "api"),
    [
        ("2.21.5", "1.6.0", "1.15.2.0", 6),
        ("2.27.7", "1.19.0", "1.22.0", 10),
        ("2.24.3", "1.14.2", "1.22.0", 9),
        ("2.26.2", "1.16.3", "2.1.0", 10),
        ("2.28.9", "1.17.3", "1.22.0", 11),
        ("2.29.7", "1.18.0", "1.22.0amzn4.0", 11),
        ("2.30.3", "1.21.0", "1.22.0", 12),
    ],
)
def test_s20_what_goes_together_is_let_through_at_the_interface_that_both_have(nccl, plugin, libfabric, api):
    verdict = judged(nccl, plugin, libfabric)
    assert problems(verdict) == []
    assert verdict.api == api


@pytest.mark.parametrize(
    ("nccl", "plugin", "name", "api"),
    [
        ("2.13.4", "1.6.0", "aws-ofi-nccl", 6),
        ("2.18.6", "1.9.1-aws", "aws-ofi-nccl", 6),
        ("2.19.3", "1.8.1-aws", "aws-ofi-nccl", 7),
        ("2.20.5", "1.7.4-aws", "aws-ofi-nccl", 6),
        ("2.23.4", "1.13.2-aws", "aws-ofi-nccl", 8),
        ("2.25.1", "1.20.0", "aws-ofi-nccl", 9),
        ("2.28.3", "1.6.0", "aws-ofi-nccl", 6),
        ("2.21.5", "1.4.0", "aws-ofi-rccl", 5),
        ("2.26.2", "1.4.0", "aws-ofi-rccl", None),
    ],
)
def test_s20_the_interface_is_the_highest_that_both_have(nccl, plugin, name, api):
    assert judged(nccl, plugin, "1.22.0", name).api == api


def test_s20_a_plugin_without_an_interface_in_common_is_refused_with_what_would_do():
    verdict = judged("2.26.2", "1.4.0", "1.15.2.0", "aws-ofi-rccl")
    assert problems(verdict) == [("api", "error")]
    sentence = verdict.findings[0].sentence
    assert "NCCL 2.26.2 looks for versions 6 to 10 of the plugin interface, " in sentence
    assert "aws-ofi-rccl 1.4.0 has only 5: NCCL would use sockets without an error." in sentence
    assert sentence.endswith("Take an NCCL older than 2.26.")


def test_s20_a_libfabric_that_is_too_old_by_the_documentation_is_refused_though_configure_takes_it():
    verdict = judged("2.18.3", "1.9.1-aws", "1.15.2.0")
    assert problems(verdict) == [("libfabric", "error"), ("untested", "warning")]
    assert "aws-ofi-nccl 1.9.1-aws is documented to need libfabric 1.18.0 or newer" in verdict.findings[0].message
    accepted = {"libfabric": "It ran here.", "untested": "It ran here."}
    verdict = judged("2.18.3", "1.9.1-aws", "1.15.2.0", accepted=accepted)
    assert problems(verdict) == []
    assert verdict.findings[0].message.endswith("Accepted by the release file: It ran here.")


@pytest.mark.parametrize(("plugin", "libfabric", "refused"), [
    ("1.6.0", "1.10.0", True), ("1.6.0", "1.11", False), ("1.7.4-aws", "1.15.2.0", False),
    ("1.8.0-aws", "1.17.9", True), ("1.8.0-aws", "1.18", False),
    ("1.19.0", "1.15.2.0", True), ("1.19.0", "2.1.0amzn3", False),
])
def test_s20_the_oldest_libfabric_is_what_the_documentation_says(plugin, libfabric, refused):
    found = problems(judged("2.21.5", plugin, libfabric))
    assert (("libfabric", "error") in found) is refused


def test_s20_what_the_table_does_not_know_is_refused_unless_it_is_accepted():
    assert problems(judged("2.31.0", "1.22.0", "2.1.0")) == [("untested", "error")] * 2
    assert problems(judged("2.12.0", "1.6.0", "1.15.2.0")) == [("untested", "error")]
    assert problems(judged("2.21.5", "1.0", "1.15.2.0", "another")) == [("untested", "error")]
    assert problems(judged("2.31.0", "1.22.0", "2.1.0", accepted={"untested": "new"})) == []


def test_s20_a_pair_that_upstream_has_not_tested_is_only_told():
    assert problems(judged("2.21.5", "1.6.0", "1.15.1")) == [("untested", "warning")]
    assert problems(judged("2.17.1", "1.6.0", "1.15.1")) == []


def test_s20_hwloc_is_needed_from_version_1_7_on():
    assert problems(judged("2.21.5", "1.6.0", "1.15.2.0", hwloc=False)) == []
    assert ("hwloc", "error") in problems(judged("2.21.5", "1.14.0", "1.22.0", hwloc=False))


def test_s20_what_is_not_there_cannot_be_accepted():
    accepted = {"libfabric": "why not", "cuda": "why not"}
    assert problems(judged("2.21.5", "1.6.0", "", has_cuda="", accepted=accepted))[:2] == [
        ("cuda", "error"), ("libfabric", "error")]


@pytest.mark.parametrize(("asked", "there", "architecture", "wrong"), [
    ("12.2", "12.2", "8.0", False), ("12", "12.2", "9.0a", False), ("", "11.8", "9.0+PTX", False),
    ("12.2", "12.4", "8.0", True), ("11.7", "11.7", "9.0", True), ("13.0", "13.0", "7.0", True),
    ("12.6", "12.6", "10.0", True), ("12.8", "12.8", "10.0a", False),
])
def test_s20_the_toolkit_is_the_one_asked_for_and_knows_the_architectures(asked, there, architecture, wrong):
    found = problems(judged("2.21.5", "1.6.0", "1.15.2.0", cuda=asked, has_cuda=there, architectures=(architecture,)))
    assert (("cuda", "error") in found) is wrong


def test_without_a_plugin_only_the_toolkit_is_judged():
    verdict = judged("2.31.0", "", "", "")
    assert (problems(verdict), verdict.api, verdict.networks) == ([], None, ())


def test_s17_every_name_that_a_plugin_answers_to_is_known():
    for version in ("1.6.0", "1.9.2-aws", "1.12.1-aws"):
        assert judged("2.21.5", version, "1.22.0").networks == ("AWS Libfabric",)
    for version in ("1.13.0-aws", "1.14.2", "1.19.0", "1.21.1"):
        assert judged("2.27.7", version, "1.22.0").networks == ("AWS Libfabric", "Libfabric", "OFI")


def test_the_name_of_a_plugin_is_that_of_its_repository():
    assert compatibility.repository_name("https://github.com/aws/aws-ofi-nccl") == "aws-ofi-nccl"
    assert compatibility.repository_name("file:///shared/software/sources/aws-ofi-nccl.git/") == "aws-ofi-nccl"
