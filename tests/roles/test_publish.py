# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a rollout's publication does to the default, and what playbooks/publish.yml does that an operator runs."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle.publication_facts import read_facts
from support import published_release, sites
from support.role_plays import play_tasks

SITE = {
    "torchstack_publish_visible": True, "torchstack_publish_default": True, "torchstack_root": "{{ case.root }}",
    "torchstack_release": "{{ case.release }}",
}


@pytest.fixture()
def root(tmp_path):
    """Three releases that are frozen and accepted, and that no user sees."""
    for release in ("1", "2", "3"):
        published_release.stage(tmp_path / "root", release, frozen_at="2999-01-01T00:00:00Z")
    return tmp_path / "root"


def rolled_out(root, environment, *releases):
    """What rollouts publish of releases, as a site has it that makes them the default; how often something changed."""
    cases = [{"root": str(root), "release": release} for release in releases]
    done = play_tasks("publish", "main", SITE, cases, environment, root.parent)
    assert done.returncode == 0, done.stdout
    return int(done.stdout.partition("changed=")[2].split()[0])


def default(root):
    return set(read_facts(str(root), "1").defaults.values())


def test_a_rollout_moves_the_default_once_and_never_over_a_rollback(root, ansible_environment):
    assert rolled_out(root, ansible_environment, "1", "2") == 2 and default(root) == {"2"}
    assert rolled_out(root, ansible_environment, "1", "2", "1") == 0 and default(root) == {"2"}
    published_release.change(root, "2", "rolled_back", visible=False)
    assert rolled_out(root, ansible_environment, "2", "1") == 0 and default(root) == {"1"}
    assert rolled_out(root, ansible_environment, "3") == 1 and default(root) == {"1"}
    assert rolled_out(root, ansible_environment, "3", "2", "1") == 0


def test_the_playbook_moves_the_default_for_whoever_asks():
    (play,) = sites.load(sites.TOP / "playbooks" / "publish.yml")
    assert play["vars"]["publish_first_only"] is False
    assert sites.load(sites.TOP / "roles/publish/defaults/main.yml")["publish_first_only"] is True
