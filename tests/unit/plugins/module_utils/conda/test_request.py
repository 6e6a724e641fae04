# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What may be asked of conda_environment, and the one form that it is brought to."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.conda import request as conda_request
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError


def request(**more):
    params = {
        "channels": ["conda-forge"], "specs": ["python"], "optional_specs": [], "virtual_packages": None,
        "platform": "linux-64", "channel_priority": "strict", "accept_defaults_licence": False,
    }
    params.update(more)
    return conda_request.build(params, more.get("lock", ""))


@pytest.mark.parametrize("name, urls", [
    ("conda-forge", ["https://conda.anaconda.org/conda-forge"]),
    ("conda-forge/label/dev/", ["https://conda.anaconda.org/conda-forge/label/dev"]),
    ("https://mirror.example.org/cf/", ["https://mirror.example.org/cf"]),
    ("/soft/my mirror/", ["file:///soft/my%20mirror"]),
    ("defaults", ["https://repo.anaconda.com/pkgs/main", "https://repo.anaconda.com/pkgs/r"]),
    ("pkgs/main", ["https://repo.anaconda.com/pkgs/main"]),
])
def test_names_directories_and_addresses_become_addresses(name, urls):
    assert conda_request.channel_urls(name) == urls


@pytest.mark.parametrize("url", [
    "https://repo.anaconda.com/pkgs/main", "https://repo.anaconda.com/pkgs/main/linux-64/a-1-0.conda",
    "https://repo.continuum.io/pkgs/free", "https://conda.anaconda.org/anaconda", "https://conda.anaconda.org/main/x",
])
def test_anacondas_addresses_need_a_licence(url):
    assert conda_request.needs_licence(url)
    with pytest.raises(StackError) as caught:
        conda_request.check_licence([url], False)
    assert caught.value.failed_step == "check the channels" and url in caught.value.message
    conda_request.check_licence([url], True)


@pytest.mark.parametrize("url", [
    "https://conda.anaconda.org/conda-forge", "https://conda.anaconda.org/nvidia", "file:///soft/main",
    "https://conda.anaconda.org/main-tools",
])
def test_other_channels_need_none(url):
    assert not conda_request.needs_licence(url)


def test_specs_that_name_anacondas_channels_are_found_out():
    for spec in ("defaults::numpy", "numpy[channel=defaults]", "numpy[version='1', channel=\"pkgs/main\"]"):
        with pytest.raises(StackError):
            request(specs=[spec])


def test_equal_requests_have_one_digest_and_any_difference_another():
    one = request(specs=["a", "b"], virtual_packages={"__cuda": 12, "__glibc": "2.31"})
    assert one.digest() == request(specs=["b", "a"], virtual_packages={"__glibc": "2.31", "__cuda": "12"}).digest()
    others = [
        request(specs=["a"]), request(specs=["a", "b"]), request(channels=["nvidia", "conda-forge"]),
        request(channel_priority="disabled"), request(platform="linux-aarch64"), request(lock="@EXPLICIT"),
        request(specs=["a"], optional_specs=["b"]),
    ]
    assert len({one.digest(), *(other.digest() for other in others)}) == 8


@pytest.mark.parametrize("spec, name", [
    ("python 3.11.*", "python"), ("conda-forge::Mamba>=2", "mamba"), ("numpy[version='>=1.26']", "numpy"), ("", ""),
])
def test_a_spec_names_its_package(spec, name):
    assert conda_request.spec_name(spec) == name


def test_an_empty_virtual_package_is_one_that_the_machine_shall_not_have():
    assert request(virtual_packages={"__cuda": None}).virtual_packages == (("__cuda", ""),)


@pytest.mark.parametrize("wrong", [
    {"virtual_packages": {"cuda": "12"}}, {"channels": []}, {"specs": None, "optional_specs": ["mamba"]},
])
def test_what_does_not_go_together_is_refused(wrong):
    with pytest.raises(StackError) as caught:
        request(**wrong)
    assert caught.value.failed_step == "check the options" and caught.value.remedy


def test_mirrors_stand_for_addresses():
    assert conda_request.mirror_urls({"conda-forge": "/soft/mirror"}) == {
        "https://conda.anaconda.org/conda-forge": "file:///soft/mirror"
    }
    with pytest.raises(StackError):
        conda_request.mirror_urls({"defaults": "/soft/mirror"})


def test_several_mirrors_stand_for_one_address_in_their_order():
    choices = conda_request.mirror_choices({"conda-forge": ["/soft/mirror", "https://mirror.example.org/cf/"]})
    assert choices == {
        "https://conda.anaconda.org/conda-forge": ["file:///soft/mirror", "https://mirror.example.org/cf"]
    }
    assert conda_request.mirror_urls({"conda-forge": ["/soft/mirror", "other"]}) == {
        "https://conda.anaconda.org/conda-forge": "file:///soft/mirror"
    }
    with pytest.raises(StackError):
        conda_request.mirror_choices({"conda-forge": []})


def test_only_local_channels_can_be_missing(tmp_path):
    urls = ["https://x", "file://%s" % tmp_path, "file://%s/not%%20there" % tmp_path]
    assert conda_request.missing_directories(urls) == ["%s/not there" % tmp_path]


@pytest.mark.parametrize("more, sentence", [
    ({"channels": ["https://conda.example.org/t/tk-1234567/forge"]}, "A channel has a conda token"),
    ({"specs": ["https://me:pa55@example.org/x::python"]}, "A channel has a password"),
    ({"specs": None, "lock": "https://me:pa55@example.org/linux-64/x-1-0.conda"}, "The lock has a password"),
])
def test_a_channel_with_a_credential_is_refused_because_records_would_show_it(more, sentence):
    with pytest.raises(StackError, match=sentence) as caught:
        request(**more)
    assert "pa55" not in caught.value.message and "tk-1" not in caught.value.message
