# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What NCCL's log says about the network, in the wording of several versions."""

from __future__ import annotations

import os
import pathlib

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import nccl_log

LOGS = pathlib.Path(__file__).resolve().parents[4] / "fixtures" / "acceptance" / "nccl"


@pytest.mark.parametrize(("name", "network", "plugin", "provider", "version", "channels"), [
    ("h200-nvlink", "Socket", "", "", "2.28.9+cuda13.0", {"P2P/CUMEM": 56}),
    ("h200-sockets", "Socket", "", "", "2.28.9+cuda13.0", {"NET/Socket/0": 4, "NET/Socket/0/Shared": 2}),
    ("slingshot-1.6.0", "AWS Libfabric", "aws-ofi-nccl 1.6.0", "cxi", "2.21.5+cuda12.4",
     {"NET/AWS Libfabric/0/GDRDMA": 1, "NET/AWS Libfabric/1/GDRDMA": 1, "P2P/CUMEM/read": 2}),
    ("slingshot-1.14.2", "Libfabric", "aws-ofi-nccl 1.14.2", "cxi", "2.26.2+cuda12.8", {"NET/Libfabric/0/GDRDMA": 1}),
    ("slingshot-1.19.0", "OFI", "aws-ofi-nccl 1.19.0", "cxi", "2.27.7+cuda12.9", {"NET/OFI/0/GDRDMA": 1}),
    ("tcp-1.14.2", "Libfabric", "aws-ofi-nccl 1.14.2", "tcp;ofi_rxm", "2.26.2+cuda12.8", {"NET/Libfabric/0/GDRDMA": 1}),
    ("rccl-1.4.0", "AWS Libfabric", "aws-ofi-rccl 1.4.0", "cxi", "2.18.3+hip6.0",
     {"NET/AWS Libfabric/0/GDRDMA": 1, "P2P/IPC": 1}),
    ("old-2.4", "AWS Libfabric", "", "efa", "2.4.8+cuda10.0", {"NET/AWS Libfabric/0": 1, "P2P/IPC": 1}),
])
def test_s17_the_network_and_every_channel_are_read_from_the_log(name, network, plugin, provider, version, channels):
    assert nccl_log.parse((LOGS / (name + ".log")).read_text(encoding="utf-8")) == {
        "network": network, "networks": [network], "plugin": plugin, "provider": provider, "version": version,
        "channels": channels,
    }


def test_a_log_that_says_nothing_is_no_network():
    assert nccl_log.parse("") == {
        "network": "", "networks": [], "plugin": "", "provider": "", "version": "", "channels": {},
    }


def test_a_plugin_that_names_no_version_goes_by_its_name():
    found = nccl_log.parse("n1:1:1 [0] NCCL INFO NET/Plugin: Loaded net plugin NCCL RDMA Plugin v6 (v6)\n")
    assert found["plugin"] == "NCCL RDMA Plugin v6"


def test_communicators_on_two_networks_are_both_known():
    text = "n1:1:1 [0] NCCL INFO Using network Socket\nn1:1:1 [0] NCCL INFO Using network Libfabric\n"
    found = nccl_log.parse(text)
    assert (found["network"], found["networks"]) == ("Libfabric", ["Socket", "Libfabric"])


def test_nccl_is_made_to_write_and_what_the_rank_was_given_is_kept():
    environment = {"NCCL_DEBUG": "WARN", "NCCL_NET": "AWS Libfabric", "FI_PROVIDER": "cxi", "HOME": "/h"}
    log = nccl_log.NcclLog(environment)
    try:
        assert (environment["NCCL_DEBUG"], environment["NCCL_DEBUG_FILE"]) == ("INFO", log.path)
        with open(log.path, "w", encoding="utf-8") as stream:
            stream.write((LOGS / "slingshot-1.6.0.log").read_text(encoding="utf-8"))
        summary = log.summary()
        assert summary["network"] == "AWS Libfabric"
        assert summary["variables"] == {"FI_PROVIDER": "cxi", "NCCL_DEBUG": "WARN", "NCCL_NET": "AWS Libfabric"}
        shown = log.notable_lines()
        assert "Selected Provider is cxi" in shown and "Channel" not in shown
    finally:
        log.remove()
    assert not os.path.exists(log.path) and log.summary()["network"] == ""
    log.remove()
