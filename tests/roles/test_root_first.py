# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A root that is none is told as such, before records below it are looked for."""

from __future__ import annotations

import os

import pytest
from support import sites


def rolled_out(root, environment, *words, playbook="local"):
    """A rollout's plan below a root: its exit code and what it said."""
    done = sites.ansible_command(
        "ansible-playbook", ["-i", str(sites.hosts_file("local")), "--check", *words,
                             str(sites.TOP / "playbooks" / (playbook + ".yml"))],
        {**environment, "TORCHSTACK_ROOT": str(root), "TORCHSTACK_RELEASE": "2026-11-20"})
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def test_a_file_is_no_root(ansible_environment, tmp_path):
    (tmp_path / "root").write_text("")
    code, said = rolled_out(tmp_path / "root", ansible_environment)
    assert code == 2 and "%s/root is not a directory. Move it away, or choose another root." % tmp_path in said
    assert "remove the release" not in said and "The record" not in said


@pytest.mark.parametrize(("root", "sentence"), [
    ("/", "The root '/' is the whole machine. Name a directory for releases alone, such as /opt/torchstack."),
    ("soft/stacks", "torchstack_root of site local has 'soft/stacks'. Name it from / on."),
])
def test_a_name_that_is_no_root_is_refused_at_once(root, sentence, ansible_environment):
    code, said = rolled_out(root, ansible_environment)
    assert code == 2 and sentence in said
    assert "The record" not in said


@pytest.mark.skipif(os.geteuid() == 0, reason="root may enter anywhere")
def test_a_root_that_may_not_be_entered_is_not_a_damaged_release(ansible_environment, tmp_path):
    (tmp_path / "closed" / "root").mkdir(parents=True)
    (tmp_path / "closed").chmod(0)
    try:
        for root in (tmp_path / "closed", tmp_path / "closed" / "root"):
            code, said = rolled_out(root, ansible_environment)
            assert code == 2 and "may not write in %s/closed" % tmp_path in said
            code, said = rolled_out(root, ansible_environment, playbook="publish")
            assert code == 2 and "Run this as the account that owns the root, or name another root." in said
            assert "remove the release" not in said
    finally:
        (tmp_path / "closed").chmod(0o755)
