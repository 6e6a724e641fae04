# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The login node's git takes this machine's directories for what this account's git takes them for."""

from __future__ import annotations

import subprocess

from rehearsal.git_settings import of_this_account, settings_of


def listed(tmp_path, *settings):
    """What git itself lists of settings that it wrote."""
    file = tmp_path / "written"
    for base, address in settings:
        subprocess.run(["git", "config", "--file", file, "--add", "url.%s.insteadOf" % base, address], check=True)
    words = ["git", "config", "--file", file, "-z", "--get-regexp", r"^url\..*\.insteadof$"]
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout


def read_back(tmp_path, configuration, name):
    file = tmp_path / "read"
    file.write_text(configuration)
    words = ["git", "config", "--file", file, "--get-all", name]
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


def test_directories_of_this_machine_are_named_and_mounted(tmp_path):
    (tmp_path / "one.git").mkdir()
    (tmp_path / 'two "2"').mkdir()
    one, two = "file://%s/one.git" % tmp_path, '%s/two "2"/' % tmp_path
    found = settings_of(listed(
        tmp_path, (one, "https://example.org/one"), (one, "git@example.org:one"), (two, "https://example.org/o/")))
    assert found.mounts == tuple(str(tmp_path / name) for name in ("one.git", 'two "2"'))
    assert read_back(tmp_path, found.configuration, "url.%s.insteadOf" % one) == [
        "https://example.org/one", "git@example.org:one"]
    assert read_back(tmp_path, found.configuration, "url.%s.insteadOf" % two) == ["https://example.org/o/"]
    assert read_back(tmp_path, found.configuration, "safe.directory") == ["*"]


def test_other_addresses_with_their_logins_and_what_is_gone_stay_here(tmp_path):
    found = settings_of(listed(
        tmp_path, ("https://name:secret@example.org/", "https://example.org/"),
        ("file://%s/gone" % tmp_path, "https://example.org/gone")))
    assert found == ("", ())


def test_git_is_asked_as_this_account_has_set_it(tmp_path, monkeypatch):
    configuration = tmp_path / "gitconfig"
    configuration.write_text('[url "file://%s"]\n\tinsteadOf = https://example.org/mirrored/\n' % tmp_path)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(configuration))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    found = of_this_account()
    assert str(tmp_path) in found.mounts and "https://example.org/mirrored/" in found.configuration
