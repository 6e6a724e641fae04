# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The configuration of conda in a release's prefix."""

from __future__ import annotations

import os

import yaml
from support.role_plays import play_tasks

VARIABLES = {
    "conda_base_prefix": "{{ case.prefix }}",
    "conda_base_cache": "/soft/pytorch/.torchstack/conda-pkgs",
    "conda_base_channels": "{{ case.channels }}",
    "conda_base_channel_priority": "strict",
    "conda_base_link_method": "{{ case.link_method }}",
    "conda_base_accept_defaults_licence": "{{ case.accepted }}",
    "conda_base_condarc": "{{ case.more }}",
    "release_context": {"release": "2026-11-20"},
}


def play(ansible_environment, tmp_path, places, *options):
    defaults = {"channels": ["conda-forge"], "link_method": "copy", "accepted": False, "more": {}}
    cases = [dict(defaults, **place) for place in places]
    done = play_tasks("conda_base", "condarc", VARIABLES, cases, ansible_environment, tmp_path, *options)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_s04_users_of_a_read_only_prefix_get_what_keeps_conda_quiet(ansible_environment, tmp_path):
    one = {"prefix": str(tmp_path / "one")}
    two = {
        "prefix": str(tmp_path / "two"), "channels": ["defaults", "file:///soft/mirror"], "accepted": True,
        "link_method": "hardlink", "more": {"offline": True, "env_prompt": "(ours) "},
    }
    assert "changed=0" in play(ansible_environment, tmp_path, [one], "--check")
    assert not (tmp_path / "one").exists()
    for place in (one, two):
        os.mkdir(place["prefix"])
    old = os.umask(0o077)
    try:
        said = play(ansible_environment, tmp_path, [one, two, one])
    finally:
        os.umask(old)
    assert said.count("\nchanged: ") == 2
    written = tmp_path / "one" / ".condarc"
    assert yaml.safe_load(written.read_text()) == {
        "channels": ["conda-forge"],
        "channel_priority": "strict",
        "env_prompt": "(2026-11-20/{default_env}) ",
        "pkgs_dirs": ["/soft/pytorch/.torchstack/conda-pkgs", "~/.conda/pkgs"],
        "envs_dirs": ["~/.conda/envs"],
        "always_copy": True,
        "auto_update_conda": False,
        "notify_outdated_conda": False,
        "report_errors": False,
        "default_channels": [],
    }
    assert written.stat().st_mode & 0o777 == 0o644
    other = yaml.safe_load((tmp_path / "two" / ".condarc").read_text())
    assert "default_channels" not in other
    assert (other["channels"], other["always_copy"], other["offline"], other["env_prompt"]) == (
        ["defaults", "file:///soft/mirror"], False, True, "(ours) ",
    )
    before = written.read_text()
    said = play(ansible_environment, tmp_path, [dict(one, more={"auto_update_conda": True})], "--check", "--diff")
    assert "-auto_update_conda: false" in said and "+auto_update_conda: true" in said and "changed=1" in said
    assert written.read_text() == before
    assert [path.name for path in (tmp_path / "one").iterdir()] == [".condarc"]
