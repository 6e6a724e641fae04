# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What users of the scenario see."""

import json
import os

import pytest

ROOT = os.path.join(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"], "root")
RELEASES = ("2026-05-02", "2026-11-20", "2026-11-21")


def journal(host, release):
    text = host.file(os.path.join(ROOT, ".torchstack", release, "publish.jsonl")).content_string
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("release", RELEASES[1:])
@pytest.mark.parametrize("path", ["lmod/torchstack/%s.lua", "tcl/torchstack/%s"])
def test_the_visible_bytes_are_the_verified_ones(host, release, path):
    visible = host.file(os.path.join(ROOT, "modulefiles", path % release))
    staged = host.file(os.path.join(ROOT, ".torchstack", release, "modulefiles", path % release))
    assert visible.content == staged.content and visible.mode == 0o644


def test_the_default_is_the_release_that_was_made_the_default(host):
    assert 'set ModulesVersion "2026-11-20"' in host.file(ROOT + "/modulefiles/tcl/torchstack/.version").content_string
    lua = host.file(ROOT + "/modulefiles/lmod/torchstack/.modulerc.lua").content_string
    assert 'module_version("torchstack/2026-11-20", "default")' in lua


def test_the_journal_holds_each_change_once_and_the_reason_for_doing_without_acceptance(host):
    entries = journal(host, "2026-11-20")
    changes = [(entry["action"], entry["syntax"], entry["sha256"]) for entry in entries]
    assert {change[:2] for change in changes} == {
        ("show", "tcl"), ("show", "lmod"), ("default", "tcl"), ("default", "lmod")}
    assert len(changes) == len(set(changes))
    reasons = {entry["without_acceptance"] for entry in journal(host, "2026-11-21")}
    assert reasons == {"the scenario shows that the reason is recorded"}


def test_what_users_are_told_stands_behind_the_verified_bytes(host):
    for path in ("lmod/torchstack/2026-05-02.lua", "tcl/torchstack/2026-05-02"):
        visible = host.file(os.path.join(ROOT, "modulefiles", path)).content
        assert visible.startswith(host.file(os.path.join(ROOT, ".torchstack/2026-05-02/modulefiles", path)).content)
        assert b"please use torchstack/2026-11-20" in visible and b"Horovod hangs" in visible


def test_only_the_release_for_testers_is_not_listed(host):
    lua = host.file(ROOT + "/modulefiles/lmod/torchstack/.modulerc.lua").content_string
    tcl = host.file(ROOT + "/modulefiles/tcl/torchstack/.modulerc").content_string
    assert lua.count("hide_version") == 1 and 'hide_version("torchstack/2026-11-21")' in lua
    assert tcl.count("module-hide ") == 1 and 'module-hide "torchstack/2026-11-21"' in tcl


def test_the_journal_says_why_and_no_password(host):
    reasons = {entry.get("reason") for entry in journal(host, "2026-05-02")}
    assert any("The scenario asks for it" in reason for reason in reasons) and "hunter22" not in str(reasons)


def test_the_site_s_cache_command_was_run_once_for_each_change_of_the_module_tree(host):
    assert host.file(ROOT + "/cache-renewed").content_string.count("\n") == 4
