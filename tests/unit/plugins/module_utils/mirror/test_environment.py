# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a rollout does differently with a mirror."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror.environment import environment, mirror_context

CHANNEL = "https://conda.example.org/forge"
CONDA = {"base": {"kind": "conda", "specs": ["python"], "channels": [CHANNEL]}}


def test_without_a_mirror_nothing_is_different():
    assert environment("") == {}
    assert mirror_context("", CONDA, []) == {"directory": "", "environment": {}, "channels": {}}


@pytest.mark.parametrize("directory, address", [("/m", "file:///m/pip"), ("/my mirror", "file:///my%20mirror/pip")])
def test_pip_looks_into_the_mirror_alone_by_an_address_without_spaces(directory, address):
    assert environment(directory) == {
        "TORCHSTACK_MIRROR": directory, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": address,
    }


def test_each_channel_of_a_conda_base_has_a_directory_of_its_own():
    channels = mirror_context("/m", CONDA, ["https://conda.example.org/other"])["channels"]
    assert list(channels) == [CHANNEL]
    assert channels[CHANNEL].startswith("/m/conda/")


def test_a_base_that_is_not_of_conda_has_no_channels():
    assert mirror_context("/m", {"base": {"kind": "venv"}}, [CHANNEL])["channels"] == {}
