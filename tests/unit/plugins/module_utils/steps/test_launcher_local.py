# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How a supervisor is sent out on the machine itself (launcher, launcher_local and launcher_registry)."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps import launcher_local
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.launcher import supervisor_archive

SESSION = "1:name=systemd:/user.slice/user-1001.slice/session-4.scope\n"


@pytest.fixture(name="machine")
def login_machine(tmp_path, monkeypatch):
    """A machine as logind makes it; ``machine(cgroups, kill)`` sets it up."""

    def make(cgroups, kill, tools=("busctl", "systemd-run"), lingers=False):
        for tool in tools:
            (tmp_path / tool).write_text("#!/bin/sh\necho 'b %s'\n" % kill)
            (tmp_path / tool).chmod(0o755)
        (tmp_path / "cgroup").write_text(cgroups)
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(launcher_local, "CGROUPS", str(tmp_path / "cgroup"))
        linger = tmp_path / "linger"
        linger.mkdir()
        monkeypatch.setattr(launcher_local, "LINGERING", str(linger) + "/")
        if lingers:
            user = launcher_local.pwd.getpwuid(launcher_local.os.geteuid()).pw_name
            (linger / user).write_text("")

    return make


def test_where_logind_kills_at_logout_the_build_leaves_the_session(machine):
    machine(SESSION, "true", lingers=True)
    command, warnings = launcher_local.outlive_the_login("abc")
    assert command[:3] == ["systemd-run", "--user", "--scope"]
    assert command[-1] == "--unit=torchstack-abc"
    assert warnings == []


def test_without_lingering_the_operator_is_told(machine):
    machine(SESSION, "true")
    assert "enable-linger" in launcher_local.outlive_the_login("abc")[1][0]


@pytest.mark.parametrize(
    "cgroups, kill, tools",
    [
        ("1:name=systemd:/system.slice/sshd.service\n", "true", ("busctl", "systemd-run")),
        (SESSION, "false", ("busctl", "systemd-run")),
        (SESSION, "true", ("busctl",)),
        (SESSION, "true", ()),
    ],
)
def test_elsewhere_nothing_is_put_in_front(machine, cgroups, kill, tools):
    machine(cgroups, kill, tools)
    assert launcher_local.outlive_the_login("abc") == ([], [])


def test_a_machine_without_cgroups_is_no_obstacle(monkeypatch, tmp_path):
    monkeypatch.setattr(launcher_local, "CGROUPS", str(tmp_path / "none"))
    assert launcher_local.outlive_the_login("abc") == ([], [])


def test_the_archive_is_the_same_whoever_builds_it_and_small():
    # What measures and keeps what a step has produced travels with it.
    assert 5000 < len(supervisor_archive()) < 90000
