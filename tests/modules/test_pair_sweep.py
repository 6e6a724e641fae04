# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The module pair_sweep on four nodes made of network namespaces, whose links are slowed by tc(8)."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

LAUNCHER = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "sweep" / "namespaces.py"
UNSHARE = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
NODES = ["node1", "node2", "node3", "node4"]


@pytest.fixture(scope="module")
def namespaces():
    """Skips where an ordinary account cannot make networks of its own."""
    if not all(shutil.which(name, path=PATH) for name in ("unshare", "nsenter", "ip", "tc")):
        pytest.skip("no unshare, nsenter, ip or tc")
    probe = "ip link add name a0 type veth peer name b0 && tc qdisc add dev a0 root tbf rate 1mbit burst 9k latency 1s"
    words = [*UNSHARE, "sh", "-c", probe]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={"PATH": PATH})
    if done.returncode:
        pytest.skip("no network namespaces for this account: %s" % done.stderr.strip()[-200:])


@pytest.fixture()
def site(tmp_path, namespaces):
    """A release of which only a Python is needed, and the module's arguments."""
    top = tmp_path / "site"
    (top / "r1" / "bin").mkdir(parents=True)
    (top / "r1" / "bin" / "python3").symlink_to(sys.executable)
    return {
        "root": str(top), "release": "r1", "subject": "sha256:1", "module_system": "none", "nodes": 4, "ranks": 4,
        "environment": {"PATH": "%s/r1/bin:%s" % (top, PATH)},
        "launcher": [*UNSHARE, "python3", str(LAUNCHER), "{nodes}"], "backend": "tcp", "size": "256 KiB",
        "warmups": 1, "trials": 3, "timeout": 120,
        # Nodes of one busy machine disturb each other more than real ones do.
        "thresholds": {"suspect": 0.7, "slow": 0.65},
    }


def with_environment(site, **variables):
    return dict(site, environment=dict(site["environment"], **variables))


def record(site):
    return json.loads((pathlib.Path(site["root"]) / ".torchstack" / "r1" / "sweep.json").read_text())


def test_s28_the_node_behind_a_slow_port_is_named(run_module, site):
    result = run_module("pair_sweep", with_environment(site, NODES_RATES="100,100,40,100"))
    assert result.get("failed_step") == "slow_nodes", result.console
    assert [named["host"] for named in result["slow_nodes"]] == ["node3"] and result["slow_links"] == []
    assert "node3 reaches" in result["msg"] and "every pair was measured again 5 times" in result["msg"]
    found = record(site)
    assert found["passed"] is False and found["complete"] is True and found["rounds_done"] == found["rounds"] == 3
    assert found["hosts"] == NODES and len(found["measured"]) == 6
    assert 0.2 < found["slow_nodes"][0]["ratio"] < 0.65
    log = pathlib.Path(result["log"]).read_text()
    assert "[3/3] 2 pairs in" in log and "@torchstack" not in log


def test_s28_a_sweep_that_was_killed_goes_on_and_good_nodes_are_left_alone(run_module, site):
    planned = run_module("pair_sweep", site, check=True, diff=True)
    assert planned.changed and planned["passed"] is None and "+pair sweep: to be run" in planned.console
    assert not (pathlib.Path(site["root"]) / ".torchstack").exists()

    launcher = pathlib.Path(site["root"]) / "r1" / "bin" / "launch"
    launcher.write_text("#!/bin/sh\n%s exec %s \"$@\"\n" % ("NODES_END_AFTER='[2/3]'", " ".join(
        [*UNSHARE, "python3", str(LAUNCHER)])))
    launcher.chmod(0o755)
    site["launcher"] = ["launch", "{nodes}"]
    killed = run_module("pair_sweep", site)
    assert killed.get("failed_step") == "incomplete" and "2 of 3 rounds are done" in killed["msg"], killed.console
    assert "goes on where this one has ended" in killed["msg"]
    first = record(site)
    assert first["rounds_done"] == 2 and len(first["measured"]) == 4 and first["slow_nodes"] == []

    launcher.write_text(launcher.read_text().replace("NODES_END_AFTER='[2/3]'", ""))
    result = run_module("pair_sweep", site)
    assert result.get("passed") is True, result.console
    assert result.changed and result["reason"] == "the last sweep ended after 2 of 3 rounds"
    assert result["summary"].endswith("nobody is slow.")
    second = record(site)
    assert second["resumed"] and second["rounds_done"] == 3
    assert [row for row in second["measured"] if row in first["measured"]] == first["measured"]
    assert "[3/3] 2 pairs" in pathlib.Path(result["log"]).read_text()
    assert "[1/3]" not in pathlib.Path(result["log"]).read_text()
    for check in (True, False):
        again = run_module("pair_sweep", site, check=check)
        assert not again.changed and again["passed"] is True and again["reason"] == "", again.console


def test_bad_input_is_refused_and_leaves_no_record(run_module, tmp_path):
    given = {"root": str(tmp_path), "release": "r1", "subject": "sha256:1", "nodes": 2, "ranks": 2, "size": "64 MB"}
    result = run_module("pair_sweep", given)
    assert result.get("failed_step") == "size" and result["remedy"], result.console
    assert not os.listdir(str(tmp_path))
