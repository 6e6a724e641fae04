# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Whether the record of an acceptance still answers."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import verdict

ASKED = {"subject": "sha256:1", "ranks": 2, "checks": ["imports"]}


PASSED = {"passed": True, "subject": "sha256:1", "question": {"ranks": 2, "checks": ["imports"]}}


@pytest.mark.parametrize(("record", "asked", "again", "reason"), [
    (None, ASKED, False, "no acceptance"),
    (PASSED, ASKED, True, "again"),
    (dict(PASSED, passed=False), ASKED, False, "did not pass"),
    ({}, ASKED, False, "did not pass"),
    (PASSED, dict(ASKED, subject="sha256:2"), False, "another state"),
    (PASSED, dict(ASKED, ranks=8), False, "something else: ranks"),
])
def test_an_acceptance_runs_again_only_for_a_reason(record, asked, again, reason):
    assert reason in verdict.reason_to_run(record, asked, again)


def test_a_passed_record_for_the_same_subject_means_nothing_to_do():
    assert verdict.reason_to_run(PASSED, ASKED, False) == ""


def test_a_changed_modulefile_needs_another_acceptance(tmp_path):
    modulefile = tmp_path / "1.lua"
    modulefile.write_text("one")
    digests = verdict.modulefile_digests("lmod", str(modulefile))
    assert list(digests) == ["lmod"]
    record = dict(PASSED, through="lmod", modulefile=str(modulefile), modulefiles=digests)
    assert verdict.reason_to_run(record, ASKED, False) == ""
    modulefile.write_text("two")
    assert "modulefile has changed" in verdict.reason_to_run(record, ASKED, False)
    modulefile.unlink()
    assert "modulefile has changed" in verdict.reason_to_run(record, ASKED, False)


@pytest.mark.parametrize(("asked", "reason"), [
    ({"module_system": "lmod", "module_definition": ". /site/lmod.sh"}, ""),
    ({"module_system": "auto", "module_definition": ". /site/moved.sh"}, ""),
    ({"module_system": "environment-modules"}, "something else: module_system"),
])
def test_a_site_that_says_which_module_system_its_users_have_accepts_anew_what_went_through_the_other(asked, reason):
    record = dict(PASSED, through="lmod", question=dict(PASSED["question"], module_system="auto"))
    assert reason in verdict.reason_to_run(record, {**ASKED, **asked}, False)
    assert bool(reason) == bool(verdict.reason_to_run(record, {**ASKED, **asked}, False))
