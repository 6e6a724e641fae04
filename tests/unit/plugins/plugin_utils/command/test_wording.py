# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Messages name the words of the command to somebody who types those."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.command.wording import as_typed


@pytest.mark.parametrize(("line", "typed"), [
    ("Accept it: playbooks/accept.yml -e torchstack_release=a.", "Accept it: torchstack accept a."),
    ("Roll it out first: playbooks/rollout.yml -e torchstack_release=a.", "Roll it out first: torchstack rollout a."),
    ("To move it: playbooks/publish.yml -e torchstack_release=2026-11-20 -e publish_to=default.",
     "To move it: torchstack publish 2026-11-20 --to default."),
    ("Say which: playbooks/publish.yml -e torchstack_release=... -e publish_to=default.",
     "Say which: torchstack publish ... --to default."),
    ("Next: playbooks/publish.yml -e torchstack_release=a -e publish_to=default, then "
     "playbooks/notice.yml -e torchstack_release=a.",
     "Next: torchstack publish a --to default, then torchstack notice a."),
    ("Next: playbooks/retire.yml -e retire_to=hidden, or -e retire_to=removed after 2027-01-31.",
     "Next: torchstack retire --to hidden, or --to removed after 2027-01-31."),
    ("Freeze it again first: playbooks/thaw.yml -e thaw_state=refrozen.", "Freeze it again first: torchstack freeze."),
    ("playbooks/thaw.yml -e torchstack_release=a -e thaw_state=abandoned", "torchstack freeze a --abandon"),
    ("Next: playbooks/drift.yml -e drift_system=true", "Next: torchstack drift --system"),
    ("A fix that shall stay: playbooks/thaw.yml -e torchstack_release=a -e thaw_paths=... -e thaw_reason=...",
     "A fix that shall stay: torchstack thaw a --path ... --reason ..."),
    ("Compare it (playbooks/drift.yml), and bring the file back.",
     "Compare it (torchstack drift), and bring the file back."),
])
def test_where_there_is_a_word_for_a_playbook_it_is_named(line, typed):
    assert as_typed(line) == typed


def test_a_site_is_named_where_the_word_would_take_another_one():
    line = "Next: playbooks/publish.yml -e torchstack_release=a -e publish_to=default, or playbooks/rollback.yml"
    assert as_typed(line, "polaris") == (
        "Next: torchstack publish polaris a --to default, or torchstack rollback polaris")


@pytest.mark.parametrize("line", [
    "playbooks/compare.yml -e compare_with=/soft/x", "Held by playbooks/local.yml", "publish: Show it",
    "Freeze it again, or take the thaw back (playbooks/thaw.yml).",
    "playbooks/publish.yml -e publish_without_acceptance=because", "-e publish_to=default",
])
def test_what_has_no_word_stays_as_it_is(line):
    assert as_typed(line) == line
