# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the scenario left on disk."""

import json
import os

ROOT = os.path.join(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"], "root")
STAGE = os.path.join(ROOT, ".torchstack", "2026-11-20")


def test_both_modulefiles_are_staged_and_readable_by_all(host):
    for path in ("lmod/torchstack/2026-11-20.lua", "tcl/torchstack/2026-11-20"):
        file = host.file(os.path.join(STAGE, "modulefiles", path))
        assert file.is_file and file.mode == 0o644


def test_no_user_sees_them(host):
    assert not host.file(os.path.join(ROOT, "modulefiles")).exists


def test_s14_each_release_has_its_own_user_base(host):
    text = host.file(os.path.join(STAGE, "modulefiles/tcl/torchstack/2026-11-20")).content_string
    assert 'replace PYTHONUSERBASE "[from_environment HOME]/.local/torchstack/scenario/2026-11-20"' in text
    assert "without PYTHONSTARTUP" in text


def test_s41_every_session_of_this_machine_passed(host):
    record = json.loads(host.file(os.path.join(STAGE, "modulefile.json")).content_string)
    assert record["passed"]
    sessions = {(entry["shell"], entry["state"]) for entry in record["checked"]}
    assert sessions >= {("bash", "clean"), ("bash", "lived-in")}
    assert all(entry["why"] for entry in record["not_checked"])
