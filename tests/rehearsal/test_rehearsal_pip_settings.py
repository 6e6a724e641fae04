# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The login node's pip goes by what this account's pip goes by."""

from __future__ import annotations

import os

from rehearsal.pip_settings import configuration_files, settings_of


def test_variables_win_over_files_and_later_files_over_earlier_ones(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("[global]\ntimeout = 1\nretries = 1\n[install]\nno-cache = yes\n")
    second.write_text("[global]\ntimeout = 2\nretries = 2\n")
    found = settings_of([first, second, tmp_path / "none"], {"PIP_TIMEOUT": "3", "OTHER": "4"})
    assert found.configuration == "[global]\nno-cache = yes\nretries = 2\ntimeout = 3\n"


def test_directories_files_and_indexes_of_this_machine_are_mounted(tmp_path):
    for name in ("wheels", "index/simple"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "ca.pem").write_text("")
    configuration = tmp_path / "pip.conf"
    configuration.write_text(
        f"[global]\ncert = {tmp_path}/ca.pem\nfind-links = {tmp_path}/wheels\n  {tmp_path}/gone\n"
        f"index-url = https://example.org/simple\nextra-index-url = file://{tmp_path}/index/simple\n"
    )
    found = settings_of([configuration], {})
    assert found.mounts == tuple(str(tmp_path / name) for name in ("ca.pem", "index", "wheels"))
    assert f"find-links = {tmp_path}/wheels {tmp_path}/gone\n" in found.configuration


def test_settings_about_this_accounts_directories_stay_here():
    found = settings_of([], {"PIP_CACHE_DIR": "/var/cache/mine", "PIP_USER": "1", "PIP_RETRIES": "2"})
    assert found == ("[global]\nretries = 2\n", ())


def test_the_files_that_pip_reads_are_read(tmp_path):
    assert configuration_files({"PIP_CONFIG_FILE": os.devnull}, tmp_path) == []
    named = configuration_files({"PIP_CONFIG_FILE": "/etc/mine.conf", "XDG_CONFIG_HOME": ""}, tmp_path)
    assert [str(path) for path in named[-2:]] == [str(tmp_path / ".config/pip/pip.conf"), "/etc/mine.conf"]
